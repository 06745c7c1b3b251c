"""Backups of training in Keras: one file, written by the chief, whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import pickle
import sys
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from lockstep._files import replace_file
from lockstep._fork import close_in_forked_children
from lockstep._native import DataError, DirectoryLock, Error, InternalError, IoError, PeerError, UsageError
from lockstep._world import group, is_chief

FORMAT = 3
FILE = "backup.npz"
_ERRORS = {each.__name__: each for each in (UsageError, DataError, IoError, PeerError, InternalError)}
_held: dict[Path, DirectoryLock] = {}  # the directories in which this process trains, until it ends

Arrays = list[NDArray[Any]]


@dataclass
class RankState:
    """What differs between ranks in the middle of an epoch."""

    metrics: Arrays = field(default_factory=list)  # what the epoch's metrics have accumulated
    layers: Arrays | None = None  # state that no optimizer updates, if it differs from the chief's


@dataclass
class Backup:
    """The state of a ``fit`` between two steps."""

    fit: int  # its number in the program, from 1
    epoch: int
    step: int  # completed steps of the epoch
    total_steps: int
    position: dict[str, Any]  # of the data, see Feed.position
    history: dict[str, Any]  # of earlier epochs
    variables: Arrays  # of model and optimizer
    ranks: list[RankState] = field(default_factory=list)
    begun: dict[str, Any] = field(default_factory=dict)  # with what each fit of the program began, by its number

    def to_bytes(self) -> bytes:
        """Return the contents of the backup's file."""
        arrays: dict[str, NDArray[Any]] = {}
        types: dict[str, str] = {}

        def add(group_name: str, values: Arrays) -> int:
            for i, value in enumerate(values):
                name = f"{group_name}.{i}"
                if value.dtype.kind == "V":  # NumPy's format has no names for the types of ml_dtypes
                    types[name] = value.dtype.name
                    value = value.view(f"u{value.dtype.itemsize}")
                arrays[name] = value
            return len(values)

        meta = {
            "format": FORMAT,
            "fit": self.fit,
            "epoch": self.epoch,
            "step": self.step,
            "total_steps": self.total_steps,
            "position": self.position,
            "history": self.history,
            "begun": self.begun,
            "variables": add("variable", self.variables),
            "ranks": [
                {
                    "metrics": add(f"rank{rank}.metric", state.metrics),
                    "layers": None if state.layers is None else add(f"rank{rank}.layer", state.layers),
                }
                for rank, state in enumerate(self.ranks)
            ],
            "types": types,
        }
        arrays["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # type: ignore[arg-type]
        return buffer.getvalue()

    @staticmethod
    def from_bytes(data: bytes) -> Backup:
        """Read the contents of a backup's file; raise `DataError` if they are none."""
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
                meta = json.loads(arrays["meta"].tobytes())
                if meta["format"] != FORMAT:
                    raise DataError(f"it has format {meta['format']}, and this version of lockstep reads {FORMAT}")
                types: dict[str, str] = meta["types"]

                def get(group_name: str, count: int) -> Arrays:
                    names = [f"{group_name}.{i}" for i in range(count)]
                    return [
                        arrays[name].view(getattr(ml_dtypes, types[name])) if name in types else arrays[name]
                        for name in names
                    ]

                ranks = [
                    RankState(
                        get(f"rank{rank}.metric", each["metrics"]),
                        None if each["layers"] is None else get(f"rank{rank}.layer", each["layers"]),
                    )
                    for rank, each in enumerate(meta["ranks"])
                ]
                variables = get("variable", meta["variables"])
        except (ValueError, KeyError, TypeError, AttributeError, EOFError, OSError, zipfile.BadZipFile) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"it is damaged: {error}") from error
        return Backup(
            meta["fit"],
            meta["epoch"],
            meta["step"],
            meta["total_steps"],
            meta["position"],
            meta["history"],
            variables,
            ranks,
            meta["begun"],
        )


def is_finite(array: NDArray[Any]) -> bool:
    """Whether an array holds neither NaN nor infinity."""
    is_float = array.dtype.kind in "fc" or "float" in array.dtype.name  # NumPy knows no kind of bfloat16
    return not is_float or bool(np.isfinite(array).all())


def write(directory: Path, backup: Backup, state: RankState) -> bool:
    """Write a backup. All ranks call this; `backup` is the chief's, `state` each rank's own.

    A model that holds NaN or infinity on any rank is not backed up: a restart would go on with it. The chief returns
    whether the backup is written; other ranks return True.
    """
    layers = state.layers or []
    digest = hashlib.blake2b(b"".join(array.tobytes() for array in layers), digest_size=16).digest()
    is_own = group().all_gather(digest)[0] != digest
    parts = group().all_gather(pickle.dumps(RankState(state.metrics, layers if is_own else None)))
    if not is_chief():
        return True
    backup.ranks = [pickle.loads(part) for part in parts]
    layers_of_ranks = [array for each in backup.ranks for array in each.layers or []]
    if not all(map(is_finite, [*backup.variables, *layers_of_ranks])):
        return False
    path = directory / FILE
    try:
        directory.mkdir(parents=True, exist_ok=True)
        replace_file(path, backup.to_bytes(), _hold(directory).require_held)
    except Error:  # of which some are OSErrors too
        raise
    except OSError as error:
        raise IoError(f"cannot write the backup {path}: {error.strerror or error}") from error
    return True


def _hold(directory: Path) -> DirectoryLock:
    """Return the lock of a directory, which is this program's until it ends.

    Raises what the lock of a native job's directory raises: `UsageError` or `PeerError` if another job has it.
    """
    held = _held.get(directory.absolute())
    if held is None:
        held = group().lock_directory(directory, Path(sys.argv[0]).name)
        _held[directory.absolute()] = held
        close_in_forked_children(held)
    return held


def read(directory: Path) -> Backup | None:
    """Return the backup in a directory that only the chief sees, on all ranks; None if there is none.

    Makes the directory this program's. Raises what `_hold` raises, `IoError` if the backup cannot be read, and
    `DataError` if it is damaged.
    """
    path = directory / FILE
    message = b"none"
    if is_chief():
        try:
            _hold(directory)
            for leftover in directory.glob(f".{FILE}.*"):  # of a chief that was killed while it wrote
                leftover.unlink()
            message = b"data" + path.read_bytes() if path.exists() else b"none"
        except Error as error:
            message = b"fail" + f"{type(error).__name__} {error}".encode()
        except OSError as error:
            message = b"fail" + f"IoError cannot read the backup {path}: {error.strerror or error}".encode()
    message = group().broadcast(message, 0)
    if message[:4] == b"none":
        return None
    if message[:4] == b"fail":
        kind, text = message[4:].decode().split(" ", 1)
        raise _ERRORS[kind](text)
    try:
        return Backup.from_bytes(message[4:])
    except DataError as error:
        raise DataError(f"cannot use the backup {path}: {error}; remove it to train from the beginning") from error


def remove(directory: Path) -> None:
    """Remove the backup in a directory that `read` made this program's, and the directory if nothing else is in it."""
    held = _held.pop(directory.absolute(), None)
    if held is None:
        return
    try:
        held.require_held()
        (directory / FILE).unlink(missing_ok=True)
    except (Error, OSError) as error:  # the training is complete
        print(f"warning: the backup in {directory} is left: {error}", file=sys.stderr)
        return
    held.release()
    with contextlib.suppress(OSError):  # it holds files of others, or is not ours to remove
        directory.rmdir()
