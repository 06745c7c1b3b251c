"""What a training with backups began with: another one is not taken for it, and no second one begins in its directory.

`lockstep.fit` keeps these facts beside the backups, `lockstep.callbacks.BackupAndRestore` in them.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CellType, CodeType, FunctionType
from typing import Any

import keras
import numpy as np

from lockstep import _backup
from lockstep._collectives import allgather_object
from lockstep._files import replace_file
from lockstep._fork import close_in_forked_children
from lockstep._native import DirectoryLock, Error, IoError, UsageError, lock_directory
from lockstep._transfer import describe_variables, inner_optimizer
from lockstep._world import size

# Of what begins here, not of a user.
_FACTS, _MODEL, _HISTORY = ".lockstep-start.json", ".lockstep-start.keras", ".lockstep-history.json"

# What must be as it was, and how to say so.
_MUST_MATCH = {
    "engine": "another engine",
    "model": "another model",
    "shapes": "another model",
    "variables": "another model",
    "epsilon": "another keras.config.epsilon()",
    "compiled": "another loss, optimizer or metrics",
    "learning_rate": "another learning rate",
    "seed": "another seed",
    "initial_epoch": "another initial_epoch",
    "validation_freq": "another validation_freq",
    "validation_split": "another validation_split",  # before the data, of which it decides a part
    "data": "other data",
    "batch_size": "another batch_size",
    "shuffle": "another shuffle",
    "class_weight": "another class_weight",
}
# Facts of data whose values are not for people, and are compared last.
_DIGESTS = ("digest",)
# Keys of what Keras names, and numbers.
_NAMES = ("name", "keras_history", "input_layers", "output_layers")
_LIBRARIES = ("builtins", "jax", "jaxlib", "keras", "ml_dtypes", "numpy", "tensorflow", "torch")
_MAX_SHOWN = 40  # characters of a value in a message
_BACKUPS = (_backup.FILE, "fit-*-step-*.h5")  # of the Keras engine, of the native engine
_PROGRAM = "lockstep.fit"  # the owner of a directory, in messages
_owned: set[Path] = set()  # by threads of this process, which share its locks


@dataclass(frozen=True)
class Owned:
    """A directory in which this process trains; None if it keeps no backups."""

    directory: Path | None = None
    locks: Sequence[DirectoryLock] = ()  # which the job's launcher inherits
    identity: tuple[int, int] = (0, 0)

    def keep(self, begins_with: dict[str, Any] | None, model: Path | None = None) -> None:
        """Write down the facts of a training that begins, and its model. Raises IoError."""
        if self.directory is None or begins_with is None:
            return
        try:
            for name in (_FACTS, _HISTORY):
                (self.directory / name).unlink(missing_ok=True)
            if model is not None:
                replace_file(self.directory / _MODEL, model.read_bytes())
            # Last, because it says that the model is whole.
            replace_file(self.directory / _FACTS, json.dumps(begins_with).encode())
        except OSError as error:
            raise IoError(f"cannot use the backup_dir {self.directory}: {error}") from error

    def model(self) -> Path | None:
        """Return the file of the model with which a training began."""
        return None if self.directory is None else self.directory / _MODEL

    def keep_history(self, epochs: list[Any]) -> None:
        """Write down the epochs of the training so far, for the process that goes on with it. Raises IoError."""
        if self.directory is None:
            return
        try:
            content = json.dumps(epochs, default=lambda value: value.tolist() if hasattr(value, "tolist") else None)
            replace_file(self.directory / _HISTORY, content.encode(), self._require_own)
        except OSError as error:
            raise IoError(f"cannot use the backup_dir {self.directory}: {error}") from error

    def history(self) -> list[Any]:
        """Return the epochs that `keep_history` wrote. They may be more than those before the backup."""
        if self.directory is None:
            return []
        try:
            epochs: list[Any] = json.loads((self.directory / _HISTORY).read_text())
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise IoError(f"cannot use the backup_dir {self.directory}: {error}") from error
        return epochs

    def _require_own(self) -> None:
        if self.directory is not None and _identity_of(self.directory) != self.identity:
            raise UsageError(
                f"{self.directory} is not the directory that this training took; it was moved or replaced meanwhile"
            )

    def forget(self) -> None:
        """Remove backups and what this wrote, and the directory if nothing else is in it.

        The launcher has ended, and with it the lock. If another job has the directory now, or its path leads to another
        one, leaves all to that one.
        """
        if self.directory is None:
            return
        try:
            self._require_own()
            lock = lock_directory(self.directory, _PROGRAM)
            for pattern in (*_BACKUPS, f"{_FACTS}*", f"{_MODEL}*", f"{_HISTORY}*"):  # and what a killed process left
                for path in self.directory.glob(pattern):
                    path.unlink(missing_ok=True)
        except (Error, OSError) as error:  # the training is complete
            print(f"warning: the backups in {self.directory} are left: {error}", file=sys.stderr)
            return
        lock.release()
        with contextlib.suppress(OSError):  # it holds files of others, or is not ours to remove
            self.directory.rmdir()


@contextlib.contextmanager
def owned(directory: Path | None) -> Iterator[Owned]:
    """Hold a directory for this training. Raises PeerError if another process trains there.

    Raises UsageError if another thread does.
    """
    if directory is None:
        yield Owned()
        return
    place = directory.resolve()
    if place in _owned:
        raise UsageError(f"another thread trains in {directory}; wait for it to end, or name another backup_dir")
    with contextlib.ExitStack() as stack:
        _owned.add(place)
        stack.callback(_owned.discard, place)
        lock = lock_directory(directory, _PROGRAM)
        stack.callback(lock.close)
        close_in_forked_children(lock)
        yield Owned(directory, [lock], _identity_of(directory))


def _identity_of(directory: Path) -> tuple[int, int]:
    status = directory.stat()
    return status.st_dev, status.st_ino


def take(
    directory: Path | None, resume: bool, model: Any, seeds: tuple[int | None, int], data: Any, **arguments: Any
) -> tuple[int | None, dict[str, Any]]:
    """Return the seed of the interrupted training that goes on, or None if one begins, and the facts of the latter.

    `seeds` are the one that is given, and the one to begin with. Call it before callbacks, which may change the
    learning rate.
    """
    seed, drawn = seeds
    if directory is None:
        return None, {}
    given = describe_arguments(data, **arguments)
    if not resume:
        refuse_backups(directory)
        return None, facts(model, drawn, given)
    return resumed_seed(directory, model, seed, given), facts(model, drawn, given)


def refuse_backups(directory: Path) -> None:
    """Raise UsageError if a directory holds backups, which a training that begins there would delete."""
    if _has_backups(directory):
        raise UsageError(
            f"the backup_dir {directory} holds backups of a training that was not completed; go on with it by "
            "resume=True, name another backup_dir, or remove it"
        )


def resumed_seed(directory: Path, model: Any, seed: int | None, given: dict[str, Any]) -> int | None:
    """Return the seed of the training that was interrupted in a directory; None if there is none.

    Raises UsageError if it was another training; `given` is of `describe_arguments`. The order of the data follows from
    the seed, so one that is not given is that of the beginning. A model that has taken steps is the interrupted one,
    whose callbacks may have changed its learning rate.
    """
    if not _has_backups(directory):
        return None  # nothing is there to go on with
    try:
        start = json.loads((directory / _FACTS).read_text())
        if not isinstance(start, dict) or not isinstance(start["seed"], int):
            raise ValueError(f"{_FACTS} does not describe a training")
    except FileNotFoundError:
        raise UsageError(
            f"{directory} holds backups that lockstep.fit did not write; name another backup_dir, or remove it"
        ) from None
    except (OSError, ValueError, KeyError) as error:
        raise IoError(f"cannot use the backup_dir {directory}: {error}") from error
    different = other_training(start, facts(model, start["seed"] if seed is None else seed, given))
    if different is not None:
        raise UsageError(
            f"{directory} has backups of another run ({different}); use its settings, choose another backup_dir, or "
            "delete the backups"
        )
    return start["seed"]


def other_training(start: dict[str, Any], now: dict[str, Any]) -> str | None:
    """Return in words by what a training differs from the one with the facts `start`.

    A model that has taken steps since is the interrupted one, whose callbacks may have changed its learning rate.
    """
    if now["iterations"] != start.get("iterations"):
        now = now | {"learning_rate": start.get("learning_rate")}
    for what, words in _MUST_MATCH.items():
        if start.get(what) != now.get(what):
            return words + ("" if what == "data" else _both_values(start.get(what), now.get(what)))
    return None


def other_shards(
    start: list[Any], now: list[Any], current: int | None, where: tuple[str, str] = ("then", "now")
) -> str | None:
    """Return in words by what datasets of `lockstep.shard` differ from those that a training began with.

    The lists have the facts of each dataset of the program, in the order of construction; None for one that is gone. If
    they are not equally long, the dataset that trained decides: its place is `current`. `where` are the words for both
    lists.
    """
    if len(start) != len(now):
        if current is None or current >= len(start):
            return None
        start, now = start[current : current + 1], now[current : current + 1] or [{}]
    for then, here in zip(start, now, strict=True):
        if then is None or here is None:
            continue
        for what in sorted(then.keys() | here.keys(), key=lambda key: (key in _DIGESTS, key not in _MUST_MATCH, key)):
            if then.get(what) != here.get(what):
                if what in _MUST_MATCH:
                    return _MUST_MATCH[what] + _both_values(then.get(what), here.get(what), where=where)
                if what in _DIGESTS:
                    names = [name for name in then[what] if then[what][name] != here[what].get(name)]
                    return f"other data: other values in {', '.join(names)}"
                return "other data" + _both_values(then.get(what), here.get(what), what, where)
    return None


def require_same_shards(describe: Callable[[], list[Any]]) -> None:
    """Raise `UsageError` on all ranks if a rank describes other datasets of `lockstep.shard` than rank 0.

    All ranks call this. A rank may have datasets of its own, so those of a rank that describes another number of them
    are not compared, nor are datasets without a digest.
    """
    if size() == 1:
        return
    first, *others = allgather_object([each if each and "digest" in each else None for each in describe()])
    for rank, other in enumerate(others, 1):
        different = other_shards(first, other, None, ("on rank 0", f"on rank {rank}"))
        if different is not None:
            raise UsageError(
                f"rank {rank} gives lockstep.shard {different}; give the same on all ranks, with a seed where data is "
                "drawn or split, or train on each rank's own data without lockstep.shard"
            )


def _both_values(then: Any, now: Any, name: str = "", where: tuple[str, str] = ("then", "now")) -> str:
    """Return both values where two facts first differ, if they are short."""
    name, *values = _first_difference(name, _parsed(then), _parsed(now))
    shown = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
    if any(isinstance(value, (dict, list)) or value is None for value in values) or shown[0] == shown[1]:
        return ""
    if max(map(len, shown)) > _MAX_SHOWN:
        return ""
    return f": {name + ' ' if name else ''}{shown[0]} {where[0]}, {shown[1]} {where[1]}"


def _first_difference(name: str, then: Any, now: Any) -> tuple[str, Any, Any]:
    """Return the last key before the first difference of two JSON values, and what is there."""
    pairs: list[tuple[str, Any, Any]] = []
    if isinstance(then, dict) and isinstance(now, dict):
        keys = sorted(then.keys() | now.keys())
        pairs = [("" if key.endswith("_name") else key, then.get(key), now.get(key)) for key in keys]
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        pairs = [(name, *both) for both in zip(then, now, strict=True)]
    different = next((pair for pair in pairs if pair[1] != pair[2]), None)
    return (name, then, now) if different is None else _first_difference(*different)


def _parsed(fact: Any) -> Any:
    return json.loads(fact) if isinstance(fact, str) and fact[:1] in ("[", "{") else fact


def _has_backups(directory: Path) -> bool:
    return any(True for pattern in _BACKUPS for _ in directory.glob(pattern))


def describe_compilation(model: Any) -> str:
    """Return a model's loss, optimizer and metrics as text that is equal wherever they are.

    Left out are the numbers that Keras appends to names, which count objects, and the learning rate: like the moments,
    it is state that callbacks change and backups hold.
    """
    try:
        compiled = model.get_compile_config()
    except Exception:  # an object of the user's own need not have a configuration
        compiled = None
    metrics = getattr(model, "_compile_metrics", None)
    lists = [getattr(metrics, name, None) for name in ("_user_metrics", "_user_weighted_metrics")]
    held = [getattr(model, "loss", None), *lists, inner_optimizer(getattr(model, "optimizer", None))]
    code = [_code_of_value(each) for each in keras.tree.flatten(held)]
    return _as_text([compiled, [each for each in code if each]])


def describe_arguments(arrays: Any, **arguments: Any) -> dict[str, Any]:
    """Return facts of the arguments of ``fit``: a digest of its data, and what else decides the steps."""
    digest = hashlib.blake2b(digest_size=16)
    for array in keras.tree.flatten(arrays):
        if array is not None:
            digest.update(f"{array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    weights = {str(index): float(factor) for index, factor in (arguments.pop("class_weight") or {}).items()}
    return {"data": digest.hexdigest(), "class_weight": weights, **arguments}


def facts(model: Any, seed: int, given: dict[str, Any]) -> dict[str, Any]:
    """Return what a training of ``lockstep.fit`` begins with."""
    return {**describe_model(model), "seed": seed, **given}


def describe_model(model: Any) -> dict[str, Any]:
    """Return facts of a compiled model, whether it has one optimizer, several, or none."""
    held = [model.optimizer] if getattr(model, "optimizer", None) is not None else []
    held += [value for value in vars(model).values() if isinstance(value, keras.optimizers.Optimizer)]
    optimizers = list({id(each): each for each in held}.values())
    rates = [_rate_of(each) for each in optimizers]
    return {
        "model": _as_text([_describe_layer(layer) for layer in model._flatten_layers()]),
        "shapes": [list(weights.shape) for weights in model.weights],
        "variables": _as_text(describe_variables(model)),
        "epsilon": keras.config.epsilon(),
        "compiled": describe_compilation(model),
        "learning_rate": rates[0] if len(rates) == 1 else rates,
        "iterations": sum(int(each.iterations) for each in optimizers),
    }


def _rate_of(optimizer: Any) -> float | None:
    inner = getattr(optimizer, "inner_optimizer", optimizer)  # of a LossScaleOptimizer
    rate: Any = getattr(inner, "_learning_rate", None)
    return float(rate) if hasattr(rate, "numpy") or isinstance(rate, float) else None


def _describe_layer(layer: Any) -> list[Any]:
    try:
        config = layer.get_config()
    except Exception:  # a class of the user's own need not have one
        config = {"trainable": layer.trainable}
    config = {"module": type(layer).__module__, "config": config}
    held = [value for value in vars(layer).values() if not isinstance(value, keras.layers.Layer)]
    own = [each for each in map(_code_of_value, held) if each]  # Keras adds functions of its own when it is first used
    return [type(layer).__name__, config, _code_of_value(layer), own]


def _code_of_value(value: Any, seen: set[int] | None = None) -> Any:
    """Return the code of a function or of an object's class, if it is the user's own: a name does not tell it.

    What is in `seen` has been described; what is described is added.
    """
    owner = value if inspect.isfunction(value) or isinstance(value, type) else type(value)
    seen = set() if seen is None else seen
    if not _is_own(owner) or id(owner) in seen:
        return None
    seen.add(id(owner))
    if inspect.isfunction(owner):
        return _describe_function(owner, seen)
    kinds = [kind for kind in owner.__mro__ if _is_own(kind)]
    return [{name: _describe_member(each, seen) for name, each in vars(kind).items()} for kind in kinds]


def _is_own(owner: Any) -> bool:
    """Whether a class or function is of no installed library that comes with Keras."""
    return _package_of(owner) not in _LIBRARIES


def _package_of(owner: Any) -> str:
    return str(getattr(owner, "__module__", "builtins")).split(".")[0]


def _describe_member(member: Any, seen: set[int]) -> Any:
    """Return a method's code, or the value of a class' attribute."""
    member = getattr(member, "__func__", member)  # of static methods and those of classes
    member = getattr(member, "fget", member)  # of properties
    member = inspect.unwrap(member) if inspect.isfunction(member) else member
    return _describe_function(member, seen) if inspect.isfunction(member) else _describe_value(member)


def _describe_function(function: FunctionType, seen: set[int]) -> list[Any]:
    """Return what a function computes with: its code, and the values of defaults, closure and globals that it reads.

    Of other packages, which may be large, only the names are part of the code.
    """
    held: list[Any] = [cell.cell_contents for cell in function.__closure__ or () if cell != CellType()]
    held += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    held += [function.__globals__[name] for name in _names(function.__code__) if name in function.__globals__]
    own = _package_of(function)
    near = [each for each in held if not callable(each) or _package_of(each) == own]
    values = [_code_of_value(each, seen) if callable(each) else _describe_value(each) for each in near]
    return [_code(function.__code__), [each for each in values if each is not None]]


def _describe_value(value: Any) -> Any:
    """Return a plain value as JSON has it, and None for others."""
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_describe_value(each) for each in value]
    if isinstance(value, dict):
        return {str(key): _describe_value(each) for key, each in value.items()}
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufc":
        content = np.ascontiguousarray(value).tobytes()
        return [str(value.dtype), list(value.shape), hashlib.blake2b(content, digest_size=16).hexdigest()]
    return None


def _names(code: CodeType) -> list[str]:
    """Return the names that code reads, and those that functions in it read."""
    inner = [name for each in code.co_consts if isinstance(each, CodeType) for name in _names(each)]
    return sorted({*code.co_names, *inner})


def _code(code: CodeType) -> list[Any]:
    constants = [_code(each) if isinstance(each, CodeType) else _as_constant(each) for each in code.co_consts]
    if code.co_consts and isinstance(code.co_consts[0], str):
        constants[0] = ""  # where a docstring is
    return [code.co_code.hex(), code.co_names, constants]


def _as_constant(value: Any) -> str:
    """Return a constant as text. The order of a set differs between processes."""
    if isinstance(value, (frozenset, tuple)):
        parts = [_as_constant(each) for each in value]
        return f"{type(value).__name__}({sorted(parts) if isinstance(value, frozenset) else parts})"
    return repr(value)


def _as_text(config: Any) -> str:
    def comparable(value: Any, is_name: bool = False, of_optimizer: bool = False) -> Any:
        if isinstance(value, dict):
            if value.get("class_name") == "__lambda__":
                return "__lambda__"  # its bytes differ between compiled and loaded modules; _code_of_value knows it
            held = value.get("config")
            module = str(value.get("module"))
            if isinstance(held, dict) and module.split(".")[0] == "keras":
                # Keras may draw it anew in each process. What follows from it, backups hold.
                value = value | {"config": {key: each for key, each in held.items() if key != "seed"}}
            is_rate = of_optimizer and isinstance(value.get("learning_rate"), int | float)
            return {
                str(key): comparable(each, key in _NAMES, of_optimizer or key == "optimizer")
                for key, each in value.items()
                if not (key == "learning_rate" and is_rate)
            }
        if isinstance(value, str):
            return re.sub(r"_[0-9]+$", "", value) if is_name else value
        if isinstance(value, list | tuple):
            return [comparable(each, is_name, of_optimizer) for each in value]
        return value

    def plain(value: Any) -> Any:
        return value.tolist() if hasattr(value, "tolist") else type(value).__name__  # not an object's address

    return json.dumps(comparable(config), sort_keys=True, default=plain)
