"""Training divided by features, as its users see it: the same model files, whoever made them, and what is refused."""

import json
import os
import signal
from typing import Any

from support import USAGE, Ended, ProgramTest, Running, eventually, program

ONE_LAYER = json.dumps({"class_name": "Sequential", "config": {"name": "sequential", "layers": [
    {"class_name": "InputLayer", "config": {"batch_shape": [None, 28, 28], "dtype": "float32", "name": "given"}},
    {"class_name": "Flatten", "config": {"name": "flatten"}},
    {"class_name": "Dense", "config": {"name": "classes", "units": 10}}]}})


class DivisionTest(ProgramTest):
    default_program = "keras_mnist"
    options = ("--epochs", 3, "--steps-per-epoch", 6, "--global-batch-size", 24, "--seed", 5)

    def losses(self) -> list[float]:
        return [epoch["loss"] for epoch in self.history()["epochs"]]

    def close(self, mine: list[float], theirs: list[float]) -> None:
        self.assertEqual(len(mine), len(theirs))
        for one, other in zip(mine, theirs):
            self.assertAlmostEqual(one, other, delta=1e-4 * other)

    def test_features_are_examples_for_any_number_of_workers(self) -> None:
        for name in ("keras_mnist", "custom_training_mnist"):
            options: tuple[Any, ...] = self.options if name == "keras_mnist" else self.options[:2]
            self.succeed(*options, name=name)
            alone = self.losses()
            for workers in (2, 3):
                with self.subTest(name=name, workers=workers):
                    self.succeed(*options, "--division", "features", workers=workers, name=name)
                    self.close(self.losses(), alone)

    def test_a_backup_goes_on_under_another_division_and_number(self) -> None:
        self.succeed(*self.options, workers=2)
        whole = self.losses()
        for before, after in ((("features", 2), ("examples", 3)), (("examples", 2), ("features", 3)),
                              (("features", 3), ("features", 2))):
            with self.subTest(before=before, after=after):
                self.model = self.scratch / f"{before[0]}_{before[1]}_{after[0]}"
                running = self.start(*self.options, "--epochs", 4000, "--backup-save-freq", 1,
                                     "--division", before[0], workers=before[1])
                backup = self.model / "backup"
                self.assertTrue(eventually(lambda: any(backup.glob("fit-1-step-*.h5")), 60), "no backup came")
                for pid in running.ranks().values():
                    os.kill(pid, signal.SIGKILL)
                running.end()
                ended = self.succeed(*self.options, "--epochs", 60, "--division", after[0], workers=after[1])
                self.assertIn("Resuming from", ended.stdout)
                self.assertRegex(ended.stderr, rf"then {before[1]} workers, by {before[0]}.*; now {after[1]} workers, by "
                                               rf"{after[0]}.* start as many workers as then with --division auto")
                self.close(self.losses()[:3], whole)

    def test_the_choice_is_told_and_kept(self) -> None:
        ended = self.succeed(*self.options, "--verbose", 2, workers=2)
        world = self.history()["world"]
        self.assertIn(world["division"], ("examples", "features", "none"))
        self.assertRegex(world["division_because"], "by examples, .* by features, .* computes all")
        predicted = {name: world[f"predicted_ms_by_{name}"] for name in ("examples", "features", "none")}
        self.assertGreater(min(predicted.values()), 0)
        best = min(predicted, key=lambda name: predicted[name])
        gains = predicted[best] <= 0.95 * predicted["examples"]
        self.assertEqual(world["division"], best if gains else "examples")
        self.assertRegex(ended.stdout, "Divided by (examples|features) over 2 workers|Each of 2 workers computes all")
        rules = self.succeed(*self.options, "--deterministic", workers=2)
        self.assertIn("Divided by features over 2 workers", rules.stdout)
        self.assertRegex(rules.stdout, r"dense +by input channels, 16 \+ 16 +sends 12.3 kB a step")
        asked = self.succeed(*self.options, "--division", "examples", workers=2)
        self.assertNotIn("Divided", asked.stdout)

    def test_where_the_network_is_too_slow_every_worker_computes_all(self) -> None:
        self.succeed(*self.options)
        alone = self.losses()
        slow = {"LOCKSTEP_TEST_LINK": "1,1e3,1e12"}
        ended = self.succeed(*self.options, "--backup-save-freq", 4, "--verbose", 2, workers=2, **slow)
        self.assertIn("Each of 2 workers computes all, since", ended.stdout)
        self.assertEqual(self.history()["world"]["division"], "none")
        self.assertIn("whole, by every worker", ended.stdout)
        self.close(self.losses(), alone)

    def plan(self, *options: object) -> Ended:
        call = [program("lockstep"), "plan", *map(str, options)]
        return Running(call, self.cwd, {}).end()

    def test_a_dry_run(self) -> None:
        self.succeed(*self.options)
        told = self.plan("--model", self.model / "model.h5", "--workers", 4, "--link", 1)
        self.assertEqual(told.code, 0, str(told))
        self.assertIn("4 workers, by features: ", told.stdout)
        self.assertIn("--division auto takes features", told.stdout)
        self.assertNotIn("8 workers", told.stdout)
        description = self.scratch / "model.json"
        description.write_text(ONE_LAYER)
        compiled = ("--loss", "sparse_categorical_crossentropy", "--optimizer", "sgd")
        told = self.plan("--model", description, *compiled)
        self.assertEqual(told.code, 0, str(told))
        self.assertIn("By features is not possible, since the channels of layer 'classes'", told.stdout)
        for wrong in (("--workers", 0), ("--workers", 2.5), ("--link", "fast"), ("--latency", -1)):
            self.assert_fails(self.plan("--model", description, *compiled, *wrong), USAGE, wrong[0], "must be")

    def test_what_is_refused(self) -> None:
        self.assert_fails(self.run_program("--division", "layers"), USAGE, "--division is 'layers'",
                          "auto, examples or features")
        ended = self.run_program("--division", "features", None, "--division", "examples")
        self.assert_fails(ended, USAGE, "disagree about --division")
        description = self.scratch / "model.json"
        description.write_text(ONE_LAYER)
        call = [program("lockstep"), "train", "--model", str(description), "--data-dir", str(self.data), "--division",
                "features", "--loss", "sparse_categorical_crossentropy", "--optimizer", "sgd"]
        self.assert_fails(Running(call, self.cwd, {}).end(), USAGE, "--division features: the model cannot be divided",
                          "layer 'classes'", "use --division examples")
