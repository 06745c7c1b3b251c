"""`lockstep.evaluate` and `lockstep.predict` with the Keras engine: workers run Keras' own methods."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np

from lockstep import _transfer
from lockstep._arguments import Arguments
from lockstep._arrays import numbers
from lockstep._division import refuse_indivisible_losses, refuse_other_reductions
from lockstep._job import Job, Message
from lockstep._keras_engine import (
    KerasSettings,
    as_checked_data,
    build_layers,
    settings,
    share,
    start_workers,
)
from lockstep._native import IoError
from lockstep._state import to_array, weights_of


@dataclass(frozen=True)
class InferenceJob:
    """What the workers do. `data` is a tuple (x, y, sample_weight) of containers of arrays."""

    kind: str
    model: str
    weights: str
    data: Any
    batch_size: int
    outputs: tuple[int, ...]  # a memory file's descriptor for each rank
    temporary: str
    settings: KerasSettings


def evaluate(model: Any, data: Any, arguments: Arguments) -> tuple[dict[str, Any], Any]:
    """Return loss and metrics by name, and as Keras' ``evaluate`` returns them."""
    if arguments.workers > 1:
        refuse_other_reductions(model)
    with Job() as job:
        result, _ = _infer(job, "evaluate", model, data, arguments)
    values = [numbers(value) for value in result["values"]]
    return {name: numbers(value) for name, value in result["logs"].items()}, values[0] if result["is_one"] else values


def predict(model: Any, x: Any, arguments: Arguments) -> Any:
    """Return a structure of outputs."""
    with Job() as job:
        _, outputs = _infer(job, "predict", model, (x, None), arguments)
        parts = [pickle.loads(Path(output.path).read_bytes()) for output in outputs]
    return keras.tree.map_structure(lambda *arrays: np.concatenate(arrays), *parts)


def _infer(job: Job, kind: str, model: Any, data: Any, arguments: Arguments) -> tuple[Message, list[Any]]:
    arrays, examples = as_checked_data(data, "the data")
    build_layers(model, keras.tree.map_structure(lambda array: array[:1], arrays))
    workers = min(arguments.workers, arguments.batch_size, examples)
    if kind == "evaluate" and workers > 1:
        refuse_indivisible_losses(model, arrays, workers, None, "test_step")
    outputs = [job.memory_file("outputs") for _ in range(workers)]
    try:
        (job.folder / "model").write_bytes(_transfer.dump(model))
        (job.folder / "weights").write_bytes(pickle.dumps([to_array(each) for each in weights_of(model)]))
    except OSError as error:
        raise IoError(
            f"cannot write the workers' files to {job.folder}: {error}; free space there, or set TMPDIR"
        ) from error
    described = InferenceJob(
        kind=kind,
        model=str(job.folder / "model"),
        weights=str(job.folder / "weights"),
        data=share(job, arrays),
        batch_size=arguments.batch_size,
        outputs=tuple(output.descriptor for output in outputs),
        temporary=str(job.folder),
        settings=settings(),
    )
    start_workers(job, workers, described)
    result = job.result()
    if result is None:
        raise job.error()
    return result, outputs
