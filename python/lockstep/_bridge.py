"""How tensors leave a framework for a function on NumPy arrays, and come back: eagerly, or within a compiled step."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = list[NDArray[Any]]


_TENSORS = {"torch": ("Tensor",), "jax": ("Array",), "tensorflow": ("Tensor", "Variable", "IndexedSlices")}


def framework_of(tensor: Any) -> str:
    """Return "jax", "tensorflow", "torch" or "numpy"."""
    for name, types in _TENSORS.items():
        module = sys.modules.get(name)
        if module is not None and isinstance(tensor, tuple(getattr(module, each) for each in types)):
            return name
    return "numpy"


def call(
    function: Callable[[Arrays], Arrays], tensors: Sequence[Any], outputs: Sequence[Any] | None = None
) -> list[Any]:
    """Call `function` with the tensors' values as arrays, and return its arrays as tensors of the same framework.

    Parameters
    ----------
    function
        Runs once per call or step, in the order of calls on every framework.
    tensors
        Of one framework.
    outputs
        What `function` returns looks like each of these; None stands for a dimension that only the call knows. Without
        it, the results look like `tensors`.
    """
    if not tensors:
        return []
    return _CALLS[framework_of(tensors[0])](function, list(tensors), list(tensors if outputs is None else outputs))


def _call_numpy(function: Callable[[Arrays], Arrays], tensors: list[Any], outputs: list[Any]) -> list[Any]:
    return list(function([np.asarray(tensor) for tensor in tensors]))


def _call_jax(function: Callable[[Arrays], Arrays], tensors: list[Any], outputs: list[Any]) -> list[Any]:
    import jax
    from jax.experimental import io_callback

    def on_host(*arrays: Any) -> tuple[NDArray[Any], ...]:
        return tuple(function([np.asarray(array) for array in arrays]))

    if any(isinstance(tensor, jax.core.Tracer) for tensor in tensors):
        shapes = [jax.ShapeDtypeStruct(output.shape, output.dtype) for output in outputs]
        return list(io_callback(on_host, tuple(shapes), *tensors, ordered=True))
    return [jax.numpy.asarray(array) for array in on_host(*tensors)]


def _call_tensorflow(function: Callable[[Arrays], Arrays], tensors: list[Any], outputs: list[Any]) -> list[Any]:
    import tensorflow as tf

    def on_host(*arrays: Any) -> Arrays:
        return list(function([np.asarray(array) for array in arrays]))

    results = tf.numpy_function(on_host, tensors, [output.dtype for output in outputs])
    for result, output in zip(results, outputs, strict=True):
        result.set_shape(output.shape)
    return list(results)


def _call_torch(function: Callable[[Arrays], Arrays], tensors: list[Any], outputs: list[Any]) -> list[Any]:
    import torch

    arrays = function([to_numpy(tensor) for tensor in tensors])
    return [
        torch.from_numpy(np.ascontiguousarray(array)).reshape(array.shape).to(device=output.device, dtype=output.dtype)
        for array, output in zip(arrays, outputs, strict=True)
    ]


_CALLS = {"numpy": _call_numpy, "jax": _call_jax, "tensorflow": _call_tensorflow, "torch": _call_torch}


def to_numpy(tensor: Any) -> NDArray[Any]:
    """Return a tensor's value; torch's bfloat16, which NumPy lacks, as float32."""
    if framework_of(tensor) != "torch":
        return np.asarray(tensor)
    tensor = tensor.detach()
    if str(tensor.dtype) == "torch.bfloat16":
        tensor = tensor.float()
    return np.asarray(tensor.cpu().numpy())
