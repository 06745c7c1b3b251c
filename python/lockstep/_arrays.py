"""The caller's data as arrays."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from lockstep._native import DataError, UsageError


def as_array(value: Any, what: str) -> NDArray[Any]:
    """Return an array of numbers. Raises UsageError for what holds none, DataError for an array of something else."""
    if not hasattr(value, "__array__") and not isinstance(value, (list, tuple)):
        raise UsageError(
            f"{what} is of type {type(value).__name__}; give an array, or data in batches: a Python generator, "
            "keras.utils.PyDataset, tf.data.Dataset or torch.utils.data.DataLoader"
        )
    if isinstance(value, np.ma.MaskedArray):
        raise UsageError(f"{what} is a masked array, of which no engine knows the mask; give what filled() returns")
    array = np.asarray(keras.ops.convert_to_numpy(value) if keras.ops.is_tensor(value) else value)
    if array.ndim == 0 or array.dtype.kind not in "buif":
        remedy = "; give numbers, as of astype('float32')"
        if array.dtype.kind in "USO" and what.startswith("y ") and array.ndim == 1:
            remedy = "; with classes = sorted(set(y_train)), give [classes.index(label) for label in y]"
        elif array.dtype.kind == "O" and array.ndim and all(isinstance(each, np.ndarray) for each in array):
            remedy = "; it holds arrays of several shapes; resize pictures or pad sequences to one shape"
        raise DataError(f"{what} is no array of numbers: its type is {array.dtype}, its shape {array.shape}{remedy}")
    return array


def numbers(value: Any) -> Any:
    """Return the value of a log, as Keras has it. "nan" and "inf" are texts, since JSON has no such numbers."""
    return np.asarray(value, float) if isinstance(value, list) else float(value)
