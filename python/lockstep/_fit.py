"""`fit`: trains a caller's Keras model on workers that this process starts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from lockstep import _keras_engine, _start
from lockstep._arguments import (
    Arguments,
    as_source,
    build,
    limited,
    refuse_beside_source,
    require_whole,
    worker_command,
)
from lockstep._caller import (
    Training,
    check_callbacks,
    describe,
    load_state,
    looks_at_weights,
    waits_for_batches,
)  # fmt: skip
from lockstep._engine_choice import (
    beyond_32_bits,
    beyond_collecting,
    beyond_native,
    choose,
    holds_arrays,
    needs_targets,
    require_compiled,
    require_own_optimizer,
    tell_of_changed_options,
    tell_of_old_metrics,
    write_model,
)
from lockstep._examples import as_examples, as_validation, collect, find_bytes, write_examples
from lockstep._job import Job, Message
from lockstep._native import UsageError
from lockstep._passes import AllPasses, Passes
from lockstep._sources import examples_of
from lockstep._transfer import lost_in_file

# In backup_dir: the model that a training began with, so that one made anew goes on with it.


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
    steps_per_epoch: int | None = None,
    validation_steps: int | None = None,
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
        their names. The Keras engine also takes `x` alone. Or `x` alone gives batches (x,), (x, y) or
        (x, y, sample_weight): a Python generator, a `keras.utils.PyDataset`, a `tf.data.Dataset` or a torch
        ``DataLoader``. This process reads it anew in each epoch.
    epochs
        Passes over the data.
    batch_size
        Examples in a step on all workers together; 32 if not given, as in Keras. Not for data in batches.
    workers
        Processes that train in lockstep. One that dies is replaced, and training goes on from the last backup.
    validation_data
        A pair (x, y), or (x, y, sample_weight), or data in batches, evaluated after every epoch.
    validation_split
        Fraction of the data, at its end, to evaluate on instead of training on it.
    callbacks
        Keras' and your own. They run in this process, after each epoch with the weights of that time.
    class_weight, sample_weight
        As in Keras: the factor of a class, by its index, or one for each example. Not both.
    shuffle
        Whether every epoch has an order of its own; of data in batches, a PyDataset's batches, as in Keras.
    initial_epoch
        Index of the first epoch, as in Keras: ``epochs`` is the index after the last.
    validation_freq
        Validate after every so many epochs. Keras' list of epochs is not taken.
    steps_per_epoch, validation_steps
        Of data in batches: how many make an epoch, or a validation. A generator needs them.
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
        Go on with the training that was interrupted in `backup_dir`, if there is one. The history has its epochs too.

    Raises
    ------
    UsageError
        An argument is wrong, or `engine` is "native" and does not train this model.
    DataError
        The data does not fit the model, or a backup is damaged.
    IoError
        A backup cannot be written or read.
    PeerError
        Workers die again and again, or another training uses `backup_dir`.
    """
    callbacks = list(callbacks or [])
    check_callbacks(callbacks)
    arguments = Arguments(epochs, 32 if batch_size is None else batch_size, workers)
    epochs = limited(epochs)
    if not 0 <= validation_split < 1:
        raise UsageError(f"validation_split is {validation_split}; it must be at least 0 and less than 1")
    validation_split = float(validation_split)
    if resume and backup_dir is None:
        raise UsageError("resume=True needs backup_dir, where the interrupted training left its backups")
    if backup_dir is not None and not str(backup_dir):
        raise UsageError("backup_dir is empty; name a directory, or leave it out")
    if seed is not None and (
        isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**31
    ):
        raise UsageError(f"seed is {seed!r}; it must be a whole number from 0 to {2**31 - 1}")
    require_whole("initial_epoch", initial_epoch, 0)
    require_whole("validation_freq", validation_freq, 1)
    _check_class_weight(class_weight)
    if class_weight is not None and sample_weight is not None:
        raise UsageError("class_weight and sample_weight are both given; multiply them, and give sample_weight")
    require_compiled(model)
    tell_of_old_metrics(model)
    tell_of_changed_options(model)
    require_own_optimizer(model)
    drawn = int(np.random.randint(2**31)) if seed is None else int(seed)
    source = as_source(
        x, "the data", steps_per_epoch, "steps_per_epoch",
        passes=epochs - int(initial_epoch), shuffle_seed=drawn if shuffle else None, class_weight=class_weight,
    )  # fmt: skip
    validation_source = as_source(
        validation_data, "the validation data", validation_steps, "validation_steps", passes=epochs, validates=True
    )
    if source is None:
        if y is None and needs_targets(model) and (hasattr(x, "shape") or holds_arrays(x)):
            raise UsageError("y is missing; the model's loss compares its outputs with targets")
    else:
        refuse_beside_source(
            y=y, sample_weight=sample_weight, batch_size=batch_size, validation_split=validation_split or None
        )
        arguments.batch_size = examples_of(source.first)
    sources = [each for each in (source, validation_source) if each is not None]
    unpack = keras.utils.unpack_x_y_sample_weight
    _, targets, weights = (x, y, sample_weight) if source is None else unpack(source.first)
    checked = validation_data if validation_source is None else unpack(validation_source.first)
    problem = beyond_native(model, targets, checked, weights)
    if source is None:
        given = validation_data if isinstance(validation_data, (tuple, list)) else ()
        problem = problem or beyond_32_bits(x, y, sample_weight, *given)
    problem = next(filter(None, [problem, *map(beyond_collecting, sources)]), None)
    chosen = choose(model, engine, problem)
    verbose = 1 if verbose == "auto" else int(verbose)
    directory = None if backup_dir is None else Path(backup_dir).absolute()
    if chosen == "keras":
        return _keras_engine.fit(
            model,
            source or (x, y, sample_weight),
            validation_source or validation_data,
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
    data = as_examples(x, y, "the data", sample_weight) if source is None else collect(source, equal_batches=True)
    validation = None
    if validation_data is not None:
        validation = as_validation(validation_data) if validation_source is None else collect(validation_source)
    build(model, data)
    _build_optimizer(model)
    with Job() as job, _start.owned(directory) as owned:
        state = job.memory_file("state")
        both = [data] if validation is None else [data, validation]
        as_bytes = find_bytes(both)
        count = len(data) if validation is not None else math.floor(len(data) * (1 - validation_split))
        training = Training(model, callbacks, epochs, math.ceil(count / arguments.batch_size), verbose, "native")
        begun, facts = _start.take(
            directory, resume, model, (seed, drawn), data.facts() if source is None else source.describe(),
            engine="native", batch_size=arguments.batch_size, shuffle=bool(shuffle), class_weight=class_weight,
            validation_split=validation_split, initial_epoch=int(initial_epoch), validation_freq=int(validation_freq),
        )  # fmt: skip
        training.begin(owned, begun is not None)  # before the model is written: callbacks may change it now
        lost = lost_in_file(model)
        if lost is not None:
            raise UsageError(f"{lost}, since a callback's on_train_begin; set it before lockstep.fit")
        path = write_model(job, model)
        owned.keep(facts if begun is None else None, Path(path))
        written = write_examples(job, data, as_bytes)
        written_validation = None if validation is None else write_examples(job, validation, as_bytes)
        passes: list[Passes] = []
        if source is not None:
            passes.append(Passes(source, data, written, trains=True))
            class_weight = None  # the examples have weights
        if validation_source is not None and validation is not None and written_validation is not None:
            passes.append(
                Passes(validation_source, validation, written_validation, trains=False, every=int(validation_freq))
            )
        description: Message = {
            "kind": "fit",
            "model": str(owned.model() or path),
            "data": written | {"refilled": source is not None},
            "validation": written_validation and written_validation | {"refilled": validation_source is not None},
            "validation_split": 0.0 if validation is not None else validation_split,
            "state": state.descriptor,
            "callbacks": describe(callbacks),
            "waits_for_batches": waits_for_batches(callbacks),
            "shows_weights": looks_at_weights(callbacks),
            "shuffle": shuffle and source is None,
            "initial_epoch": int(initial_epoch),
            "validation_freq": int(validation_freq),
            "class_weight": sorted((int(index), float(factor)) for index, factor in (class_weight or {}).items()),
            "temporary": str(job.folder),
        }
        examples = max(len(each) for each in both)
        chosen_seed = drawn if begun is None else begun
        command = worker_command(job.describe(description), arguments, chosen_seed, bool(as_bytes), examples)
        command += ["--epochs", str(epochs), "--backup-dir", str(directory or job.folder / "backup")]
        command += ["--resume", "auto" if resume else "never"]
        command += ["--deterministic"]  # else the parallelism would follow the clock, and the bits with it
        job.start(workers, command, owned.locks)
        training.run(job, lambda: load_state(model, job, state), AllPasses(passes))
        job.end()
        owned.forget()
    return model.history


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


def _build_optimizer(model: Any) -> None:
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
