"""Lockstep: synchronous training of Keras models on many workers.

Notebooks and scripts call `fit`, which starts workers for a compiled model. Programs that run once per worker, under
``lockstep launch``, call `init`, wrap their optimizer in `DistributedOptimizer`, and train with Keras' own ``fit``.
docs/python.md shows both.

Keras is imported only by the names that need it: `check`, `fit`, `evaluate`, `predict`, `DistributedOptimizer`,
`shard`, `callbacks`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from lockstep._collectives import allgather_object, allreduce, barrier, broadcast
from lockstep._native import DataError, Error, InternalError, IoError, PeerError, UsageError, __version__
from lockstep._world import init, is_chief, is_initialized, local_rank, local_size, rank, shutdown, size

if TYPE_CHECKING:
    from lockstep import callbacks
    from lockstep._data import shard
    from lockstep._engine_choice import Check, check
    from lockstep._fit import fit
    from lockstep._inference import evaluate, predict
    from lockstep._optimizer import DistributedOptimizer

__all__ = [
    "Check",
    "DataError",
    "DistributedOptimizer",
    "Error",
    "InternalError",
    "IoError",
    "PeerError",
    "UsageError",
    "__version__",
    "allgather_object",
    "allreduce",
    "barrier",
    "broadcast",
    "callbacks",
    "check",
    "evaluate",
    "fit",
    "init",
    "is_chief",
    "is_initialized",
    "local_rank",
    "local_size",
    "predict",
    "rank",
    "shard",
    "shutdown",
    "size",
]

_WITH_KERAS = {
    **dict.fromkeys(("Check", "check"), "lockstep._engine_choice"),
    **dict.fromkeys(("evaluate", "predict"), "lockstep._inference"),
    "fit": "lockstep._fit",
    "DistributedOptimizer": "lockstep._optimizer",
    "callbacks": "",
    "shard": "lockstep._data",
}


def __getattr__(name: str) -> Any:
    if name not in _WITH_KERAS:
        raise AttributeError(f"module 'lockstep' has no attribute '{name}'")
    try:
        if name == "callbacks":
            return importlib.import_module("lockstep.callbacks")
        return getattr(importlib.import_module(_WITH_KERAS[name]), name)
    except ModuleNotFoundError as error:
        if error.name != "keras":
            raise
        raise ModuleNotFoundError(
            f"lockstep.{name} needs Keras 3 and one of its backends; install them with: pip install keras jax",
            name="keras",
        ) from error
