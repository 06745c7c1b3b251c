"""The examples that a caller gives to `fit`, `evaluate` and `predict`: checked arrays, in memory that workers share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from lockstep._arrays import as_array
from lockstep._engine_choice import beyond_32_bits, holds_arrays
from lockstep._job import Job, Message
from lockstep._memory import write
from lockstep._native import DataError, UsageError
from lockstep._sources import Source, bytes_of, examples_of, max_collected_bytes

_Named = list[tuple[str, NDArray[Any]]]  # arrays, with names if the caller gave a dict


@dataclass(frozen=True)
class Examples:
    x: _Named  # by input
    y: _Named | None  # by output
    sample_weight: NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.x[0][1])

    def facts(self) -> list[Any]:
        """Return what decides the data."""
        return [*_as_given(self.x), *(_as_given(self.y or [])), self.sample_weight]


def _as_given(arrays: _Named) -> list[Any]:
    """Return arrays in an order that does not depend on that of a dict."""
    return [array for _, array in sorted(arrays, key=lambda each: each[0])]


def _as_arrays(value: Any, what: str) -> _Named:
    if not holds_arrays(value):
        return [("", as_array(value, what))]
    given = value.items() if isinstance(value, dict) else [("", each) for each in value]
    arrays = [(str(name), as_array(each, f"{name or 'an array'} of {what}")) for name, each in given]
    lengths = [len(array) for _, array in arrays]
    if len(set(lengths)) > 1:
        raise DataError(
            f"{what} is several arrays, one for each input or output of the model, but they have {lengths} examples; "
            "give all equally many, or one array of all examples (numpy.stack)"
        )
    return arrays


def as_validation(data: Any) -> Examples:
    if not isinstance(data, (tuple, list)) or len(data) not in (2, 3):
        raise UsageError("validation_data must be a pair of arrays (x, y), or (x, y, sample_weight)")
    return as_examples(data[0], data[1], "the validation data", *data[2:])


def as_examples(x: Any, y: Any, what: str, sample_weight: Any = None) -> Examples:
    inputs = _as_arrays(x, f"x of {what}")
    examples = len(inputs[0][1])
    targets = None if y is None else _as_arrays(y, f"y of {what}")
    if targets is not None and examples != len(targets[0][1]):
        raise DataError(f"x of {what} has {examples} examples, y has {len(targets[0][1])}; give one target per example")
    if examples == 0:
        raise DataError(f"{what} holds no examples")
    weights = None if sample_weight is None else as_array(sample_weight, f"sample_weight of {what}")
    if weights is not None and weights.shape != (examples,):
        raise DataError(
            f"sample_weight of {what} has the shape {weights.shape}; give one number for each of its {examples} "
            "examples"
        )
    return Examples(inputs, targets, weights)


def find_bytes(both: list[Examples]) -> set[str | int]:
    """Return the inputs, by name or place, whose arrays are bytes in all data."""
    are_bytes: dict[str | int, list[bool]] = {}
    for data in both:
        for place, (name, array) in enumerate(data.x):
            are_bytes.setdefault(name or place, []).append(array.dtype == np.uint8)
    return {which for which, each in are_bytes.items() if all(each)}


def collect(source: Source, equal_batches: bool = False) -> Examples:
    """Return a pass over a source as arrays. `equal_batches`: all but the last must have as many examples as the first.

    Raises DataError if they do not fit into a quarter of the machine's memory.
    """
    x, y, weights = concatenate(source, equal_batches)
    problem = beyond_32_bits(x, y, weights)
    if problem is not None:
        raise UsageError(f"{problem}, or use engine='keras' ({source.what})")
    return as_examples(x, y, source.what, weights)


def concatenate(source: Source, equal_batches: bool = False) -> tuple[Any, Any, Any]:
    """Return x, y and sample weights of a pass over a source; see `collect`."""
    batches: list[Any] = []
    total = 0
    limit = max_collected_bytes()
    while (batch := source.read()) is not None:
        if equal_batches and batches:
            first, last = examples_of(batches[0]), examples_of(batches[-1])
            if last != first or examples_of(batch) > first:
                raise DataError(
                    f"the batches of {source.what} have {first}, {last} and {examples_of(batch)} examples; the native "
                    "engine takes batches of equal length, except the last: use drop_remainder=True (tf.data) or "
                    "drop_last=True (DataLoader), or engine='keras'"
                )
        batches.append(batch)
        total += bytes_of(batch)
        if total > limit:
            raise DataError(
                f"{source.what} has more than {limit >> 20} MiB in a pass, a quarter of the memory; give "
                f"{source.steps_name} for a shorter one, or let lockstep.fit read it batch by batch with engine='keras'"
            )
    joined = keras.tree.map_structure(lambda *arrays: np.concatenate(arrays), *batches)
    unpacked: tuple[Any, Any, Any] = keras.utils.unpack_x_y_sample_weight(joined)
    return unpacked


def rewrite_examples(written: Message, data: Examples) -> None:
    """Replace the examples of `write_examples` by as many others of the same types and shapes."""
    weights = [] if data.sample_weight is None else [data.sample_weight]
    arrays = [array for _, array in [*data.x, *(data.y or [])]] + weights
    described = [*written["x"], *(written["y"] or []), *filter(None, [written["sample_weight"]])]
    for array, file in zip(arrays, described, strict=True):
        write(file["descriptor"], array, file["type"])


def _fits_int32(array: NDArray[Any]) -> bool:
    limits = np.iinfo(np.int32)
    if np.can_cast(array.dtype, np.int32) or not array.size:
        return True
    return bool(limits.min <= array.min() and array.max() <= limits.max)


def write_examples(job: Job, data: Examples, as_bytes: set[str | int]) -> Message:
    described: Message = {"x": [], "y": None}
    for place, (name, array) in enumerate(data.x):
        written = job.memory_file("x").write(array, "uint8" if (name or place) in as_bytes else "float32")
        described["x"].append({**written, "name": name})
    weights = data.sample_weight
    described["sample_weight"] = None if weights is None else job.memory_file("weights").write(weights, "float32")
    if data.y is None:
        return described
    described["y"] = []
    for name, array in data.y:
        is_class = array.dtype.kind in "ui" and array.size == len(array) and _fits_int32(array)
        written = job.memory_file("y").write(array, "int32" if is_class else "float32")
        described["y"].append({**written, "name": name})
    return described
