"""What `fit`, `evaluate` and `predict` have in common: their arguments, and the native engine's workers."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import keras
import numpy as np

from lockstep._examples import Examples
from lockstep._native import UsageError
from lockstep._sources import Source, is_source
from lockstep._world import find_command


def require_whole(name: str, value: Any, least: int) -> None:
    """Raise `UsageError` unless an argument is a whole number, and at least `least`."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least:
        raise UsageError(f"{name} is {value!r}; it must be a whole number from {least}")


def limited(epochs: int) -> int:
    """Return the index after the last epoch, which ``keras.config.set_max_epochs`` limits as in Keras' fit."""
    most = _limit("max_epochs")
    if not most or epochs <= most:
        return epochs
    most = max(most, 0)
    warnings.warn(f"keras.config.max_epochs() limits epochs to {most}", stacklevel=3)
    return most


def _limit(name: str) -> int | None:
    """Return a limit of Keras' configuration; None if there is none, or if this Keras knows none."""
    limit = getattr(keras.config, name, None)
    return None if limit is None else limit()


class Arguments:
    """What all jobs check before anything is started."""

    def __init__(self, epochs: int, batch_size: int, workers: int) -> None:
        for name, value in (("epochs", epochs), ("batch_size", batch_size), ("workers", workers)):
            require_whole(name, value, 1)
        most = _limit("max_steps_per_epoch")
        if most:
            raise UsageError(
                f"keras.config.max_steps_per_epoch() is {most}, which the workers do not know; "
                f"give fewer examples, and unset it with keras.config.set_max_steps_per_epoch(None)"
            )
        cores = len(os.sched_getaffinity(0))
        if workers > cores:
            warnings.warn(
                f"{workers} workers share {cores} {'core' if cores == 1 else 'cores'}, so they will be slow; "
                f"use workers={cores}",
                stacklevel=3,
            )
        if os.environ.get("LOCKSTEP_CONTROL_FD") or os.environ.get("OMPI_COMM_WORLD_SIZE"):
            raise UsageError(
                "this process is a worker itself; under lockstep launch or mpirun, use lockstep.init() and Keras' fit"
            )
        self.batch_size = int(batch_size)
        self.workers = int(workers)


def as_source(data: Any, what: str, steps: Any, steps_name: str, **options: Any) -> Source | None:
    """Return data that comes in batches as a `Source`, and None for arrays. `options` are those of `Source`."""
    if steps is not None:
        require_whole(steps_name, steps, 1)
    if is_source(data):
        return Source(data, what, steps, steps_name=steps_name, **options)
    if steps is not None:
        raise UsageError(f"{steps_name} is for data in batches, but {what} is in arrays; leave it out")
    return None


def refuse_beside_source(**given: Any) -> None:
    """Refuse arguments that data in batches has no use for."""
    for name, value in given.items():
        if value is not None:
            raise UsageError(f"{name} is given, but the data comes in batches that say it themselves; leave it out")


def build(model: Any, data: Examples) -> None:
    if not model.built:
        model.build((None, *data.x[0][1].shape[1:]))


def worker_command(job: Path, arguments: Arguments, seed: int, as_bytes: bool, examples: int) -> list[str]:
    batch_size = min(arguments.batch_size, examples)  # the workers reserve memory for a whole batch
    command = [find_command(), "worker", "--job", str(job), "--seed", str(seed)]
    command += ["--global-batch-size", str(batch_size), "--verbose", "0", "--collective-timeout", "0"]
    if keras.backend.backend() != "tensorflow":
        command += ["--clip-probabilities"]  # as those backends do
    return command + (["--input-scale", "1"] if as_bytes else [])  # Keras uses bytes as they are
