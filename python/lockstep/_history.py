"""What ``lockstep.fit`` returns: Keras' History, which a notebook shows as the page of the run."""

from __future__ import annotations

import html
import math
import time
from typing import Any

import keras
import numpy as np

from lockstep._native import GenerationRecord, report_html
from lockstep._start import Owned


class History(keras.callbacks.History):  # type: ignore[misc]
    """Keras' History. In a notebook it shows curves, where a step's time went, and which workers trained when.

    Of a training that goes on, it holds the epochs before the interruption too.
    """

    def __init__(self, engine: str) -> None:
        super().__init__()
        self._owned = Owned()
        self._epochs: list[Any] = []  # pairs of an epoch and its logs, which a process that goes on needs
        self._earlier: list[Any] = []  # those of the process before, until it is known with which epoch this one begins
        self._engine = engine
        self._workers = 0
        self._began = math.nan
        self._seconds: list[float] = []
        self._generations: list[GenerationRecord] = []
        self._profile: dict[str, float] = {}

    def keep_in(self, owned: Owned, goes_on: bool) -> None:
        """Keep the epochs in a directory of backups. If the training there goes on, take those that it had."""
        self._owned = owned
        self._earlier = owned.history() if goes_on else []

    def _take_earlier(self, first: float) -> None:
        for epoch, logs in self._earlier:
            if epoch < first:
                self._seconds.append(math.nan)
                self._add(epoch, logs)
        self._earlier = []

    def _add(self, epoch: int, logs: Any) -> None:
        self._epochs.append((epoch, dict(logs or {})))
        super().on_epoch_end(epoch, logs)

    def begin_generation(self, generation: int, workers: int, cause: str) -> None:
        """Record that a world of workers begins. `cause`: why the one before ended."""
        self._workers = workers
        self._end_generation(cause)
        self._generations.append(GenerationRecord(generation, workers, time.time(), 0.0, ""))

    def _end_generation(self, cause: str) -> None:
        if self._generations and self._generations[-1].ended == 0:
            self._generations[-1].ended = time.time()
            self._generations[-1].reason = cause

    def take_profile(self, milliseconds: dict[str, float | None]) -> None:
        """Record the time of a step by kind of work."""
        self._profile = {name: each for name, each in milliseconds.items() if each is not None}

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Keras' method."""
        self._take_earlier(epoch)
        self._began = time.monotonic()
        super().on_epoch_begin(epoch, logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Keras' method."""
        self._seconds.append(time.monotonic() - self._began)
        self._add(epoch, logs)
        self._owned.keep_history(self._epochs)

    def on_train_end(self, logs: Any = None) -> None:
        """Keras' method."""
        self._take_earlier(math.inf)  # if no epoch was left
        self._end_generation("")
        super().on_train_end(logs)

    def page(self) -> str:
        """Return the page of the run, as ``report.html`` is: it needs no network and no scripts."""
        epochs = []
        for index, epoch in enumerate(self.epoch):
            logs = {
                name: float(values[index])
                for name, values in self.history.items()
                if index < len(values) and isinstance(values[index], (float, np.floating))  # others have an axis
            }
            epochs.append((int(epoch), logs, self._seconds[index] if index < len(self._seconds) else math.nan))
        world = {"engine": self._engine, "backend": keras.backend.backend()}
        versions = {"keras": keras.__version__}
        name = getattr(self.model, "name", "model")
        return report_html(name, epochs, self._workers, world, versions, self._profile, self._generations)

    def _repr_html_(self) -> str:
        """Return the page in a frame, so that its style stays in it."""
        page = html.escape(self.page(), quote=True)
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 36rem; border: 0"></iframe>'
