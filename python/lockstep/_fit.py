"""`check`, `fit`, `evaluate` and `predict`: a caller's Keras model on workers that this process starts."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from lockstep import _keras_engine, _start
from lockstep._caller import (
    Training,
    check_callbacks,
    describe,
    load_state,
    looks_at_weights,
    waits_for_batches,
)  # fmt: skip
from lockstep._engine_choice import (
    beyond_native,
    choose,
    holds_arrays,
    needs_targets,
    other_epsilon,
    require_compiled,
    require_own_optimizer,
    with_remedy,
    write_model,
)
from lockstep._examples import Examples, as_examples, as_validation, find_bytes, write_examples
from lockstep._job import Job, Message
from lockstep._native import IoError, UsageError
from lockstep._transfer import lost_in_file, replaced_in_file
from lockstep._world import find_command

# In backup_dir: the model that a training began with, so that one made anew goes on with it.
_START_MODEL = "start.keras"


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
    initial_epoch: int = 0,
    validation_freq: int = 1,
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
        Arrays of equal length. Of a model with several inputs or outputs: a list or tuple in their order, or a dict by
        their names. The Keras engine also takes `x` alone.
    epochs
        Passes over the data.
    batch_size
        Examples in a step on all workers together; 32 if not given, as in Keras.
    workers
        Processes that train in lockstep. One that dies is replaced, and training goes on from the last backup.
    validation_data
        A pair (x, y), or (x, y, sample_weight), evaluated after every epoch.
    validation_split
        Fraction of the data, at its end, to evaluate on instead of training on it.
    callbacks
        Keras' and your own. They run in this process, after each epoch with the weights of that time.
    class_weight, sample_weight
        As in Keras: the factor of a class, by its index, or one for each example. Not both.
    shuffle
        Whether every epoch has an order of its own.
    initial_epoch
        Index of the first epoch, as in Keras: ``epochs`` is the index after the last.
    validation_freq
        Validate after every so many epochs. Keras' list of epochs is not taken.
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
    if backup_dir is not None and not str(backup_dir):
        raise UsageError("backup_dir is empty; name a directory, or leave it out")
    if seed is not None and (
        isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**31
    ):
        raise UsageError(f"seed is {seed!r}; it must be a whole number from 0 to {2**31 - 1}")
    _require_whole("initial_epoch", initial_epoch, 0)
    _require_whole("validation_freq", validation_freq, 1)
    _check_class_weight(class_weight)
    if class_weight is not None and sample_weight is not None:
        raise UsageError("class_weight and sample_weight are both given; multiply them, and give sample_weight")
    require_compiled(model)
    require_own_optimizer(model)
    if y is None and needs_targets(model) and (hasattr(x, "shape") or holds_arrays(x)):
        raise UsageError("y is missing; the model's loss compares its outputs with targets")
    chosen = choose(model, engine, beyond_native(model, y, validation_data, sample_weight))
    verbose = 1 if verbose == "auto" else int(verbose)
    drawn = int(np.random.randint(2**31)) if seed is None else int(seed)
    directory = None if backup_dir is None else Path(backup_dir).absolute()
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
            initial_epoch=int(initial_epoch),
            validation_freq=int(validation_freq),
            verbose=verbose,
            seed=seed,
            drawn_seed=drawn,
            backup_dir=directory,
            resume=resume,
        )
    data = as_examples(x, y, "the data", sample_weight)
    validation = None if validation_data is None else as_validation(validation_data)
    _build(model, data)
    _build_optimizer(model)
    with Job() as job, contextlib.nullcontext() if directory is None else _start.owned(directory):
        state = job.memory_file("state")
        both = [data] if validation is None else [data, validation]
        as_bytes = find_bytes(both)
        count = len(data) if validation is not None else math.floor(len(data) * (1 - validation_split))
        training = Training(model, callbacks, epochs, math.ceil(count / arguments.batch_size), verbose)
        begun, facts = _start.take(
            directory, resume, model, (seed, drawn), data.facts(),
            engine="native", batch_size=arguments.batch_size, shuffle=bool(shuffle), class_weight=class_weight,
            validation_split=validation_split, initial_epoch=int(initial_epoch), validation_freq=int(validation_freq),
        )  # fmt: skip
        training.begin()  # before the model is written: callbacks may change it now
        lost = lost_in_file(model)
        if lost is not None:
            raise UsageError(f"{lost}, since a callback's on_train_begin; set it before lockstep.fit")
        path = write_model(job, model)
        if directory is not None:
            path = _keep_start(directory, path, facts if begun is None else None)
        description: Message = {
            "kind": "fit",
            "model": path,
            "data": write_examples(job, data, as_bytes),
            "validation": None if validation is None else write_examples(job, validation, as_bytes),
            "validation_split": 0.0 if validation is not None else validation_split,
            "state": state.descriptor,
            "callbacks": describe(callbacks),
            "waits_for_batches": waits_for_batches(callbacks),
            "shows_weights": looks_at_weights(callbacks),
            "shuffle": shuffle,
            "initial_epoch": int(initial_epoch),
            "validation_freq": int(validation_freq),
            "class_weight": sorted((int(index), float(factor)) for index, factor in (class_weight or {}).items()),
            "temporary": str(job.folder),
        }
        examples = max(len(each) for each in both)
        chosen_seed = drawn if begun is None else begun
        command = _worker_command(job.describe(description), arguments, chosen_seed, bool(as_bytes), examples)
        command += ["--epochs", str(epochs), "--backup-dir", str(directory or job.folder / "backup")]
        command += ["--resume", "auto" if resume else "never"]
        command += ["--deterministic"]  # else the parallelism would follow the clock, and the bits with it
        job.start(workers, command)
        training.run(job, lambda: load_state(model, job, state))
        if directory is not None:
            _start.forget(directory, _START_MODEL)
    return model.history


def evaluate(
    model: Any,
    x: Any,
    y: Any = None,
    *,
    batch_size: int | None = None,
    sample_weight: Any = None,
    workers: int = 1,
    return_dict: bool = False,
) -> Any:
    """Return a compiled model's loss and metrics on arrays, in the order of Keras' ``evaluate``.

    `sample_weight`, as in Keras, is one factor for each example.
    """
    arguments = _Arguments(1, 32 if batch_size is None else batch_size, workers)
    data = as_examples(x, y, "the data", sample_weight)
    require_compiled(model)
    _require_epsilon("evaluate")
    lost = lost_in_file(model, trains=False)
    if lost is not None:
        raise UsageError(f"{lost}, and the workers read that file; evaluate with Keras' own evaluate")
    _build(model, data)
    with Job() as job:
        result = _infer(job, model, data, arguments, {"kind": "evaluate"})
    logs = {name: float(value) for name, value in result["logs"].items()}
    if return_dict:
        return logs
    # As Keras: by the names of the metrics, which a weighted one may share, then what is logged under other names.
    names = [name for name in result["names"] if name in logs]
    values = [logs[name] for name in names + sorted(set(logs) - set(names))]
    return values[0] if len(values) == 1 else values


def predict(model: Any, x: Any, *, batch_size: int | None = None, workers: int = 1) -> Any:
    """Return a model's outputs for an array of inputs; of several inputs, a list, tuple or dict of arrays.

    Several outputs have the structure of the model's.
    """
    arguments = _Arguments(1, 32 if batch_size is None else batch_size, workers)
    data = as_examples(x, None, "the data")
    _require_epsilon("predict")
    replaced = replaced_in_file(model, trains=False)
    if replaced is not None:
        raise UsageError(f"{replaced}, and the workers read that file; predict with Keras' own predict")
    _build(model, data)
    with Job() as job:
        outputs = job.memory_file("outputs")
        result = _infer(job, model, data, arguments, {"kind": "predict", "outputs": outputs.descriptor})
        shapes = [tuple(shape) for shape in result["shapes"]]
        sizes = [math.prod(shape) for shape in shapes]
        ends = np.cumsum(sizes)
        all_outputs = np.split(outputs.read((sum(sizes),), "float32"), ends[:-1])
        arrays = [values.reshape(shape) for values, shape in zip(all_outputs, shapes, strict=True)]
        return arrays[0] if len(arrays) == 1 else keras.tree.pack_sequence_as(model._outputs_struct, arrays)


def _require_epsilon(what: str) -> None:
    problem = other_epsilon()
    if problem is not None:
        raise UsageError(f"the native engine does not take this: {problem}; {what} with Keras' own {what}")


def _require_whole(name: str, value: Any, least: int) -> None:
    """Raise `UsageError` unless an argument is a whole number, and at least `least`."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least:
        raise UsageError(f"{name} is {value!r}; it must be a whole number from {least}")


class _Arguments:
    """What all jobs check before anything is started."""

    def __init__(self, epochs: int, batch_size: int, workers: int) -> None:
        for name, value in (("epochs", epochs), ("batch_size", batch_size), ("workers", workers)):
            _require_whole(name, value, 1)
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


def _check_class_weight(class_weight: Any) -> None:
    if class_weight is None:
        return
    if not isinstance(class_weight, dict):
        raise UsageError(f"class_weight is of type {type(class_weight).__name__}; give a dict from class to factor")
    for index, factor in class_weight.items():
        if isinstance(index, bool) or not isinstance(index, (int, np.integer)):
            raise UsageError(f"class_weight has the class {index!r}; classes are whole numbers from 0")
        if not isinstance(factor, (int, float, np.number)) or not math.isfinite(factor):
            raise UsageError(f"class_weight[{index}] is {factor!r}; it must be a finite number")


def _build(model: Any, data: Examples) -> None:
    if not model.built:
        model.build((None, *data.x[0][1].shape[1:]))


def _build_optimizer(model: Any) -> None:
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)


def _keep_start(directory: Path, path: str, facts: dict[str, Any] | None) -> str:
    """Return the path of the model with which a training began. With facts it begins now, with the model in `path`."""
    kept = directory / _START_MODEL
    try:
        if facts is not None:
            _start.forget_facts(directory)
            shutil.copyfile(path, kept)
            _start.keep(directory, facts)  # last: it says that the model is whole
    except OSError as error:
        raise IoError(f"cannot use the backup_dir {directory}: {error}") from error
    return str(kept)


def _worker_command(job: Path, arguments: _Arguments, seed: int, as_bytes: bool, examples: int) -> list[str]:
    batch_size = min(arguments.batch_size, examples)  # the workers reserve memory for a whole batch
    command = [find_command(), "worker", "--job", str(job), "--seed", str(seed)]
    command += ["--global-batch-size", str(batch_size), "--verbose", "0", "--collective-timeout", "0"]
    return command + (["--input-scale", "1"] if as_bytes else [])  # Keras uses bytes as they are


def _infer(job: Job, model: Any, data: Examples, arguments: _Arguments, what: Message) -> Message:
    as_bytes = find_bytes([data])
    described = {
        "model": write_model(job, model),
        "data": write_examples(job, data, as_bytes),
        "temporary": str(job.folder),
    }
    command = _worker_command(job.describe(what | described), arguments, 0, bool(as_bytes), len(data))
    job.start(arguments.workers, command)
    result: Message | None = None
    for message in job.messages():
        if message["event"] == "result":
            result = message
    if result is None:
        error = job.error()
        raise type(error)(with_remedy(str(error), f"; use Keras' own {what['kind']}"))
    return result
