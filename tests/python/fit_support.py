"""What the tests of `lockstep.fit` share: a small model, data, a callback, and checks that nothing is left behind."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np
from support import JobTest

EXAMPLES, BATCH = 120, 24
TOLERANCE = 2e-4  # of float32 sums in another order, after some steps of Adam


def data(examples: int = EXAMPLES) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(5)
    x = draw.normal(size=(examples, 6, 6, 1)).astype("float32")
    return x, (x.sum((1, 2, 3)) > 0).astype("int64") + 2 * (x[:, 0, 0, 0] > 0)


def make_model(optimizer: Any = None, layers: list[Any] | None = None) -> Any:
    keras.utils.set_random_seed(1)
    between = layers or [keras.layers.Conv2D(4, 3, activation="relu"), keras.layers.Flatten()]
    model = keras.Sequential([keras.Input((6, 6, 1)), *between, keras.layers.Dense(4)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer or keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    return model


def processes_of(folder: Path) -> list[tuple[int, str]]:
    """Return the processes whose command names a file in a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(folder) in command and (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.append((int(entry.name), command))
    return found


def wait_until(condition: Callable[[], bool], seconds: float = 20) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def shared_memory() -> set[str]:
    return {str(path) for path in Path("/dev/shm").iterdir() if not path.is_dir()}


def is_mapped(path: str) -> bool:
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            if path in maps.read_text():
                return True
    return False


class FitTest(JobTest):
    """All jobs' folders lie in one of the test's, which tells its processes from others."""

    def setUp(self) -> None:
        super().setUp()
        before = shared_memory()
        patch = mock.patch.object(tempfile, "tempdir", str(self.folder))
        patch.start()
        self.addCleanup(self.check_nothing_is_left, before)
        self.addCleanup(patch.stop)

    def check_nothing_is_left(self, before: set[str]) -> None:
        self.assertTrue(wait_until(lambda: not processes_of(self.folder)), processes_of(self.folder))
        self.assertTrue(wait_until(lambda: all(map(is_mapped, shared_memory() - before))), shared_memory() - before)

    def workers(self) -> list[int]:
        return [pid for pid, command in processes_of(self.folder) if " launch " not in command]

    def assert_same(self, model: Any, other: Any, tolerance: float = TOLERANCE) -> None:
        variables = [each.numpy() if hasattr(each, "numpy") else np.asarray(each) for each in model.optimizer.variables]
        others = [each.numpy() if hasattr(each, "numpy") else np.asarray(each) for each in other.optimizer.variables]
        self.assertEqual(int(model.optimizer.iterations), int(other.optimizer.iterations))
        for own, theirs in zip(model.get_weights() + variables, other.get_weights() + others, strict=True):
            np.testing.assert_allclose(own, theirs, atol=tolerance, rtol=tolerance)


class Collect(keras.callbacks.Callback):
    """Remembers what it is told, and does something at one place."""

    def __init__(self, do: Callable[[Any, int], None] = lambda model, epoch: None) -> None:
        super().__init__()
        self.calls: list[tuple[str, int]] = []
        self.weights: list[np.ndarray] = []
        self.do = do

    def on_train_begin(self, logs: Any = None) -> None:
        self.calls.append(("train_begin", 0))

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.calls.append(("epoch_begin", epoch))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.calls.append(("epoch_end", epoch))
        self.weights.append(self.model.get_weights()[0])
        self.do(self.model, epoch)

    def on_train_end(self, logs: Any = None) -> None:
        self.calls.append(("train_end", 0))


class CollectBatches(Collect):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.calls.append(("batch", batch))
