"""Tensor parallelism of programs: model files do not depend on it, and unsupported models are rejected."""

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

from support import USAGE, Ended, ProgramTest, Running, eventually, program

ONE_LAYER = json.dumps({"class_name": "Sequential", "config": {"name": "sequential", "layers": [
    {"class_name": "InputLayer", "config": {"batch_shape": [None, 28, 28], "dtype": "float32", "name": "given"}},
    {"class_name": "Flatten", "config": {"name": "flatten"}},
    {"class_name": "Dense", "config": {"name": "classes", "units": 10}}]}})


class ParallelismTest(ProgramTest):
    default_program = "keras_mnist"
    options = ("--epochs", 3, "--steps-per-epoch", 6, "--global-batch-size", 24, "--seed", 5)

    def losses(self) -> list[float]:
        return [epoch["loss"] for epoch in self.history()["epochs"]]

    def assert_close(self, mine: list[float], theirs: list[float]) -> None:
        self.assertEqual(len(mine), len(theirs))
        for one, other in zip(mine, theirs):
            self.assertAlmostEqual(one, other, delta=1e-4 * other)

    def test_tensor_parallel_matches_one_process_for_any_number_of_workers(self) -> None:
        for name in ("keras_mnist", "custom_training_mnist"):
            options: tuple[Any, ...] = self.options if name == "keras_mnist" else self.options[:2]
            self.succeed(*options, name=name)
            single = self.losses()
            for workers in (2, 3):
                with self.subTest(name=name, workers=workers):
                    self.succeed(*options, "--parallelism", "tensor", workers=workers, name=name)
                    self.assert_close(self.losses(), single)

    def test_a_backup_resumes_under_another_parallelism_and_world_size(self) -> None:
        self.succeed(*self.options, workers=2)
        uninterrupted = self.losses()
        for before, after in ((("tensor", 2), ("data", 3)), (("data", 2), ("tensor", 3)),
                              (("tensor", 3), ("tensor", 2))):
            with self.subTest(before=before, after=after):
                self.model = self.scratch / f"{before[0]}_{before[1]}_{after[0]}"
                running = self.start(*self.options, "--epochs", 4000, "--backup-save-freq", 1,
                                     "--parallelism", before[0], workers=before[1])
                backup = self.model / "backup"
                self.assertTrue(eventually(lambda: any(backup.glob("fit-1-step-*.h5")), 60), "no backup came")
                for pid in running.ranks().values():
                    os.kill(pid, signal.SIGKILL)
                running.end()
                ended = self.succeed(*self.options, "--epochs", 100, "--parallelism", after[0], workers=after[1])
                self.assertIn("Resuming from", ended.stdout)
                self.assertRegex(ended.stderr, rf"was {before[1]} workers, {before[0]} parallel.*; is {after[1]} workers, "
                                               rf"{after[0]} parallel.* start as many workers as before with --parallelism auto")
                self.assert_close(self.losses()[:3], uninterrupted)

    def test_a_restored_choice_is_told(self) -> None:
        """Of two jobs under `auto`, one at least resumes with another parallelism than it would choose."""
        told = 0
        for before in ("data", "tensor"):
            self.model = self.scratch / f"restored_{before}"
            running = self.start(*self.options, "--epochs", 4000, "--backup-save-freq", 1, "--parallelism", before, workers=2)
            self.assertTrue(eventually(lambda: any((self.model / "backup").glob("fit-1-step-*.h5")), 60), "no backup came")
            for pid in running.ranks().values():
                os.kill(pid, signal.SIGKILL)
            running.end()
            ended = self.succeed(*self.options, "--epochs", 100, workers=2)
            self.assertEqual(self.history()["world"]["parallelism"], before)
            told += f"Parallelism: {before}, as in the backup, instead of the choice above" in ended.stdout
        self.assertGreaterEqual(told, 1)

    def test_frequent_backups_are_taken_or_counted(self) -> None:
        """A gather ends within the interval that was asked for, so at most every other backup is missed for it."""
        ended = self.succeed(*self.options, "--epochs", 20, "--backup-save-freq", 5, "--parallelism", "tensor", workers=2)
        timing = self.history()["timing"]
        self.assertEqual(timing["backups"] + timing["skipped_backups"], 24)
        self.assertEqual("a backup is skipped" in ended.stderr, timing["skipped_backups"] > 0)
        self.assertGreaterEqual(timing["backups"], 4)

    def test_the_choice_is_printed_and_recorded(self) -> None:
        ended = self.succeed(*self.options, "--verbose", 2, workers=2)
        world = self.history()["world"]
        self.assertIn(world["parallelism"], ("data", "tensor", "replicated"))
        self.assertRegex(world["parallelism_reason"], "data parallel, .* tensor parallel, .* replicated")
        predicted = {name: world[f"predicted_ms_{name}"] for name in ("data", "tensor", "replicated")}
        self.assertGreater(min(predicted.values()), 0)
        best = min(predicted, key=lambda name: predicted[name])
        gains = predicted[best] <= 0.95 * predicted["data"]
        self.assertEqual(world["parallelism"], best if gains else "data")
        self.assertRegex(ended.stdout, "Parallelism: (data|tensor|replicated), 2 workers")
        rules = self.succeed(*self.options, "--deterministic", workers=2)
        self.assertIn("Parallelism: tensor, 2 workers", rules.stdout)
        self.assertRegex(rules.stdout, r"dense +row-parallel, 16 \+ 16 +sends 12.3 kB a step")
        asked = self.succeed(*self.options, "--parallelism", "data", workers=2)
        self.assertNotIn("Parallelism:", asked.stdout)

    def test_a_slow_network_replicates_the_model(self) -> None:
        self.succeed(*self.options)
        single = self.losses()
        slow = {"LOCKSTEP_ASSUMED_HARDWARE": "1,1e3,1e12"}
        ended = self.succeed(*self.options, "--backup-save-freq", 4, "--verbose", 2, workers=2, **slow)
        self.assertIn("Parallelism: replicated, 2 workers", ended.stdout)
        self.assertEqual(self.history()["world"]["parallelism"], "replicated")
        self.assertRegex(ended.stdout, r"dense +replicated")
        self.assert_close(self.losses(), single)

    def plan(self, *options: object) -> Ended:
        call = [program("lockstep"), "plan", *map(str, options)]
        return Running(call, self.cwd, {}).end()

    def test_the_plan_command_shows_the_choice(self) -> None:
        self.succeed(*self.options)
        planned = self.plan("--model", self.model / "model.h5", "--workers", 4, "--bandwidth", 1)
        self.assertEqual(planned.code, 0, str(planned))
        self.assertRegex(planned.stdout, r"\n +4  tensor +[\d.]+ ")
        self.assertIn("With 4 workers, --parallelism auto chooses tensor:", planned.stdout)
        self.assertNotRegex(planned.stdout, r"\n +8  ")
        self.assertLessEqual(max(map(len, planned.stdout[planned.stdout.index("workers  par"):].splitlines())), 80)
        description = self.scratch / "model.json"
        description.write_text(ONE_LAYER)
        compiled = ("--loss", "sparse_categorical_crossentropy", "--optimizer", "sgd")
        planned = self.plan("--model", description, *compiled)
        self.assertEqual(planned.code, 0, str(planned))
        self.assertIn("Tensor parallelism is not possible, because the channels of layer 'classes'", planned.stdout)
        for wrong in (("--workers", 0), ("--workers", 2.5), ("--bandwidth", "fast"), ("--latency", -1)):
            self.assert_fails(self.plan("--model", description, *compiled, *wrong), USAGE, wrong[0], "must be")
        for other in (("--kernels",), ("--servers", 2)):
            self.assert_fails(self.plan("--model", description, *compiled, "--workers", 2, *other), USAGE,
                              "--workers is for the prediction of a step")

    def test_the_plan_command_lists_the_kernels_of_convolutions(self) -> None:
        if " avx2 " not in Path("/proc/cpuinfo").read_text():
            self.skipTest("this CPU computes convolutions directly")
        self.succeed("--epochs", 1, "--steps-per-epoch", 1, name="custom_training_mnist")
        kernels = ("--kernels", "--model", self.model / "model.h5")
        for options, is_winograd in (((), True), (("--convolutions", "direct"), False)):
            planned = self.plan(*kernels, *options)
            self.assertEqual(planned.code, 0, str(planned))
            for operation in ("convolution", "convolution_backward"):
                with self.subTest(operation=operation, options=options):
                    second, = re.findall(rf"^{operation} +conv2d_1 .* (\S+)$", planned.stdout, re.MULTILINE)
                    self.assertEqual(second == "winograd", is_winograd, planned.stdout)

    def test_invalid_options_are_rejected(self) -> None:
        self.assert_fails(self.run_program("--parallelism", "layers"), USAGE, "--parallelism is 'layers'",
                          "auto, data or tensor")
        ended = self.run_program("--parallelism", "tensor", None, "--parallelism", "data")
        self.assert_fails(ended, USAGE, "disagree about --parallelism")
        description = self.scratch / "model.json"
        description.write_text(ONE_LAYER)
        call = [program("lockstep"), "train", "--model", str(description), "--data-dir", str(self.data), "--parallelism",
                "tensor", "--loss", "sparse_categorical_crossentropy", "--optimizer", "sgd"]
        self.assert_fails(Running(call, self.cwd, {}).end(), USAGE, "--parallelism tensor: the model cannot be sharded",
                          "layer 'classes'", "use --parallelism data")
