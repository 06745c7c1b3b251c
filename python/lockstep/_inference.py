"""`evaluate` and `predict`: a caller's Keras model on workers that this process starts."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np

from lockstep import _keras_inference
from lockstep._arguments import Arguments, as_source, build, refuse_beside_source, worker_command
from lockstep._engine_choice import (
    inference_engine,
    require_compiled,
    tell_of_old_metrics,
    with_remedy,
    write_model,
)  # fmt: skip
from lockstep._examples import Examples, as_examples, concatenate, find_bytes, write_examples
from lockstep._job import Job, Message
from lockstep._sources import examples_of


def evaluate(
    model: Any,
    x: Any,
    y: Any = None,
    *,
    batch_size: int | None = None,
    sample_weight: Any = None,
    workers: int = 1,
    steps: int | None = None,
    engine: str = "auto",
    verbose: Any = 0,
    return_dict: bool = False,
) -> Any:
    """Return a compiled model's loss and metrics, in the order of Keras' ``evaluate``.

    Parameters
    ----------
    model
        Compiled.
    x, y
        Arrays, or data in batches, as `fit` takes them. This process collects the batches first.
    batch_size
        Examples in a step on all workers together; 32 if not given, as in Keras. Not for data in batches.
    sample_weight
        As in Keras: one factor for each example.
    workers
        Processes that share the examples.
    steps
        Of data in batches: how many to evaluate on. Data that has no end needs it.
    engine
        "native", "keras", or "auto", as in `fit`.
    verbose
        Taken as Keras' argument is, but nothing is printed.
    return_dict
        Return a dict by the names of loss and metrics.
    """
    require_compiled(model)
    tell_of_old_metrics(model)
    arguments = Arguments(1, 32 if batch_size is None else batch_size, workers)
    source = as_source(x, "the data", steps, "steps")
    if source is not None:
        refuse_beside_source(y=y, sample_weight=sample_weight, batch_size=batch_size)
        arguments.batch_size = examples_of(source.first)
        x, y, sample_weight = concatenate(source)
    _build(model, x)
    if inference_engine(model, "evaluate", engine, x, y, sample_weight) == "keras":
        logs, values = _keras_inference.evaluate(model, (x, y, sample_weight), arguments)
        return logs if return_dict else values
    data = as_examples(x, y, "the data", sample_weight)
    with Job() as job:
        result = _infer(job, model, data, arguments, {"kind": "evaluate"})
    logs = {name: float(value) for name, value in result["logs"].items()}
    if return_dict:
        return logs
    if len(model.outputs) > 1:
        return _in_order_of_keras(model, logs, (x, y, sample_weight))
    # As Keras: by the names of the metrics, which a weighted one may share, then what is logged under other names.
    names = [name for name in result["names"] if name in logs]
    values = [logs[name] for name in names + sorted(set(logs) - set(names))]
    return values[0] if len(values) == 1 else values


def _in_order_of_keras(model: Any, logs: dict[str, float], data: Any) -> Any:
    """Return logs of several outputs as Keras' list, whose order follows the objects that it makes for a batch."""
    arrays = keras.tree.map_structure(lambda each: None if each is None else np.asarray(each), data)
    model._symbolic_build(data_batch=arrays)
    return model._flatten_metrics_in_order(logs)


def predict(
    model: Any,
    x: Any,
    *,
    batch_size: int | None = None,
    workers: int = 1,
    steps: int | None = None,
    engine: str = "auto",
    verbose: Any = 0,
) -> Any:
    """Return a model's outputs. Several outputs have the structure of the model's.

    Parameters
    ----------
    model
        Need not be compiled.
    x
        An array; of several inputs, a list, tuple or dict of arrays. Or data in batches, as `fit` takes it, whose
        targets are left out. This process collects the batches first.
    batch_size
        Examples in a step on all workers together; 32 if not given, as in Keras. Not for data in batches.
    workers
        Processes that share the examples.
    steps
        Of data in batches: how many to predict for. Data that has no end needs it.
    engine
        "native", "keras", or "auto", as in `fit`.
    verbose
        Taken as Keras' argument is, but nothing is printed.
    """
    arguments = Arguments(1, 32 if batch_size is None else batch_size, workers)
    source = as_source(x, "the data", steps, "steps")
    if source is not None:
        refuse_beside_source(batch_size=batch_size)
        arguments.batch_size = examples_of(source.first)
        x, _, _ = concatenate(source)
    _build(model, x)
    if inference_engine(model, "predict", engine, x) == "keras":
        return _keras_inference.predict(model, x, arguments)
    data = as_examples(x, None, "the data")
    with Job() as job:
        outputs = job.memory_file("outputs")
        result = _infer(job, model, data, arguments, {"kind": "predict", "outputs": outputs.descriptor})
        shapes = [tuple(shape) for shape in result["shapes"]]
        sizes = [math.prod(shape) for shape in shapes]
        ends = np.cumsum(sizes)
        all_outputs = np.split(outputs.read((sum(sizes),), "float32"), ends[:-1])
        arrays = [values.reshape(shape) for values, shape in zip(all_outputs, shapes, strict=True)]
        structure = getattr(model, "_outputs_struct", None)
        is_plain = len(arrays) == 1 and not isinstance(structure, dict)
        return arrays[0] if is_plain else keras.tree.pack_sequence_as(structure, arrays)


def _build(model: Any, x: Any) -> None:
    """Build a chain of layers by the shape of its input; other models say their inputs, or are built by a worker."""
    if isinstance(model, keras.Sequential) and not model.built:
        build(model, as_examples(x, None, "the data"))


def _infer(job: Job, model: Any, data: Examples, arguments: Arguments, what: Message) -> Message:
    as_bytes = find_bytes([data])
    described = {
        "model": write_model(job, model),
        "data": write_examples(job, data, as_bytes),
        "temporary": str(job.folder),
    }
    command = worker_command(job.describe(what | described), arguments, 0, bool(as_bytes), len(data))
    job.start(arguments.workers, command)
    result = job.result()
    if result is None:
        error = job.error()
        raise type(error)(with_remedy(str(error), f"; use Keras' own {what['kind']}"))
    return result
