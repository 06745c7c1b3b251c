"""The variables of a Keras model and its optimizer, as arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from lockstep._collectives import broadcast_arrays, sum_arrays
from lockstep._native import DataError
from lockstep._world import group, note_broadcast_weights, rank, size


def to_array(variable: Any) -> NDArray[Any]:
    """Return a copy of a variable's value."""
    return np.array(keras.ops.convert_to_numpy(variable.value))


def to_json(value: Any) -> Any:
    """Return a log's value as a number, or as lists of them: metrics such as F1Score have one for each class."""
    return np.asarray(keras.ops.convert_to_numpy(value), float).tolist()


def weights_of(model: Any) -> list[Any]:
    """Return the variables that a prediction depends on: weights and other state of layers."""
    return [variable for variable in model.variables if not _is_text(variable)]


def variables_of(model: Any) -> list[Any]:
    """Return the variables that training changes: weights, other state of layers, and the optimizer's."""
    found = list(model.variables)
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and not optimizer.built and model.built:
        optimizer.build(model.trainable_variables)  # TensorFlow's trainer does so in the first step only
    if optimizer is not None and optimizer.built:
        known = {id(variable) for variable in found}
        found += [variable for variable in optimizer.variables if id(variable) not in known]
    return [variable for variable in found if not _is_text(variable)]


def _is_text(variable: Any) -> bool:
    return str(variable.dtype) == "string"


def assign(variables: Sequence[Any], arrays: Sequence[NDArray[Any]]) -> None:
    """Assign values to variables; raise `DataError` if they do not fit."""
    if len(variables) != len(arrays):
        raise DataError(f"there are {len(arrays)} saved values for {len(variables)} variables of the model")
    for variable, array in zip(variables, arrays, strict=True):
        if tuple(variable.shape) != array.shape:
            raise DataError(
                f"variable {variable.path} has shape {tuple(variable.shape)}, its saved value {array.shape}"
            )
        variable.assign(array)


def broadcast_variables(variables: Sequence[Any], root: int = 0) -> None:
    """Assign the root's values to the variables of all ranks."""
    if size() == 1:
        return
    note_broadcast_weights()
    arrays = broadcast_arrays([to_array(variable) for variable in variables] if rank() == root else None, root)
    if rank() != root:
        assign(variables, arrays)


def average_differing(variables: Sequence[Any]) -> None:
    """Average the float variables that differ between ranks, such as moving statistics. Equal ones keep their bits."""
    variables = [variable for variable in variables if "float" in str(variable.dtype)]
    if size() == 1 or not variables:
        return
    arrays = [to_array(variable) for variable in variables]
    digests = b"".join(hashlib.blake2b(array.tobytes(), digest_size=8).digest() for array in arrays)
    all_digests = group().all_gather(digests)
    differ = [i for i in range(len(arrays)) if len({each[8 * i : 8 * i + 8] for each in all_digests}) > 1]
    for i, total in zip(differ, sum_arrays([arrays[i] for i in differ]), strict=True):
        variables[i].assign((total / total.dtype.type(size())).astype(arrays[i].dtype))
