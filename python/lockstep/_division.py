"""Whether the loss of a batch is the mean of its workers' losses, which the Keras engine's workers average."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from lockstep._native import UsageError
from lockstep._state import assign, to_array

_OVER_THE_BATCH = ("circle", "dice", "tversky")  # Keras' losses that are no mean over examples
_MEANS = ("mean", "sum_over_batch_size")
_EXAMPLES = 64  # to try it with
_TOLERANCE = {"float32": 1e-4, "float64": 1e-4}
_LOW_PRECISION = 1e-3
_RANDOM = ("beta", "gamma", "normal", "truncated_normal", "uniform")  # functions of keras.random


def refuse_other_reductions(model: Any) -> None:
    """Refuse a loss whose options say that it is no mean over examples."""
    for loss in keras.tree.flatten(getattr(model, "loss", None)):
        reduction = getattr(loss, "reduction", "mean")
        options = {"reduction": reduction} if reduction not in _MEANS else {}
        if getattr(loss, "ignore_class", None) is not None:
            options["ignore_class"] = loss.ignore_class
        for name, value in options.items():
            raise UsageError(
                f"the loss {type(loss).__name__} has {name}={value!r}, but several workers average gradients over "
                f"examples, so they need a mean over all of them; use workers=1, or leave {name} out"
            )


def refuse_indivisible_losses(
    model: Any, data: Any, workers: int, class_weight: dict[int, float] | None, step: str = "train_step"
) -> None:
    """Refuse a loss that is not the mean of the losses of a batch's parts, and warn of such a metric.

    Tries it with examples from all of `data`: (x,), (x, y) or (x, y, weights), with a first axis of examples. Call it
    when the model is built. What the model counts does not change. A `step` of the model's own is not tried.
    """
    if getattr(getattr(model, step), "__func__", None) is not getattr(keras.Model, step) or (
        _is_all_of_keras(model) and not _may_mask(model)
    ):
        return
    count = len(keras.tree.flatten(data)[0])
    places = np.unique(np.linspace(0, count - 1, max(_EXAMPLES, 2 * workers)).astype(int))
    x, y, weights = keras.utils.unpack_x_y_sample_weight(keras.tree.map_structure(lambda array: array[places], data))
    if weights is None and class_weight and y is not None:
        weights = _weights_of_classes(y, class_weight)
    trial = _Trial(model, x, y, weights, len(places), workers)
    trace = _trace(model, x)
    if trace.has_masks:
        _warn_of_masks()
        return
    if trace.adds_losses or _computes_its_loss(model):
        trial.refuse(_loss_of_model)
        return
    if step == "train_step" and _trace(model, x, training=True).adds_losses:
        _warn_of_random_loss("is made in training only")
    metrics = list(_metrics_of_the_users_own(model))
    if trace.outputs is None or (not metrics and all(map(_is_mean, keras.tree.flatten(getattr(model, "loss", None))))):
        return
    for near in (None, y):
        outputs = keras.tree.map_structure(lambda spec, near=near: _some_outputs(spec, near), trace.outputs)
        trial.refuse(
            lambda model, part, x, y, weights, outputs=outputs: _loss(model, x, y, _cut(outputs, part), weights)
        )
    for name, metric in metrics:
        trial.warn_of_metric(name, metric, outputs)


@dataclass(frozen=True)
class _Trial:
    """Some examples, in one piece and in the parts that workers would have."""

    model: Any
    x: Any
    y: Any
    weights: Any
    count: int
    workers: int

    def values(self, value_of: Callable[..., float]) -> tuple[float, float] | None:
        """Return a value of all examples, and the mean of the values of their parts; None if the former varies."""
        ends = [self.count * worker // self.workers for worker in range(self.workers + 1)]
        parts = [slice(begin, end) for begin, end in itertools.pairwise(ends) if begin < end]
        state = _State(self.model)

        def value(part: slice) -> float:
            state.restore()
            return value_of(self.model, part, *(_cut(each, part) for each in (self.x, self.y, self.weights)))

        with state:
            whole, again = (value(slice(self.count)) for _ in range(2))
            if whole != again or state.has_drawn():
                return None
            mean = sum(value(part) * (part.stop - part.start) for part in parts) / self.count
        return (whole, mean) if np.isfinite(whole) else (0.0, 0.0)

    def is_mean(self, whole: float, mean: float) -> bool:
        tolerance = _TOLERANCE.get(self.model.compute_dtype, _LOW_PRECISION)
        return bool(np.isclose(whole, mean, rtol=tolerance, atol=1e-6))

    def refuse(self, loss_of: Callable[..., float]) -> None:
        try:
            values = self.values(loss_of)
        except Exception:  # of the caller's code, which training will show
            return
        if values is None:
            _warn_of_random_loss("is random")
        elif not self.is_mean(*values):
            raise UsageError(
                f"the loss of {self.count} examples is {values[0]:g}, but {values[1]:g} on average when {self.workers} "
                "workers have a part of them each; gradients are averaged over workers, so they need a loss that is a "
                "mean over examples: use workers=1, or return a value for each example that depends on no other"
            )

    def warn_of_metric(self, name: str, metric: Callable[..., Any], outputs: Any) -> None:
        def value(model: Any, part: slice, x: Any, y: Any, weights: Any) -> float:
            return float(np.mean(keras.ops.convert_to_numpy(metric(y, _cut(outputs, part)))))

        try:
            values = self.values(value)
        except Exception:  # of the caller's code, which training will show
            return
        if values is not None and not self.is_mean(*values):
            warnings.warn(
                f"the metric {name} is no mean over examples: with several workers it is the mean of the values of "
                "their parts of each batch; use workers=1 for Keras' value",
                stacklevel=5,
            )


class _State:
    """What a model counts: variables that a prediction or a loss changes. Leaving the ``with`` block restores them.

    Meanwhile keras.random draws the same numbers for each example.
    """

    def __init__(self, model: Any) -> None:
        variables = [*model.non_trainable_variables, *getattr(model, "metrics_variables", [])]
        self._variables = [each for each in variables if str(each.dtype) != "string"]
        self._values = [to_array(each) for each in self._variables]
        self._stack = contextlib.ExitStack()

    def restore(self) -> None:
        assign(self._variables, self._values)

    def has_drawn(self) -> bool:
        """Whether random numbers were drawn by other functions than those of keras.random."""
        held = zip(self._variables, self._values, strict=True)
        return any("seed_generator" in each.path and not np.array_equal(to_array(each), value) for each, value in held)

    def __enter__(self) -> None:
        def constant(shape: Any, *_: Any, dtype: Any = None, **__: Any) -> Any:
            first, *others = tuple(map(int, shape)) or (1,)
            row = np.linspace(0.02, 0.98, max(1, int(np.prod(others)))).reshape(others)
            drawn = np.broadcast_to(row, (first, *others)).reshape(tuple(map(int, shape)))
            return keras.ops.cast(keras.ops.convert_to_tensor(drawn.astype("float32")), dtype or keras.config.floatx())

        for name in _RANDOM:
            self._stack.enter_context(_replaced(keras.random, name, constant))

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self.restore()


@contextlib.contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Replace an attribute of a class or module for a while."""
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)


@dataclass
class _Trace:
    """What a model does with a batch, found without computing it."""

    outputs: Any = None  # their shapes and types; None if it cannot be had
    adds_losses: bool = False
    has_masks: bool = False


def _trace(model: Any, x: Any, training: bool = False) -> _Trace:
    from keras.src.backend import compute_output_spec, get_keras_mask

    trace = _Trace()
    original = keras.layers.Layer.add_loss

    def add_loss(layer: Any, loss: Any) -> Any:
        trace.adds_losses = True
        return original(layer, loss)

    def outputs_of(inputs: Any) -> Any:
        outputs = model(inputs, training=training)
        trace.has_masks = any(get_keras_mask(each) is not None for each in keras.tree.flatten(outputs))
        return outputs

    given = keras.tree.map_structure(lambda array: keras.KerasTensor(array.shape, array.dtype.name), x)
    with _replaced(keras.layers.Layer, "add_loss", add_loss):
        try:
            trace.outputs = compute_output_spec(outputs_of, given)
        except Exception:  # a model that only computes, which says all then
            trace.adds_losses = True
    return trace


def _computes_its_loss(model: Any) -> bool:
    return getattr(model.compute_loss, "__func__", None) is not keras.Model.compute_loss


def _is_all_of_keras(model: Any) -> bool:
    """Whether losses and layers are Keras' own, so that each loss is a mean over examples, and metrics are classes."""
    if _computes_its_loss(model) or any(True for _ in _metrics_of_the_users_own(model)):
        return False
    if not all(map(_is_mean, keras.tree.flatten(getattr(model, "loss", None)))):
        return False
    return all(_is_of_keras(type(layer)) for layer in model._flatten_layers())


def _is_mean(loss: Any) -> bool:
    """Whether a loss is one of Keras' own means over examples."""
    if loss is None:
        return True
    if isinstance(loss, str):
        return loss.lower() not in _OVER_THE_BATCH
    owner = loss if hasattr(loss, "__name__") else type(loss)
    return _is_of_keras(owner) and owner.__name__.lower() not in _OVER_THE_BATCH


def _is_of_keras(owner: Any) -> bool:
    return str(owner.__module__).split(".")[0] == "keras"


def _metrics_of_the_users_own(model: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the functions that a model with one output takes for metrics."""
    metrics = getattr(model, "_compile_metrics", None)
    if len(getattr(model, "outputs", None) or [None]) != 1:
        return
    for metric in keras.tree.flatten(
        [getattr(metrics, name, None) for name in ("_user_metrics", "_user_weighted_metrics")]
    ):
        if hasattr(metric, "__name__") and not isinstance(metric, type) and not _is_of_keras(metric):
            yield metric.__name__, metric


def _may_mask(model: Any) -> bool:
    """Whether an output of Keras' own layers may have a mask, by whose sum Keras divides a loss."""
    outputs = getattr(model, "outputs", None)
    if outputs:
        return any(getattr(each, "_keras_mask", None) is not None for each in keras.tree.flatten(outputs))
    masking = (keras.layers.Masking,)
    return any(isinstance(each, masking) or getattr(each, "mask_zero", False) for each in model._flatten_layers())


def _warn_of_masks() -> None:
    warnings.warn(
        "the model's outputs have masks: each worker averages the loss over the steps of its part that no mask leaves "
        "out, and the workers' means are averaged, which differs from Keras' mean over the batch; use workers=1 for "
        "the latter",
        stacklevel=4,
    )


def _warn_of_random_loss(why: str) -> None:
    warnings.warn(
        f"a loss {why}, so that it cannot be tried whether it is a mean over examples, as several workers need it; use "
        "workers=1 if it is not",
        stacklevel=5,
    )


def _cut(structure: Any, part: slice) -> Any:
    if structure is None:
        return None

    def cut(array: Any) -> Any:
        return array if array is None or not array.shape else keras.ops.convert_to_tensor(array[part])

    return keras.tree.map_structure(cut, structure)


def _some_outputs(spec: Any, near: Any) -> Any:
    """Return numbers that are probabilities as well as logits, and grow from example to example.

    Or others that are near the targets, if these are as many numbers.
    """
    if spec is None:
        return None
    numbers = np.random.default_rng(1).uniform(0.1, 0.95, spec.shape).astype("float32")
    if spec.shape:
        numbers *= np.linspace(0.1, 1, spec.shape[0], dtype="float32").reshape(-1, *[1] * (len(spec.shape) - 1))
    if getattr(near, "shape", None) == tuple(spec.shape) and near.dtype.kind == "f":
        numbers = near + (np.std(near) or 1) * (numbers - 0.3)
    return keras.ops.cast(keras.ops.convert_to_tensor(numbers), spec.dtype)


def _loss_of_model(model: Any, part: slice, x: Any, y: Any, weights: Any) -> float:
    return _loss(model, x, y, model(x, training=False), weights)


def _loss(model: Any, x: Any, y: Any, outputs: Any, weights: Any) -> float:
    # Keras' own wrapper, for methods with and without the argument `training`.
    return float(keras.ops.convert_to_numpy(model._compute_loss(x, y, outputs, weights, training=False)))


def _weights_of_classes(y: Any, class_weight: dict[int, float]) -> Any:
    """Return the weight of each example, as Keras' ``fit`` does."""
    targets = np.asarray(keras.tree.flatten(y)[0])
    classes = targets.argmax(-1) if targets.ndim > 1 and targets.shape[-1] > 1 else targets.reshape(len(targets))
    return np.array([class_weight.get(int(each), 1.0) for each in np.round(classes).ravel()]).reshape(classes.shape)
