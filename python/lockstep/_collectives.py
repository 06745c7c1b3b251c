"""Collectives for programs with a training loop of their own. All ranks make the same calls in the same order."""

from __future__ import annotations

import pickle
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from lockstep import _bridge
from lockstep._native import UsageError
from lockstep._world import group, rank, size

T = TypeVar("T")


def barrier() -> None:
    """Wait until every rank has called this."""
    group().barrier()


def allgather_object(value: T) -> list[T]:
    """Return every rank's value, in rank order. Values are pickled, so trust your workers."""
    return [pickle.loads(part) for part in group().all_gather(pickle.dumps(value))]


def sum_arrays(arrays: list[NDArray[Any]]) -> list[NDArray[Any]]:
    """Sum each array over all ranks. Types of up to 32 bits are summed in float32, others in float64."""
    for array in arrays:
        if array.dtype.kind not in "fiub" and array.dtype.name != "bfloat16":
            raise UsageError(f"cannot all-reduce an array of type {array.dtype}; convert it to numbers")
    narrow = [array.dtype.kind not in "iub" and array.dtype.itemsize <= 4 for array in arrays]
    sums: dict[bool, NDArray[Any]] = {}
    for is_narrow, kind in ((True, np.float32), (False, np.float64)):
        parts = [np.ravel(array).astype(kind) for array, flag in zip(arrays, narrow, strict=True) if flag is is_narrow]
        sums[is_narrow] = np.concatenate(parts) if parts else np.empty(0, kind)
    if sums[True].size:
        group().all_reduce_sum32(sums[True])
    if sums[False].size:
        group().all_reduce_sum64(sums[False])
    results = []
    at = {True: 0, False: 0}
    for array, flag in zip(arrays, narrow, strict=True):
        results.append(sums[flag][at[flag] : at[flag] + array.size].reshape(array.shape))
        at[flag] += array.size
    return results


def allreduce(values: T, op: Literal["mean", "sum"] = "mean") -> T:
    """Average or sum tensors over all ranks, within a compiled step too.

    Parameters
    ----------
    values
        A tensor or NumPy array, or a list, tuple or dict of them: equally shaped on all ranks. None stays None.
    op
        "mean" or "sum". The mean of integers is rounded down.

    Returns
    -------
    Like `values`, with equal bits on all ranks.
    """
    if op not in ("mean", "sum"):
        raise UsageError(f"op is {op!r}; use 'mean' or 'sum'")
    flat: list[Any] = []
    rebuild = _flatten(values, flat)
    workers = size()

    def on_host(arrays: list[NDArray[Any]]) -> list[NDArray[Any]]:
        sums = sum_arrays(arrays)
        if op == "mean":
            sums = [each // workers if array.dtype.kind in "iu" else each / each.dtype.type(workers)
                    for each, array in zip(sums, arrays, strict=True)]  # fmt: skip
        return [each.astype(array.dtype) for each, array in zip(sums, arrays, strict=True)]

    return rebuild(iter(_bridge.call(on_host, flat)))  # type: ignore[no-any-return]


def _flatten(values: Any, flat: list[Any]) -> Any:
    """Append the leaves of nested containers to `flat`; return what makes the containers of new leaves."""
    if values is None:
        return lambda leaves: None
    if isinstance(values, dict):
        parts = {key: _flatten(values[key], flat) for key in sorted(values)}
        return lambda leaves: {key: part(leaves) for key, part in parts.items()}
    if isinstance(values, (list, tuple)):
        items = [_flatten(value, flat) for value in values]
        kind = type(values) if type(values) in (list, tuple) else tuple
        return lambda leaves: kind(item(leaves) for item in items)
    if isinstance(values, (int, float)):
        values = np.asarray(values)
    flat.append(values)
    return lambda leaves: next(leaves)


def broadcast_arrays(arrays: list[NDArray[Any]] | None, root: int) -> list[NDArray[Any]]:
    """Return the root's arrays on all ranks."""
    message = b""
    if rank() == root:
        message = pickle.dumps(arrays or [], protocol=5)
    received: list[NDArray[Any]] = pickle.loads(group().broadcast(message, root))
    return received


def broadcast(value: T, root: int = 0) -> T:
    """Make `value` equal to the root's on all ranks.

    Parameters
    ----------
    value
        A Keras model, whose variables and those of its optimizer are assigned in place; or anything that can be
        pickled, of which the root's is returned.
    root
        The rank whose value counts.
    """
    if not 0 <= root < size():
        raise UsageError(f"root is {root}, but the world has ranks 0 to {size() - 1}")
    if hasattr(value, "trainable_variables"):
        if not getattr(value, "built", True):
            raise UsageError("the model has no weights yet; build it (model.build, or call it once) before broadcast")
        from lockstep._state import broadcast_variables, variables_of

        broadcast_variables(variables_of(value), root)
        return value
    result: T = pickle.loads(group().broadcast(pickle.dumps(value) if rank() == root else b"", root))
    return result
