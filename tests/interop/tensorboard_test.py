"""The real TensorBoard reads the event files of the TensorBoard callback.

    tensorboard_test.py BIN_DIR     the folder of interop_train_for_tensorboard
"""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy as np
from tensorboard.backend.event_processing import event_accumulator
from tensorboard.util import tensor_util

BIN = Path()
BATCHES = 6  # per epoch


class Curves(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        folder = Path(scratch.name)
        subprocess.run([BIN / "interop_train_for_tensorboard", folder], check=True)
        cls.epochs = json.loads((folder / "history.json").read_text())["epochs"]
        cls.runs = {path.name: cls.load(path) for path in (folder / "logs").iterdir()}

    @staticmethod
    def load(path):
        everything = {event_accumulator.TENSORS: 0}
        return event_accumulator.EventAccumulator(str(path), size_guidance=everything).Reload()

    def points(self, run, tag):
        """{step: value} of a scalar, with values in float32 as in the files."""
        events = self.runs[run].Tensors(tag)
        self.assertEqual([event.step for event in events], sorted({event.step for event in events}))
        return {event.step: np.float32(tensor_util.make_ndarray(event.tensor_proto)) for event in events}

    def recorded(self, name, step=lambda epoch: epoch):
        return {step(record["epoch"]): np.float32(record[name]) for record in self.epochs}

    def test_runs_have_their_tags(self):
        expected = {
            "train": {"batch_accuracy", "batch_loss", "epoch_accuracy", "epoch_learning_rate", "epoch_loss"},
            "validation": {"epoch_accuracy", "epoch_loss", "evaluation_accuracy_vs_iterations",
                           "evaluation_loss_vs_iterations"},
        }
        self.assertEqual({run: set(curves.Tags()["tensors"]) for run, curves in self.runs.items()}, expected)
        for run, tags in expected.items():
            self.assertEqual(self.runs[run].file_version, 2)
            for tag in tags:
                self.assertEqual(self.runs[run].SummaryMetadata(tag).plugin_data.plugin_name, "scalars")

    def test_epoch_scalars_match_the_history(self):
        self.assertEqual(len(self.epochs), 12)
        for metric in ("loss", "accuracy"):
            self.assertEqual(self.points("train", f"epoch_{metric}"), self.recorded(metric))
            self.assertEqual(self.points("validation", f"epoch_{metric}"), self.recorded(f"val_{metric}"))
            self.assertEqual(self.points("validation", f"evaluation_{metric}_vs_iterations"),
                             self.recorded(f"val_{metric}", lambda epoch: BATCHES * (epoch + 1)))
        self.assertEqual(self.points("train", "epoch_learning_rate"), self.recorded("learning_rate"))

    def test_batch_scalars_match_the_history(self):
        for metric in ("loss", "accuracy"):
            batches = self.points("train", f"batch_{metric}")
            self.assertEqual(list(batches), list(range(1, 12 * BATCHES + 1)))
            # The last batch of an epoch reports the epoch's mean.
            ends = {step: value for step, value in batches.items() if step % BATCHES == 0}
            self.assertEqual(ends, self.recorded(metric, lambda epoch: BATCHES * (epoch + 1)))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: tensorboard_test.py BIN_DIR")
    BIN = Path(sys.argv.pop()).resolve()
    unittest.main()
