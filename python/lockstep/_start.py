"""What the training in a `backup_dir` began with: another one is not taken for it, and no second one begins there."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lockstep._native import IoError, UsageError

_FACTS, _LOCK = "start.json", ".start.lock"

# What must be as it was, and how to say so.
_MUST_MATCH = {
    "model": "another model",
    "shapes": "another model",
    "compiled": "another loss, optimizer or metrics",
    "learning_rate": "another learning rate",
    "seed": "another seed",
}


@contextlib.contextmanager
def owned(directory: Path) -> Iterator[None]:
    """Hold a directory for this training. Raises UsageError if another process trains there."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    except OSError as error:
        raise IoError(f"cannot use the backup_dir {directory}: {error}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(
                f"another process trains in {directory}; wait for it to end, or name another backup_dir"
            ) from error
        yield
    finally:
        os.close(descriptor)


def resumed_seed(directory: Path, model: Any, seed: int | None) -> int | None:
    """Return the seed of the training that was interrupted in a directory; None if there is none.

    Raises UsageError if it was another training. The order of the data follows from the seed, so one that is not given
    is that of the beginning. A model that has taken steps is the interrupted one, whose callbacks may have changed its
    learning rate.
    """
    try:
        start = json.loads((directory / _FACTS).read_text())
        if not isinstance(start, dict) or not isinstance(start["seed"], int):
            raise ValueError(f"{_FACTS} does not describe a training")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError) as error:
        raise IoError(f"cannot use the backup_dir {directory}: {error}") from error
    now = facts(model, start["seed"] if seed is None else seed)
    if now["iterations"] != start.get("iterations"):
        now["learning_rate"] = start.get("learning_rate")
    for what, words in _MUST_MATCH.items():
        if start.get(what) == now[what]:
            continue
        raise UsageError(
            f"{directory} holds backups of a training with {words}; give what it began with, name another backup_dir, "
            "or remove it"
        )
    return start["seed"]


def forget_facts(directory: Path) -> None:
    """Let a training that begins now not be taken for an earlier one. Raises OSError."""
    (directory / _FACTS).unlink(missing_ok=True)


def keep(directory: Path, begins_with: dict[str, Any]) -> None:
    """Write down the facts of a training that begins. Raises OSError."""
    (directory / _FACTS).write_text(json.dumps(begins_with))


def forget(directory: Path, *files: str) -> None:
    """Remove what `keep` wrote, and other files, and the directory if nothing else is in it."""
    for name in (_FACTS, *files, _LOCK):
        (directory / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # it holds files of others, or is not ours to remove
        directory.rmdir()


def describe_compilation(model: Any) -> str:
    """Return a model's loss, optimizer and metrics as text that is equal wherever they are.

    Left out are the numbers that Keras appends to names, which count objects, and the learning rate: like the moments,
    it is state that callbacks change and backups hold.
    """
    return _as_text(model.get_compile_config())


def facts(model: Any, seed: int) -> dict[str, Any]:
    """Return what a training begins with. Call it before callbacks, which may change the learning rate."""
    rate: Any = getattr(model.optimizer, "_learning_rate", None)
    return {
        "model": _as_text([_describe_layer(layer) for layer in model._flatten_layers()]),
        "shapes": [list(weights.shape) for weights in model.weights],
        "compiled": describe_compilation(model),
        "learning_rate": float(rate) if hasattr(rate, "numpy") or isinstance(rate, float) else None,
        "iterations": int(model.optimizer.iterations),
        "seed": seed,
    }


def _describe_layer(layer: Any) -> list[Any]:
    try:
        return [type(layer).__name__, layer.get_config()]
    except Exception:  # a class of the user's own need not have one
        return [type(layer).__name__, {"trainable": layer.trainable}]


def _as_text(config: Any) -> str:
    def comparable(value: Any) -> Any:
        if isinstance(value, dict):
            rate = isinstance(value.get("learning_rate"), int | float)
            return {key: comparable(each) for key, each in value.items() if not (key == "learning_rate" and rate)}
        if isinstance(value, str):
            return re.sub(r"_[0-9]+$", "", value)
        return [comparable(each) for each in value] if isinstance(value, list | tuple) else value

    def plain(value: Any) -> Any:
        return value.tolist() if hasattr(value, "tolist") else type(value).__name__  # not an object's address

    return json.dumps(comparable(config), sort_keys=True, default=plain)
