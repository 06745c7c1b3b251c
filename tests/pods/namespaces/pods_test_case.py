"""What all tests of pods share: hosts, a scratch directory, and the job whose weights kills must not change."""

import json
import tempfile
import unittest
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from network import Network, NoNetwork
from pods import Job, difference, learned
from support import program

NAMES = ("worker-0", "worker-1", "worker-2", "stranger")


def layer(number: int, kind: str, **config: Any) -> dict[str, Any]:
    return {"class_name": kind, "config": {"name": f"layer_{number}", **config}}


# What has a state that a backup could forget: moments, running averages, the numbers drawn for Dropout.
MODEL = json.dumps({"class_name": "Sequential", "config": {"name": "sequential", "layers": [
    {"class_name": "InputLayer", "config": {"batch_shape": [None, 28, 28], "dtype": "float32", "name": "given"}},
    layer(1, "Reshape", target_shape=[28, 28, 1]),
    layer(2, "Conv2D", filters=8, kernel_size=[3, 3], activation="relu"),
    layer(3, "BatchNormalization"),
    layer(4, "MaxPooling2D", pool_size=[2, 2]),
    layer(5, "Dropout", rate=0.3),
    layer(6, "Flatten"),
    layer(7, "Dense", units=32, activation="relu"),
    layer(8, "Dense", units=10),
]}})


class PodsTest(unittest.TestCase):
    network: ClassVar[Network]
    scratch: ClassVar[Path]

    @classmethod
    def setUpClass(cls) -> None:
        try:
            cls.network = Network(NAMES)
        except NoNetwork as why:
            raise unittest.SkipTest(f"there can be no network namespaces here: {why}") from why
        cls.addClassCleanup(cls.network.close)
        scratch = tempfile.TemporaryDirectory(prefix="lockstep_pods_", ignore_cleanup_errors=True)
        cls.addClassCleanup(scratch.cleanup)
        cls.scratch = Path(scratch.name)
        (cls.scratch / "model.json").write_text(MODEL)

    def setUp(self) -> None:
        for host in self.network.hosts:
            host.restore()
            host.know(self.network.hosts)

    def training(self, epochs: int, steps: int, *options: object) -> list[object]:
        """A command whose every step depends on all that a backup must hold."""
        return [program("lockstep"), "train", "--model", self.scratch / "model.json", "--optimizer", "adam", "--loss",
                "sparse_categorical_crossentropy", "--epochs", epochs, "--steps-per-epoch", steps,
                "--global-batch-size", 48, "--seed", 5, "--deterministic", *options]

    def job(self, command: Sequence[object], workers: int = 3, options: Sequence[object] = (),
            **environment: str) -> Job:
        made = Job(self.network, self.scratch, command, workers, options, **environment)
        self.addCleanup(made.end)
        return made

    def undisturbed(self, command: Sequence[object], workers: int = 3) -> Job:
        job = self.job([*command, "--backup-save-freq", "never"], workers)
        job.start_all()
        self.assert_ended(job)
        return job

    def assert_ended(self, job: Job, code: int = 0) -> None:
        codes = job.wait()
        self.assertEqual(codes, [code] * len(codes), job.text())

    def assert_same(self, job: Job, whole: Job) -> None:
        self.assertEqual(difference(whole.model / "model.h5", job.model / "model.h5"), "", job.text())
        self.assertEqual(learned(job.history()), learned(whole.history()), job.text())
