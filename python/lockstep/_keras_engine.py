"""`lockstep.fit` with the Keras engine: workers of this host run Keras' own ``fit`` in the caller's backend."""

from __future__ import annotations

import math
import os
import pickle
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras

from lockstep import _backup, _start, _transfer
from lockstep._arrays import as_array
from lockstep._caller import Training, looks_at_weights, waits_for_batches
from lockstep._division import refuse_indivisible_losses, refuse_other_reductions
from lockstep._engine_choice import jax_has_64_bits
from lockstep._job import Job, variables_of_templates
from lockstep._native import DataError, DirectoryLock, IoError, UsageError
from lockstep._sources import Source
from lockstep._state import assign, to_array, variables_of
from lockstep._stream import Stream, Streams


@dataclass(frozen=True)
class SharedArray:
    """An array in a memory file that workers inherit."""

    descriptor: int
    kind: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class KerasSettings:
    """Keras' settings in the caller's process, which hold in the workers too."""

    floatx: str
    epsilon: float
    image_data_format: str
    dtype_policy: str
    has_64_bits: bool  # of JAX


@dataclass(frozen=True)
class FitJob:
    """What the workers do.

    `data` and `validation` are tuples (x, y, sample_weight) of containers of arrays, or a `Streamed`.
    """

    model: str
    start: str  # the file of the variables with which training begins
    data: Any
    validation: Any
    validation_freq: int
    epochs: int
    initial_epoch: int
    batch_size: int
    shuffle: bool
    seed: int
    class_weight: dict[int, float] | None
    backup_dir: str
    save_freq: str | int
    state: int  # a memory file's descriptor, in which rank 0 shows the variables
    temporary: str
    waits_for_batches: bool
    shows_weights: bool
    settings: KerasSettings


def fit(
    model: Any,
    data: Any,
    validation_data: Any,
    *,
    epochs: int,
    batch_size: int,
    workers: int,
    validation_split: float,
    callbacks: Sequence[Any],
    class_weight: dict[int, float] | None,
    shuffle: bool,
    initial_epoch: int,
    validation_freq: int,
    verbose: int,
    seed: int | None,
    drawn_seed: int,
    backup_dir: Path | None,
    resume: bool,
) -> Any:
    """Train a compiled model in place.

    The arguments are those of `lockstep.fit`; `data` is (x, y, weights) or a `Source`, and `drawn_seed` the one to
    begin with.
    """
    _refuse_other_optimizers(model)
    given, count = (data, 0) if isinstance(data, Source) else as_checked_data(data, "the data")
    validation = validation_data
    if validation_data is not None and not isinstance(validation_data, Source):
        if not isinstance(validation_data, (tuple, list)) or len(validation_data) not in (2, 3):
            raise UsageError("validation_data must be a pair of arrays (x, y), or (x, y, sample_weight)")
        validation, _ = as_checked_data(validation_data, "the validation data")
    arrays = given
    if not isinstance(given, Source):
        if validation is None and validation_split:
            arrays, validation, count = _split(given, count, validation_split)
        if batch_size < workers:
            raise UsageError(f"batch_size is {batch_size}, less than one example for {workers} workers")
    if workers > 1:
        _refuse_synchronized(model)
        refuse_other_reductions(model)
    build(model, keras.tree.map_structure(lambda array: array[:1], _first_batch(arrays)))
    if workers > 1:
        refuse_indivisible_losses(model, _first_batch(arrays), workers, class_weight)
    with Job() as job, _start.owned(backup_dir) as owned:
        begun, facts = _start.take(
            backup_dir, resume, model, (seed, drawn_seed), [_describe(each) for each in (given, validation)],
            engine="keras", batch_size=batch_size, shuffle=bool(shuffle), class_weight=class_weight,
            validation_split=validation_split, initial_epoch=initial_epoch, validation_freq=validation_freq,
        )  # fmt: skip
        steps = given.steps if isinstance(given, Source) else math.ceil(count / batch_size)
        training = Training(model, callbacks, epochs, steps, verbose, "keras")
        state = job.memory_file("state")
        training.begin(owned, begun is not None)  # before the model is written: callbacks may change it now
        backups = backup_dir or (job.folder / "backup").absolute()
        try:
            (job.folder / "model").write_bytes(_transfer.dump(model))
            start = _backup.Backup(0, 0, 0, 0, {}, {}, [to_array(variable) for variable in variables_of(model)])
            (job.folder / "start").write_bytes(start.to_bytes())
        except OSError as error:
            raise IoError(f"cannot write for the workers: {error}") from error
        owned.keep(facts if begun is None else None)
        streams: dict[str, Stream] = {}
        if isinstance(given, Source):
            streams["training"] = Stream(job, given, workers)
        if isinstance(validation, Source):
            streams["validation"] = Stream(job, validation, workers, keeps_all=True)
        shown = {
            name: streams[name].describe() if name in streams else None if each is None else share(job, each)
            for name, each in (("training", arrays), ("validation", validation))
        }
        described = FitJob(
            model=str(job.folder / "model"),
            start=str(job.folder / "start"),
            data=shown["training"],
            validation=shown["validation"],
            validation_freq=validation_freq,
            epochs=epochs,
            initial_epoch=initial_epoch,
            batch_size=batch_size,
            shuffle=shuffle,
            seed=drawn_seed if begun is None else begun,
            class_weight=None if "training" in streams else class_weight,
            backup_dir=str(backups),
            save_freq=streams["training"].save_freq if "training" in streams else "epoch",
            state=state.descriptor,
            temporary=str(job.folder),
            waits_for_batches=waits_for_batches(callbacks),
            shows_weights=looks_at_weights(callbacks),
            settings=settings(),
        )
        start_workers(job, workers, described, owned.locks)
        training.run(job, lambda: _load_state(model, Path(state.path)), Streams(streams))
        job.end()
        if all(_backup.is_finite(to_array(variable)) for variable in variables_of(model)):
            owned.forget()
        elif backup_dir:
            told = f"the model holds NaN or infinity; the backup before them stays in {backup_dir}"
            print(f"warning: {told}", file=sys.stderr)
    return model.history


def start_workers(job: Job, workers: int, described: Any, locks: Sequence[DirectoryLock] = ()) -> None:
    """Start the workers of a job, which Keras' engine runs."""
    path = job.folder / "job"
    path.write_bytes(pickle.dumps(described))
    variables = {
        "KERAS_BACKEND": keras.backend.backend(),
        "PYTHONSAFEPATH": "1",  # else modules of the working directory would come before the caller's
        "PYTHONPATH": os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path),
    }
    own = [f"{name}={value}" for name, value in variables_of_templates().items()]  # not for the launcher
    command = ["env", *own, sys.executable, "-m", "lockstep._keras_worker", "--job", str(path)]
    job.start(workers, command, locks, variables)


def settings() -> KerasSettings:
    """Return Keras' settings in this process."""
    return KerasSettings(
        floatx=keras.config.floatx(),
        epsilon=keras.config.epsilon(),
        image_data_format=keras.config.image_data_format(),
        dtype_policy=keras.config.dtype_policy().name,
        has_64_bits=jax_has_64_bits(),
    )


def build(model: Any, batch: Any) -> None:
    """Make the variables of a model and its optimizer, as the first step of Keras' ``fit`` does."""
    build_layers(model, batch)
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)


def build_layers(model: Any, batch: Any) -> None:
    """Make the variables of a model."""
    if not all(layer.built for layer in model._flatten_layers()):
        try:
            model._symbolic_build(data_batch=batch)
        except Exception:  # a model without `call` builds its layers in train_step, if they are not built
            if not model.trainable_variables:
                raise


def _refuse_other_optimizers(model: Any) -> None:
    if getattr(model, "optimizer", None) is None:
        raise UsageError("the model is compiled without an optimizer; name one in model.compile")
    for name, value in vars(model).items():
        if isinstance(value, keras.optimizers.Optimizer) and value is not model.optimizer:
            raise UsageError(
                f"the model has another optimizer, {name}; lockstep.fit takes models of one, so train with Keras' own "
                "fit under lockstep launch and wrap each in lockstep.DistributedOptimizer"
            )


def _refuse_synchronized(model: Any) -> None:
    """Refuse layers that would see one worker's slice of the batch."""
    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.BatchNormalization) and layer.synchronized:
            raise UsageError(
                f"the layer {layer.name!r} has synchronized=True, which takes the native engine: the Keras engine's "
                "workers exchange no statistics; leave the option out, or train with one worker"
            )


def _split(arrays: Any, count: int, validation_split: float) -> tuple[Any, Any, int]:
    """Return arrays to train on, those to validate on, and the number of examples of the former."""
    kept = math.floor(count * (1 - validation_split))
    if not 0 < kept < count:
        raise UsageError(f"validation_split {validation_split} of {count} examples leaves one part empty")
    train, rest = (keras.tree.map_structure(lambda array, part=part: array[part], arrays)
                   for part in (slice(kept), slice(kept, None)))  # fmt: skip
    return train, rest, kept


def _first_batch(data: Any) -> Any:
    """Return the first examples."""
    return data.first if isinstance(data, Source) else data


def _describe(data: Any) -> Any:
    """Return what decides data, as arrays."""
    return data.describe() if isinstance(data, Source) else data


def as_checked_data(data: Any, what: str) -> tuple[Any, int]:
    """Return (x,), (x, y) or (x, y, weights) with arrays of equal length as leaves, and that length."""
    x, y, weights = (*data, None, None)[:3]
    if y is None and weights is not None:
        raise UsageError(f"{what} has sample weights but no targets")
    given = (x,) if y is None else (x, y) if weights is None else (x, y, weights)
    arrays = tuple(
        _as_arrays(value, f"{name} of {what}") for name, value in zip(("x", "y", "weights"), given, strict=False)
    )
    return arrays, _length(arrays, what)


def _as_arrays(value: Any, what: str) -> Any:
    if isinstance(value, dict):
        return {key: _as_arrays(each, f"{what}[{key!r}]") for key, each in value.items()}
    if isinstance(value, (list, tuple)) and any(hasattr(each, "shape") for each in value):
        return tuple(_as_arrays(each, f"{what}[{index}]") for index, each in enumerate(value))
    return as_array(value, what)


def _length(arrays: Any, what: str) -> int:
    lengths = [len(array) for array in keras.tree.flatten(arrays)]
    if len(set(lengths)) != 1:
        raise DataError(
            f"the arrays of {what} have {', '.join(map(str, lengths))} examples; give arrays of equal length"
        )
    if lengths[0] == 0:
        raise DataError(f"{what} holds no examples")
    return lengths[0]


def share(job: Job, arrays: Any) -> Any:
    """Copy arrays to memory files, and return what workers need to map them."""

    def share(array: Any) -> SharedArray:
        kind = keras.config.floatx() if array.dtype.kind == "f" else array.dtype.name  # as Keras converts arrays
        described = job.memory_file("data").write(array, kind)
        return SharedArray(described["descriptor"], kind, array.shape)

    return keras.tree.map_structure(share, arrays)


def _load_state(model: Any, path: Path) -> None:
    assign(variables_of(model), _backup.Backup.from_bytes(path.read_bytes()).variables)
