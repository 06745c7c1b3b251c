"""Results of training: equal for any number of workers, reproducible, and recorded in history.json."""

import math
from pathlib import Path

from support import ProgramTest

CONFIG = {"allow_tf32", "backup_dir", "backup_save_freq", "batch_norm_replicas", "clip_probabilities", "collective_timeout",
          "communication", "convolutions", "data_dir", "deterministic", "device", "epochs", "global_batch_size", "gradient_compression",
          "initial_weights", "input_scale", "learning_rate", "max_staleness", "model_dir", "on_checkpoint_failure", "parallelism",
          "precision", "program", "ps_mode", "ps_placement", "replicas_to_aggregate", "resume", "seed", "steps_per_epoch", "strategy", "verbose"}
PROFILE = {"input", "forward", "loss", "backward", "optimizer", "communication", "other", "total"}


class ResultsTest(ProgramTest):
    def final_losses(self, *options: object, workers: int, name: str = "", **environment: str) -> list[float]:
        """The losses of the last epoch, of its validation, and of the evaluation."""
        self.succeed(*options, workers=workers, name=name, **environment)
        history = self.history()
        self.assertEqual(history["world"]["workers"], workers)
        last = history["epochs"][-1] | {f"evaluation_{k}": v for k, v in history.get("evaluation", {}).items()}
        return [value for key, value in sorted(last.items()) if key.endswith("loss")]

    def assert_close(self, found: list[float], expected: list[float]) -> None:
        self.assertEqual(len(found), len(expected))
        for one, other in zip(found, expected):
            self.assertTrue(math.isclose(one, other, abs_tol=1e-4), f"{found} is not {expected}")

    def test_number_of_workers_does_not_matter(self) -> None:
        """100 examples in batches of 32: neither 32 nor the last batch of 4 is divisible by 3 workers."""
        options = ("--epochs", 2, "--global-batch-size", 32)
        alone = self.final_losses(*options, workers=1)
        self.assertEqual(len(alone), 2)
        for workers in (2, 3, 4):
            with self.subTest(workers=workers):
                self.assert_close(self.final_losses(*options, workers=workers), alone)
        with self.subTest("several hosts"):
            self.assert_close(self.final_losses(*options, workers=3, LOCKSTEP_SIMULATED_HOSTS="0,0,1"), alone)

    def test_fewer_examples_in_a_batch_than_workers(self) -> None:
        options = ("--epochs", 2, "--steps-per-epoch", 4, "--global-batch-size", 2, "--learning-rate", 0.05)
        alone = self.final_losses(*options, workers=1, name="keras_mnist")
        self.assert_close(self.final_losses(*options, workers=3, name="keras_mnist"), alone)

    def test_more_steps_than_one_pass(self) -> None:
        """7 steps of 32 examples from 100: a batch spans the end of a pass."""
        options = ("--epochs", 2, "--steps-per-epoch", 7, "--global-batch-size", 32, "--learning-rate", 0.05)
        alone = self.final_losses(*options, workers=1, name="keras_mnist")
        self.assertEqual(self.history()["timing"]["steps"], 14)
        self.assert_close(self.final_losses(*options, workers=2, name="keras_mnist"), alone)

    def test_a_batch_larger_than_the_data(self) -> None:
        alone = self.final_losses("--epochs", 1, "--global-batch-size", 1000, workers=1)
        self.assert_close(self.final_losses("--epochs", 1, "--global-batch-size", 1000, workers=2), alone)

    def test_training_reduces_the_loss(self) -> None:
        self.succeed("--epochs", 8, "--global-batch-size", 10)
        epochs = self.history()["epochs"]
        self.assertLess(epochs[-1]["loss"], epochs[0]["loss"] / 2)
        self.assertGreater(epochs[-1]["val_accuracy"], 0.8)

    def test_same_seed_same_bytes(self) -> None:
        for workers in (1, 2):
            with self.subTest(workers=workers):
                files = []
                for model in ("first", "second"):
                    self.model = self.scratch / f"{model}{workers}"
                    self.succeed("--epochs", 1, "--seed", 5, "--deterministic", workers=workers)
                    files.append((self.model / "model.h5").read_bytes())
                self.assertEqual(files[0], files[1])
        self.succeed("--epochs", 1, "--seed", 6)
        self.assertNotEqual((self.model / "model.h5").read_bytes(), files[0])

    def test_mpi_and_shared_memory_agree(self) -> None:
        through = {}
        for communication in ("auto", "mpi"):
            through[communication] = self.final_losses("--epochs", 2, "--communication", communication, workers=2)
            used = self.history()["world"]["communication"]
            self.assertIn("MPI" if communication == "mpi" else "shared memory", used)
        self.assert_close(through["mpi"], through["auto"])

    def test_history_json_records_the_run(self) -> None:
        self.succeed("--epochs", 2, "--steps-per-epoch", 3, workers=2, name="keras_mnist")
        history = self.history()
        self.assertEqual(set(history), {"model", "file", "iteration", "epochs", "evaluation", "config", "world", "versions",
                                        "timing", "generations"})
        self.assertEqual(history["file"], "model.h5")
        self.assertEqual(history["model"], "keras_mnist")
        self.assertEqual([epoch["epoch"] for epoch in history["epochs"]], [0, 1])
        for epoch in history["epochs"]:
            self.assertEqual(set(epoch), {"epoch", "accuracy", "loss", "seconds", "examples_per_second"})
            self.assertGreater(epoch["examples_per_second"], 0)
        self.assertEqual(set(history["evaluation"]), {"accuracy", "loss"})
        self.assertEqual(set(history["config"]), CONFIG)
        self.assertEqual({key: history["world"][key] for key in ("workers", "hosts", "batch_norm_replicas")},
                         {"workers": 2, "hosts": 1, "batch_norm_replicas": 2})
        self.assertTrue({"communication", "device"} <= set(history["world"]))
        self.assertIn("lockstep", history["versions"])
        timing = history["timing"]
        self.assertEqual(timing["steps"], 6)
        self.assertGreater(timing["seconds_to_first_step"], 0)
        self.assertGreater(timing["peak_memory_mb"], 1)
        self.assertEqual(set(timing["profile_ms_per_step"]), PROFILE)
        parts = sum(value for key, value in timing["profile_ms_per_step"].items() if key != "total")
        self.assertAlmostEqual(parts, timing["profile_ms_per_step"]["total"], delta=0.01)

    def test_only_the_chief_writes(self) -> None:
        others = [self.scratch / "model_of_worker_1", self.scratch / "model_of_worker_2"]
        self.succeed("--epochs", 1, None, "--epochs", 1, "--model-dir", others[0], None, "--epochs", 1, "--model-dir",
                     others[1])
        self.assertEqual(names_in(self.model), [".lockstep.lock", "history.json", "model.h5", "report.html"])
        self.assertEqual([path for path in others if path.exists()], [])
        self.assertEqual(names_in(self.cwd), [])


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())
