"""`check`, `fit`, `evaluate` and `predict`: a caller's Keras model on workers that this process starts."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from lockstep import _keras_engine
from lockstep._caller import (
    Training,
    check_callbacks,
    describe,
    load_state,
    looks_at_weights,
    waits_for_batches,
)  # fmt: skip
from lockstep._job import Job, Message, error_of
from lockstep._native import DataError, IoError, UsageError
from lockstep._world import find_command

_ENGINES = ("auto", "native", "keras")
_WRONG_MODEL = (64, 65)
# In backup_dir: what a training began with, so that a model made anew goes on with it.
_START_MODEL, _START_FACTS = "start.keras", "start.json"


@dataclass(frozen=True)
class Check:
    """Which engine takes a model, and why."""

    engine: str
    reason: str

    def __str__(self) -> str:
        return f"{self.engine} engine: {self.reason}"


def check(model: Any) -> Check:
    """Say which engine `fit` takes for a compiled Keras model, and why.

    The native engine itself is asked: the answer names what it does not know.
    """
    problem = _native_problem(model)
    if problem is None:
        return Check("native", "it knows all layers, the loss, the metrics and the optimizer")
    return Check("keras", problem)


def fit(
    model: Any,
    x: Any,
    y: Any = None,
    *,
    epochs: int = 1,
    batch_size: int | None = None,
    workers: int = 1,
    validation_data: Any = None,
    validation_split: float = 0.0,
    callbacks: Sequence[Any] | None = None,
    class_weight: dict[int, float] | None = None,
    sample_weight: Any = None,
    shuffle: bool = True,
    verbose: int | str = "auto",
    seed: int | None = None,
    engine: str = "auto",
    backup_dir: str | Path | None = None,
    resume: bool = False,
) -> Any:
    """Train a compiled Keras model in place, on workers of this host, and return Keras' ``History``.

    Parameters
    ----------
    model
        Weights, optimizer state and step are the workers' when this returns, also after Ctrl-C.
    x, y
        Arrays of equal length. The Keras engine also takes tuples and dicts of them, and `x` alone.
    epochs
        Passes over the data.
    batch_size
        Examples in a step on all workers together; 32 if not given, as in Keras.
    workers
        Processes that train in lockstep. One that dies is replaced, and training goes on from the last backup.
    validation_data
        A pair (x, y), evaluated after every epoch.
    validation_split
        Fraction of the data, at its end, to evaluate on instead of training on it.
    callbacks
        Keras' and your own. They run in this process, after each epoch with the weights of that time.
    class_weight, sample_weight
        As in Keras. Only the Keras engine takes them.
    shuffle
        Whether every epoch has an order of its own.
    verbose
        As in Keras.
    seed
        Decides the order of the data and what Dropout drops. By default it is drawn from NumPy, which
        ``keras.utils.set_random_seed`` seeds.
    engine
        "native", "keras", or "auto": native, unless a line on standard error names what it does not know.
    backup_dir
        Where backups are kept until training is complete. Without it they are temporary.
    resume
        Go on with the training that was interrupted in `backup_dir`, if there is one.
    """
    callbacks = list(callbacks or [])
    check_callbacks(callbacks)
    arguments = _Arguments(epochs, 32 if batch_size is None else batch_size, workers)
    if not 0 <= validation_split < 1:
        raise UsageError(f"validation_split is {validation_split}; it must be at least 0 and less than 1")
    if resume and backup_dir is None:
        raise UsageError("resume=True needs backup_dir, where the interrupted training left its backups")
    _require_compiled(model)
    chosen = _choose(model, engine, _beyond_native(model, x, y, validation_data, class_weight, sample_weight))
    verbose = 1 if verbose == "auto" else int(verbose)
    seed = int(np.random.randint(2**31)) if seed is None else seed
    if chosen == "keras":
        return _keras_engine.fit(
            model,
            (x, y, sample_weight),
            validation_data,
            epochs=epochs,
            batch_size=arguments.batch_size,
            workers=workers,
            validation_split=validation_split,
            callbacks=callbacks,
            class_weight=class_weight,
            shuffle=shuffle,
            verbose=verbose,
            seed=seed,
            backup_dir=None if backup_dir is None else Path(backup_dir),
            resume=resume,
        )
    data = _as_pair(x, y, "the data")
    validation = None if validation_data is None else _as_pair(*_unpacked(validation_data), "the validation data")
    _build(model, data)
    with Job() as job:
        state = job.memory_file("state")
        both = [data] if validation is None else [data, validation]
        as_bytes = all(each.x.dtype == np.uint8 for each in both)
        count = len(data.x) if validation is not None else math.floor(len(data.x) * (1 - validation_split))
        training = Training(model, callbacks, epochs, math.ceil(count / arguments.batch_size), verbose)
        training.begin()  # before the model is written: callbacks may change it now
        path = _write_model(job, model)
        if backup_dir is not None:
            path, seed = _keep_start(Path(backup_dir).absolute(), resume, model, path, seed)
        description: Message = {
            "kind": "fit",
            "model": path,
            "data": _write(job, data, as_bytes),
            "validation": None if validation is None else _write(job, validation, as_bytes),
            "validation_split": 0.0 if validation is not None else validation_split,
            "state": state.descriptor,
            "callbacks": describe(callbacks),
            "waits_for_batches": waits_for_batches(callbacks),
            "shows_weights": looks_at_weights(callbacks),
            "shuffle": shuffle,
            "temporary": str(job.folder),
        }
        command = _worker_command(job.describe(description), arguments, seed, as_bytes)
        command += ["--epochs", str(epochs), "--backup-dir", str(Path(backup_dir or job.folder / "backup").absolute())]
        command += ["--resume", "auto" if resume else "never"]
        job.start(workers, command)
        training.run(job, lambda: load_state(model, job, state))
    if backup_dir is not None:
        _forget_start(Path(backup_dir))
    return model.history


def evaluate(
    model: Any,
    x: Any,
    y: Any = None,
    *,
    batch_size: int | None = None,
    workers: int = 1,
    return_dict: bool = False,
) -> Any:
    """Return a compiled model's loss and metrics on arrays, in the order of Keras' ``evaluate``."""
    arguments = _Arguments(1, 32 if batch_size is None else batch_size, workers)
    data = _as_pair(x, y, "the data")
    _require_compiled(model)
    _build(model, data)
    with Job() as job:
        result = _infer(job, model, data, arguments, {"kind": "evaluate"})
    logs = {name: float(value) for name, value in result["logs"].items()}
    if return_dict:
        return logs
    values = [logs.pop("loss"), *(logs[name] for name in sorted(logs))]
    return values[0] if len(values) == 1 else values


def predict(model: Any, x: Any, *, batch_size: int | None = None, workers: int = 1) -> NDArray[np.float32]:
    """Return a model's outputs for an array of inputs."""
    arguments = _Arguments(1, 32 if batch_size is None else batch_size, workers)
    data = _as_pair(x, None, "the data")
    _build(model, data)
    with Job() as job:
        outputs = job.memory_file("outputs")
        result = _infer(job, model, data, arguments, {"kind": "predict", "outputs": outputs.descriptor})
        return outputs.read(tuple(result["shape"]), "float32")


class _Arguments:
    """What all jobs check before anything is started."""

    def __init__(self, epochs: int, batch_size: int, workers: int) -> None:
        for name, value in (("epochs", epochs), ("batch_size", batch_size), ("workers", workers)):
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
                raise UsageError(f"{name} is {value!r}; it must be a whole number from 1")
        cores = len(os.sched_getaffinity(0))
        if workers > cores:
            warnings.warn(
                f"{workers} workers share {cores} {'core' if cores == 1 else 'cores'}, so they will be slow; "
                f"use workers={cores}",
                stacklevel=3,
            )
        if "LOCKSTEP_CONTROL_FD" in os.environ or "OMPI_COMM_WORLD_SIZE" in os.environ:
            raise UsageError(
                "this process is a worker itself; under lockstep launch or mpirun, use lockstep.init() and Keras' fit"
            )
        self.batch_size = int(batch_size)
        self.workers = int(workers)


@dataclass(frozen=True)
class _Pair:
    x: NDArray[Any]
    y: NDArray[Any] | None


def _unpacked(data: Any) -> tuple[Any, Any]:
    if isinstance(data, (tuple, list)) and len(data) == 2:
        return data[0], data[1]
    raise UsageError("validation_data must be a pair of arrays (x, y)")


def _as_array(value: Any, what: str) -> NDArray[Any]:
    if isinstance(value, (list, tuple, dict)) and any(hasattr(each, "shape") for each in value):
        raise UsageError(f"{what} holds several arrays; lockstep.fit takes models of one input and one output")
    if not hasattr(value, "__array__") and not isinstance(value, (list, tuple)):
        raise UsageError(
            f"{what} is of type {type(value).__name__}; lockstep.fit takes arrays, so collect its batches with "
            "numpy.concatenate, or train with Keras' own fit under lockstep launch"
        )
    array = np.asarray(keras.ops.convert_to_numpy(value) if keras.ops.is_tensor(value) else value)
    if array.ndim == 0 or array.dtype.kind not in "buif":
        raise DataError(f"{what} is no array of numbers: its type is {array.dtype}, its shape {array.shape}")
    return array


def _as_pair(x: Any, y: Any, what: str) -> _Pair:
    inputs = _as_array(x, f"x of {what}")
    targets = None if y is None else _as_array(y, f"y of {what}")
    if targets is not None and len(inputs) != len(targets):
        raise DataError(f"x of {what} has {len(inputs)} examples, y has {len(targets)}; give one target per example")
    if len(inputs) == 0:
        raise DataError(f"{what} holds no examples")
    return _Pair(inputs, targets)


def _require_compiled(model: Any) -> None:
    if not isinstance(model, keras.Model):
        raise UsageError(f"model is of type {type(model).__name__}; give a keras.Model")
    if not getattr(model, "compiled", False):
        raise UsageError("the model is not compiled; call model.compile(optimizer, loss) first")


def _build(model: Any, data: _Pair) -> None:
    if not model.built:
        model.build((None, *data.x.shape[1:]))
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and not optimizer.built:
        optimizer.build(model.trainable_variables)


def _write_model(job: Job, model: Any) -> str:
    path = str(job.link("model.keras", job.memory_file("model")))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what Keras cannot save, the native engine does not know
        model.save(path)
    return path


def _keep_start(directory: Path, resume: bool, model: Any, path: str, seed: int) -> tuple[str, int]:
    """Return the model and seed with which a training began: kept ones, or those given, which are kept."""
    kept, facts = directory / _START_MODEL, directory / _START_FACTS
    shapes = [list(weights.shape) for weights in model.weights]
    try:
        if resume and facts.exists():
            start = json.loads(facts.read_text())
            if start["shapes"] != shapes:
                raise UsageError(f"{directory} holds backups of another model; name another backup_dir, or remove it")
            return str(kept), start["seed"]
        directory.mkdir(parents=True, exist_ok=True)
        facts.unlink(missing_ok=True)
        shutil.copyfile(path, kept)
        facts.write_text(json.dumps({"seed": seed, "shapes": shapes}))  # last: it says that the model is whole
    except (OSError, json.JSONDecodeError, KeyError) as error:
        raise IoError(f"cannot use the backup_dir {directory}: {error}") from error
    return str(kept), seed


def _forget_start(directory: Path) -> None:
    for name in (_START_FACTS, _START_MODEL):
        (directory / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # it holds files of others, or is not ours to remove
        directory.rmdir()


def _write(job: Job, data: _Pair, as_bytes: bool) -> Message:
    described = {"x": job.memory_file("x").write(data.x, "uint8" if as_bytes else "float32"), "y": None}
    if data.y is None:
        return described
    is_class = data.y.dtype.kind in "ui" and data.y.size == len(data.y)
    described["y"] = job.memory_file("y").write(data.y, "int32" if is_class else "float32")
    return described


def _worker_command(job: Path, arguments: _Arguments, seed: int, as_bytes: bool) -> list[str]:
    command = [find_command(), "worker", "--job", str(job), "--seed", str(seed)]
    command += ["--global-batch-size", str(arguments.batch_size), "--verbose", "0", "--collective-timeout", "0"]
    return command + (["--input-scale", "1"] if as_bytes else [])  # Keras uses bytes as they are


def _infer(job: Job, model: Any, data: _Pair, arguments: _Arguments, what: Message) -> Message:
    as_bytes = data.x.dtype == np.uint8
    described = {"model": _write_model(job, model), "data": _write(job, data, as_bytes), "temporary": str(job.folder)}
    job.start(arguments.workers, _worker_command(job.describe(what | described), arguments, 0, as_bytes))
    result: Message | None = None
    for message in job.messages():
        if message["event"] == "result":
            result = message
    if result is None:
        raise job.error()
    return result


def _native_problem(model: Any) -> str | None:
    """Return what keeps the native engine from training a compiled model."""
    _require_compiled(model)
    if not model.built:
        raise UsageError("the model is not built, since it does not know the shape of its inputs; give it an Input")
    with Job() as job:
        path = job.folder / "model.keras"
        try:
            _write_model(job, model)
        except Exception as unsaved:  # Keras says in many ways what it cannot save
            return f"Keras cannot save it: {unsaved}"
        command = [find_command(), "worker", "--job", str(job.describe({"kind": "check", "model": str(path)}))]
        code, output = job.run(command)
    if code == 0:
        return None
    error = error_of(code, output, "")
    if code not in _WRONG_MODEL:
        raise error
    return re.sub(re.escape(str(path)) + r"(:[\w.]+)?: ", "", str(error)).replace(str(path), "the model")


def _beyond_native(model: Any, x: Any, y: Any, validation: Any, class_weight: Any, sample_weight: Any) -> str | None:
    """Return what in a training, apart from the model, only the Keras engine takes."""
    if class_weight is not None or sample_weight is not None:
        return "it does not take class_weight and sample_weight"
    if y is None:
        return "it needs targets"
    if any(_holds_arrays(value) for value in (x, y)):
        return "it takes models of one input and one output"
    if isinstance(validation, (tuple, list)) and (len(validation) != 2 or any(map(_holds_arrays, validation))):
        return "it takes validation data of one input and one output"
    if not model.built:
        return "the model is not built before it sees data"
    if type(model).train_step is not keras.Model.train_step:
        return "the model has a train_step of its own"
    return None


def _holds_arrays(value: Any) -> bool:
    return isinstance(value, (list, tuple, dict)) and any(hasattr(each, "shape") for each in value)


def _choose(model: Any, engine: str, problem: str | None) -> str:
    if engine not in _ENGINES:
        raise UsageError(f"engine is {engine!r}; it must be 'auto', 'native' or 'keras'")
    if engine == "keras":
        return engine
    problem = problem or _native_problem(model)
    if problem is None:
        return "native"
    if engine == "native":
        raise UsageError(f"the native engine does not take this training: {problem}")
    print(f"Lockstep: the Keras engine trains this model, because of the native engine: {problem}", flush=True)
    return "keras"
