"""DistributedOptimizer: a Keras optimizer that averages gradients over all ranks before it applies them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from lockstep import _bridge, _start
from lockstep._data import feed
from lockstep._native import UsageError
from lockstep._world import group, size, tell_of_own_weights

_BUCKET_BYTES = 4 << 20
_FLOAT_BYTES = 4


class Progress:
    """The steps of the job so far, across restarts, as the launcher shows them."""

    def __init__(self) -> None:
        self.step = 0
        self.epoch = 0


progress = Progress()


class GradientAverager:
    """What `DistributedOptimizer` adds to an optimizer."""

    def __init__(self, compression: str | None, bucket_bytes: int, overlap: bool) -> None:
        self.bfloat16 = compression == "bfloat16"
        self.bucket_elements = max(1, bucket_bytes // _FLOAT_BYTES)
        self.overlap = overlap
        self.reducers: dict[tuple[tuple[int, ...], int], int] = {}
        self.step_in_pass = 0
        self.passes = -1
        self.hooks: dict[int, _Hook] = {}  # by id of a torch parameter

    def reducer_for(self, sizes: tuple[int, ...], sparse: int = 0) -> int:
        """Return the reducer for dense gradients of these sizes and some sparse ones. All ranks make it together."""
        key = (sizes, sparse)
        if key not in self.reducers:
            _start.require_same_shards(feed.describe_current)
            tell_of_own_weights()
            self.reducers[key] = group().make_reducer(list(sizes), self.bucket_elements, self.bfloat16, sparse)
        return self.reducers[key]

    def weight(self) -> float:
        """Return the weight of this rank's gradients in the step that begins."""
        if self.passes != feed.passes and feed.is_active:
            self.passes = feed.passes
            self.step_in_pass = 0
        # Unless this optimizer has followed the pass from its beginning, its data is not sharded.
        return feed.weight(self.step_in_pass) if self.passes == feed.passes else 1.0

    def end_step(self, weight: float) -> None:
        self.step_in_pass += 1
        progress.step += 1
        group().report(progress.step, progress.epoch, weight)

    def average(self, gradients: Sequence[Any]) -> list[Any]:
        """Return the averages of dense gradients of one framework."""
        if not gradients:
            return []
        reducer = self.reducer_for(tuple(_elements(each) for each in gradients))

        def on_host(arrays: list[NDArray[Any]]) -> list[NDArray[Any]]:
            averages, _ = self.reduce(reducer, arrays, self.weight())
            return averages

        return _bridge.call(on_host, gradients)

    def reduce(self, reducer: int, arrays: list[NDArray[Any]], weight: float) -> tuple[list[NDArray[Any]], float]:
        """Average arrays over the ranks; return them and the ranks' total weight."""
        inputs = [np.ascontiguousarray(array, np.float32) for array in arrays]
        averages = [np.empty(array.shape, np.float32) for array in arrays]
        total, _ = group().reduce(reducer, inputs, averages, weight)
        self.end_step(weight)
        return [each.astype(array.dtype, copy=False) for each, array in zip(averages, arrays, strict=True)], total

    def average_with_slices(self, gradients: Sequence[Any]) -> list[Any]:
        """Return the averages of TensorFlow's gradients, some of which are IndexedSlices: rows of a large variable."""
        import tensorflow as tf

        dense = [each for each in gradients if not isinstance(each, tf.IndexedSlices)]
        slices = [each for each in gradients if isinstance(each, tf.IndexedSlices)]
        reducer = self.reducer_for(tuple(_elements(each) for each in dense), len(slices))

        def on_host(arrays: list[NDArray[Any]]) -> list[NDArray[Any]]:
            weight = self.weight()
            averages, total = self.reduce(reducer, arrays[: len(dense)], weight)
            for at in range(len(dense), len(arrays), 2):
                averages += _gather_slices(reducer, arrays[at], arrays[at + 1], weight, total)
            return averages

        parts = [part for each in slices for part in (tf.cast(each.indices, tf.int64), each.values)]
        unknown = [
            part
            for each in slices
            for part in (
                tf.TensorSpec([None], tf.int64),
                tf.TensorSpec([None, *each.values.shape[1:]], each.values.dtype),
            )
        ]
        results = _bridge.call(on_host, [*dense, *parts], [*dense, *unknown])
        averages, gathered = iter(results[: len(dense)]), results[len(dense) :]
        pairs = iter([
            tf.IndexedSlices(gathered[at + 1], gathered[at], each.dense_shape)
            for at, each in zip(range(0, len(gathered), 2), slices, strict=True)
        ])  # fmt: skip
        return [next(pairs if isinstance(each, tf.IndexedSlices) else averages) for each in gradients]

    def average_hooked(self, gradients: Sequence[Any]) -> list[Any]:
        """Return the averages of torch's gradients, which hooks have contributed during backward."""
        import torch

        reducer = self.reducer_for(tuple(_elements(each) for each in gradients))
        weight = self.weight()
        for index in reversed(range(len(gradients))):
            if not group().has_contributed(reducer, index):
                group().contribute(reducer, index, _as_float32(gradients[index]), weight)
        for hook in self.hooks.values():
            hook.check(gradients[hook.index])
        averages = [np.empty(tuple(each.shape), np.float32) for each in gradients]
        group().finish(reducer, averages)
        self.end_step(weight)
        return [
            torch.from_numpy(array).to(device=each.device, dtype=each.dtype)
            for array, each in zip(averages, gradients, strict=True)
        ]

    def add_hooks(self, gradients: Sequence[Any], parameters: Sequence[Any]) -> None:
        """From the next backward on, contribute each gradient when it is complete."""
        reducer = self.reducer_for(tuple(_elements(each) for each in gradients))
        for index, parameter in enumerate(parameters):
            if id(parameter) not in self.hooks:
                self.hooks[id(parameter)] = _Hook(self, reducer, index, parameter)


class _Hook:
    """Contributes the gradient of one torch parameter as soon as backward has computed it."""

    def __init__(self, averager: GradientAverager, reducer: int, index: int, parameter: Any) -> None:
        self.averager = averager
        self.reducer = reducer
        self.index = index
        self.version: int | None = None
        parameter.register_post_accumulate_grad_hook(self)

    def __call__(self, parameter: Any) -> None:
        group().contribute(self.reducer, self.index, _as_float32(parameter.grad), self.averager.weight())
        self.version = parameter.grad._version

    def check(self, gradient: Any) -> None:
        """Raise unless `gradient` is what the hook saw."""
        version, self.version = self.version, None
        if version is not None and gradient._version != version:
            raise UsageError(
                "a gradient was changed after backward had computed it; do not overlap the reduction of this optimizer "
                "(overlap=False), or change gradients after the optimizer has averaged them"
            )


def _as_float32(gradient: Any) -> NDArray[np.float32]:
    return np.ascontiguousarray(_bridge.to_numpy(gradient), np.float32)


def _elements(tensor: Any) -> int:
    return int(np.prod(tuple(tensor.shape), dtype=np.int64))


def _gather_slices(
    reducer: int, indices: NDArray[np.int64], values: NDArray[Any], weight: float, total: float
) -> list[NDArray[Any]]:
    """Gather all ranks' rows in rank order.

    Rows of equal index stay apart, as in one process: Keras on TensorFlow squares each of them by itself, so Adam takes
    another step with their sum. But if all ranks have the same rows, each once, as of positions, they are added up: one
    process has each of them once, too.
    """
    message = b"" if weight == 0 else indices.tobytes() + (values.astype(np.float32) * np.float32(weight)).tobytes()
    row_bytes = 8 + _FLOAT_BYTES * int(np.prod(values.shape[1:], dtype=np.int64))
    all_indices, all_values = [], []
    for part in group().gather_sparse(reducer, message):
        rows = len(part) // row_bytes
        all_indices.append(np.frombuffer(part, np.int64, rows))
        all_values.append(np.frombuffer(part, np.float32, offset=8 * rows).reshape(rows, *values.shape[1:]))
    present = [each for each in all_indices if len(each)]
    if len(present) > 1 and _are_same_rows(present):
        all_indices, all_values = present[:1], [np.sum([each for each in all_values if len(each)], axis=0)]
    gathered = np.concatenate(all_values) / np.float32(total or 1)
    return [np.concatenate(all_indices), gathered.astype(values.dtype)]


def _are_same_rows(indices: list[NDArray[np.int64]]) -> bool:
    return len(np.unique(indices[0])) == len(indices[0]) and all(np.array_equal(each, indices[0]) for each in indices)


def _with_shape(gradient: Any, variable: Any) -> Any:
    """Return a gradient with its variable's shape, which the graph of TensorFlow may not know."""
    if keras.backend.backend() != "tensorflow" or type(gradient).__name__ == "IndexedSlices":
        return gradient
    import tensorflow as tf

    return gradient if gradient.shape.is_fully_defined() else tf.ensure_shape(gradient, variable.shape)


def DistributedOptimizer(  # noqa: N802 - named as in Horovod, for a class it stands for
    optimizer: Any,
    *,
    compression: str | None = None,
    overlap: bool = False,
    bucket_bytes: int = _BUCKET_BYTES,
) -> Any:
    """Make a Keras optimizer average gradients over all ranks before it applies them.

    The average weighs each rank by the examples it had, if the data comes from `lockstep.shard`, else all alike. The
    optimizer clips and decays after that, so the result is that of one worker with the whole batch.

    Parameters
    ----------
    optimizer
        A `keras.optimizers.Optimizer` or its name; it is changed in place, and files that it is saved in name its
        class. With mixed_float16, pass a `keras.optimizers.LossScaleOptimizer`.
    compression
        "bfloat16" halves what is sent between hosts, and rounds it. Within a host nothing is compressed.
    overlap
        With PyTorch: average a gradient while backward computes the next ones. Each backward must be followed by a step
        of this optimizer, and gradients must not change in between.
    bucket_bytes
        Gradients are averaged in groups of at least this size.

    Returns
    -------
    The optimizer.
    """
    group()
    optimizer = keras.optimizers.get(optimizer)
    if compression not in (None, "bfloat16"):
        raise UsageError(f"compression is {compression!r}; use 'bfloat16' or None")
    if overlap and keras.backend.backend() != "torch":
        raise UsageError("overlap needs the torch backend: the others return all gradients of a step at once")
    if getattr(optimizer, "lockstep_averager", None) is not None:
        raise UsageError("this optimizer is distributed already")
    if keras.config.dtype_policy().name == "mixed_float16" and not isinstance(
        optimizer, keras.optimizers.LossScaleOptimizer
    ):
        raise UsageError(
            "with mixed_float16, pass LossScaleOptimizer(optimizer) to DistributedOptimizer: all ranks must skip the "
            "same steps"
        )
    averager = GradientAverager(compression, bucket_bytes, overlap)
    original_apply = optimizer.apply

    def apply(grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> None:
        grads = list(grads)
        present = [index for index, gradient in enumerate(grads) if gradient is not None]
        variables = list(optimizer._trainable_variables if trainable_variables is None else trainable_variables)
        for index in present:
            grads[index] = _with_shape(grads[index], variables[index])
        gradients = [grads[index] for index in present]
        if any(type(gradient).__name__ == "IndexedSlices" for gradient in gradients):
            averages = averager.average_with_slices(gradients)
        elif averager.hooks:
            averages = averager.average_hooked(gradients)
        else:
            averages = averager.average(gradients)
            if overlap and size() > 1 and trainable_variables is not None:
                parameters = [variables[index].value for index in present]
                averager.add_hooks(gradients, parameters)
        for index, average in zip(present, averages, strict=True):
            grads[index] = average
        original_apply(grads, trainable_variables)

    if keras.backend.backend() == "jax" and isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        # There Keras calls the inner optimizer, and only where the gradients are finite, which all ranks must agree on.
        original_stateless_apply = optimizer.stateless_apply

        def stateless_apply(optimizer_variables: Any, grads: Sequence[Any], trainable_variables: Any) -> Any:
            return original_stateless_apply(optimizer_variables, averager.average(list(grads)), trainable_variables)

        object.__setattr__(optimizer, "stateless_apply", stateless_apply)

    # On the instance, so that the optimizer's class, and with it what files say, stays what it is.
    object.__setattr__(optimizer, "apply", apply)
    object.__setattr__(optimizer, "lockstep_averager", averager)
    return optimizer
