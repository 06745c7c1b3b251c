"""Base class of the pod tests: hosts, a scratch directory, and the job whose weights faults must not change."""

import functools
import json
import tempfile
import unittest
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import data_files
from network import Network, NoNetwork
from pods import Job, difference, learned
from support import program

NAMES = ("worker-0", "worker-1", "worker-2", "junk-sender")

LONG = (30, 60)  # epochs and steps: four seconds without faults


def description(*layers: tuple[str, dict[str, Any]]) -> str:
    """A minimal model.to_json() of Keras."""
    given = ("InputLayer", {"batch_shape": [None, 28, 28], "dtype": "float32"})
    named = [{"class_name": kind, "config": {"name": f"layer_{i}", **config}}
             for i, (kind, config) in enumerate((given, *layers))]
    return json.dumps({"class_name": "Sequential", "config": {"name": "sequential", "layers": named}})


MODELS = {
    # Has all state that a backup could miss: optimizer slots, moving statistics, Dropout's random numbers.
    "stateful": description(
        ("Reshape", {"target_shape": [28, 28, 1]}),
        ("Conv2D", {"filters": 8, "kernel_size": [3, 3], "activation": "relu"}),
        ("BatchNormalization", {}), ("MaxPooling2D", {"pool_size": [2, 2]}), ("Dropout", {"rate": 0.3}),
        ("Flatten", {}), ("Dense", {"units": 32, "activation": "relu"}), ("Dense", {"units": 10})),
    # Keeps rounding errors small. In the model above Adam amplifies them: the gradient of a bias before a normalization
    # consists of rounding errors.
    "calm": description(
        ("Reshape", {"target_shape": [28, 28, 1]}),
        ("Conv2D", {"filters": 8, "kernel_size": [3, 3], "use_bias": False}),
        ("BatchNormalization", {}), ("Dropout", {"rate": 0.3}), ("Flatten", {}), ("Dense", {"units": 10})),
}


class PodsTest(unittest.TestCase):
    network: ClassVar[Network]
    scratch: ClassVar[Path]

    @classmethod
    def setUpClass(cls) -> None:
        try:
            cls.network, cls.scratch = hosts_and_models()
        except NoNetwork as why:
            raise unittest.SkipTest(f"network namespaces are unavailable: {why}") from why

    def setUp(self) -> None:
        for host in self.network.hosts:
            host.restore()
            host.know(self.network.hosts)

    def training(self, epochs: int, steps: int, *options: object, model: str = "stateful") -> list[object]:
        """A command in which every step depends on all state of a backup."""
        return [program("lockstep"), "train", "--model", self.scratch / f"{model}.json", "--data-dir",
                self.scratch / "digits.npz", "--input-scale", "1/255", "--optimizer", "adam",
                "--loss", "sparse_categorical_crossentropy", "--epochs", epochs, "--steps-per-epoch", steps,
                "--global-batch-size", 48, "--seed", 5, "--deterministic", *options]

    def job(self, command: Sequence[object], workers: int = 3, options: Sequence[object] = (),
            **environment: str) -> Job:
        made = Job(self.network, self.scratch, command, workers, options, **environment)
        self.addCleanup(made.end)
        return made

    def undisturbed(self, command: Sequence[object], workers: int = 3) -> Job:
        """The result of a run without faults, cached for all tests."""
        key = f"{workers} {command}"
        if key not in _undisturbed:
            job = self.job([*command, "--backup-save-freq", "never"], workers)
            job.start_all()
            self.assert_ended(job)
            _undisturbed[key] = job
        return _undisturbed[key]

    def assert_ended(self, job: Job, code: int = 0) -> None:
        codes = job.wait()
        self.assertEqual(codes, [code] * len(codes), job.text())

    def assert_same(self, job: Job, whole: Job) -> None:
        self.assertEqual(difference(whole.model / "model.h5", job.model / "model.h5"), "", job.text())
        self.assertEqual(learned(job.history()), learned(whole.history()), job.text())


_undisturbed: dict[str, Job] = {}
_scratch = tempfile.TemporaryDirectory(prefix="lockstep_pods_", ignore_cleanup_errors=True)


@functools.cache
def hosts_and_models() -> tuple[Network, Path]:
    scratch = Path(_scratch.name)
    for name, text in MODELS.items():
        (scratch / f"{name}.json").write_text(text)
    (scratch / "digits.npz").write_bytes(data_files.npz(train=1000, test=200))
    return Network(NAMES), scratch
