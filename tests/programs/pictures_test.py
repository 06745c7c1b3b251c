"""keras_resnet_cifar and fine_tune: they learn, and end with the same bits after a kill."""

import json
import os
import random
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import data_files
from model_file_support import description
from support import DATA, USAGE, ProgramTest, eventually, program

SMALL = ("--depth", 20, "--global-batch-size", 20, "--seed", 3)


class PicturesTest(ProgramTest):
    default_program = "keras_resnet_cifar"

    def setUp(self) -> None:
        super().setUp()
        self.data = data_files.write_cifar10(self.scratch / "cifar")

    def test_learns_the_same_with_two_workers(self) -> None:
        """Both see two replicas, so only rounding differs."""
        found = {}
        for workers in (1, 2):
            self.model = self.scratch / f"model{workers}"
            self.succeed(*SMALL, "--epochs", 2, "--learning-rate", 0.01, "--batch-norm-replicas", 2, workers=workers)
            found[workers] = [epoch["loss"] for epoch in self.history()["epochs"]]
        self.assertLess(found[1][1], found[1][0])
        for one, other in zip(found[1], found[2], strict=True):
            self.assertAlmostEqual(one, other, delta=0.02 * one)

    def test_a_kill_changes_nothing(self) -> None:
        options = (*SMALL, "--epochs", 4, "--backup-save-freq", 1)
        self.succeed(*options, workers=2)
        whole = self.model / "model.keras"
        self.model = self.scratch / "broken"
        running = self.start(*options, workers=2)
        backups = self.model / "backup"
        self.assertTrue(eventually(lambda: any(backups.glob("fit-1-step-*.h5")), 30))
        os.kill(random.Random(1).choice(list(running.ranks().values())), signal.SIGKILL)
        self.assertNotEqual(running.end().code, 0)
        self.assertIn("Resuming from", self.succeed(*options, workers=2).stdout)
        self.assert_same(whole, self.model / "model.keras")

    def assert_same(self, left: Path, right: Path) -> None:
        compared = subprocess.run([program("lockstep"), "inspect", "--compare", str(left), str(right)],
                                  capture_output=True, text=True)
        self.assertEqual(compared.returncode, 0, compared.stdout + compared.stderr)

    def test_fine_tuning_changes_the_head_alone(self) -> None:
        """The base is a network that another run saved."""
        self.succeed(*SMALL, "--epochs", 1)
        base = self.model / "model.keras"
        self.model = self.scratch / "tuned"
        self.succeed("--base", base, "--preprocessing", "tf", "--epochs", 1, "--global-batch-size", 20, "--seed", 3,
                     workers=2, name="fine_tune")
        arrays = self.weights(self.model / "model.keras")
        before = self.weights(base)
        self.assertEqual(arrays[: len(before)], before)
        self.assertEqual([array["shape"] for array in arrays[len(before) :]], [[10, 10], [10]])

    def test_fine_tuning_prepares_pixels_as_the_network_was_trained(self) -> None:
        """A base without pooling is refused, and one of another size gets resized images."""
        base = self.scratch / "base.json"
        tuning = ("--base", base, "--epochs", 1, "--global-batch-size", 20)
        convolution = ("Conv2D", {"filters": 4, "kernel_size": [3, 3]})
        pooling = ("GlobalAveragePooling2D", {})
        cases = (("tf", 32, ["rescaling"]), ("torch", 40, ["resizing", "normalization"]),
                 ("caffe", 32, ["rescaling", "to_bgr"]), ("none", 32, []))
        for how, side, rows in cases:
            base.write_text(description(convolution, pooling, shape=(side, side, 3)))
            shown = self.succeed(*tuning, "--preprocessing", how, name="fine_tune").stdout
            named = r"^│ (resizing|rescaling|normalization|to_bgr|sequential) "
            self.assertEqual(re.findall(named, shown, re.MULTILINE), [*rows, "sequential"])
            self.assertRegex(shown, "Test loss: .* Saved ")
        self.assert_fails(self.run_program(*tuning, name="fine_tune"), USAGE, "--preprocessing tf, torch, caffe or")
        base.write_text(description(convolution, shape=(32, 32, 3)))
        self.assert_fails(self.run_program(*tuning, "--preprocessing", "none", name="fine_tune"), USAGE,
                          "base.json has no pooling", "pooling='avg'")

    def weights(self, file: Path) -> list[dict[str, Any]]:
        """What `inspect` says about each array, without its name."""
        shown = subprocess.run([program("lockstep"), "inspect", "--json", str(file)], capture_output=True, text=True,
                               check=True)
        return [{key: value for key, value in array.items() if key != "name"}
                for array in json.loads(shown.stdout)["weights"]]

    def test_wrong_options_and_data(self) -> None:
        self.assert_fails(self.run_program("--depth", 32), USAGE, "--depth is 32", "20 and 56")
        self.assert_fails(self.run_program(name="fine_tune"), USAGE, "--base")
        (self.data / "test_batch.bin").write_bytes(b"short")
        self.assert_fails(self.run_program(*SMALL), DATA, "test_batch.bin", "5 bytes")
