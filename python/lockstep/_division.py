"""Whether the loss of a batch is the mean of its workers' losses, which the Keras engine's workers average."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import keras
import numpy as np

from lockstep._native import UsageError
from lockstep._state import assign, to_array

_OVER_THE_BATCH = ("circle", "dice", "tversky")  # Keras' losses that are no mean over examples
_MEANS = ("mean", "sum_over_batch_size")
_EXAMPLES = 32  # to try it with
_TOLERANCE = {"float32": 1e-4, "float64": 1e-4}
_LOW_PRECISION = 1e-3


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


def refuse_indivisible_losses(model: Any, batch: Any, workers: int, class_weight: dict[int, float] | None) -> None:
    """Refuse a loss that is not the mean of the losses of a batch's parts, as its first examples show.

    Call it when the model is built. What the model counts does not change. `batch`: (x,), (x, y) or (x, y, weights).
    """
    if _has_own_step(model) or (_is_mean_by_definition(model) and not _may_mask(model)):
        return
    first = keras.tree.map_structure(lambda array: array[: max(_EXAMPLES, 2 * workers)], batch)
    x, y, weights = keras.utils.unpack_x_y_sample_weight(first)
    count = len(keras.tree.flatten(x)[0])
    if weights is None and class_weight and y is not None:
        weights = _weights_of_classes(y, class_weight)
    state = _State(model)
    try:
        outputs = model(x, training=False)
        if any(getattr(each, "_keras_mask", None) is not None for each in keras.tree.flatten(outputs)):
            _warn_of_masks()
            return
        if state.draws_random_numbers():
            return

        def loss_of(part: slice) -> float:
            state.restore()
            return _loss_of_part(model, part, x, y, weights)

        ends = [count * worker // workers for worker in range(workers + 1)]
        parts = [slice(begin, end) for begin, end in itertools.pairwise(ends) if begin < end]
        mean = sum(loss_of(part) * (part.stop - part.start) for part in parts) / count
        whole, again = (loss_of(slice(count)) for _ in range(2))
    except Exception:  # of the caller's code, which training will show
        return
    finally:
        state.restore()
    if whole != again or not np.isfinite(whole):
        return  # it is random
    tolerance = _TOLERANCE.get(model.compute_dtype, _LOW_PRECISION)
    if not np.isclose(whole, mean, rtol=tolerance, atol=1e-6):
        raise UsageError(
            f"the loss of {count} examples is {whole:g}, but {mean:g} on average when {len(parts)} workers have a part "
            "of them each; gradients are averaged over workers, so they need a loss that is a mean over examples: use "
            "workers=1, or return a value for each example that depends on no other"
        )


class _State:
    """What a model counts: variables that a prediction or a loss changes."""

    def __init__(self, model: Any) -> None:
        variables = [*model.non_trainable_variables, *getattr(model, "metrics_variables", [])]
        self._variables = [each for each in variables if str(each.dtype) != "string"]
        self._values = [to_array(each) for each in self._variables]

    def restore(self) -> None:
        assign(self._variables, self._values)

    def draws_random_numbers(self) -> bool:
        """Whether the model has drawn random numbers, of which those of a part are others."""
        held = zip(self._variables, self._values, strict=True)
        return any("seed_generator" in each.path and not np.array_equal(to_array(each), value) for each, value in held)


def _has_own_step(model: Any) -> bool:
    return getattr(model.train_step, "__func__", None) is not keras.Model.train_step


def _is_mean_by_definition(model: Any) -> bool:
    """Whether each part of the loss is one of Keras' own means over examples."""
    if getattr(model.compute_loss, "__func__", None) is not keras.Model.compute_loss:
        return False
    if not all(map(_is_mean, keras.tree.flatten(getattr(model, "loss", None)))):
        return False
    return not any(_adds_losses(type(layer)) for layer in model._flatten_layers())


def _is_mean(loss: Any) -> bool:
    if loss is None:
        return True
    if isinstance(loss, str):
        return loss.lower() not in _OVER_THE_BATCH
    owner = loss if hasattr(loss, "__name__") else type(loss)
    return str(owner.__module__).split(".")[0] == "keras" and owner.__name__.lower() not in _OVER_THE_BATCH


def _adds_losses(kind: type) -> bool:
    """Whether a class of the user's own calls add_loss."""
    own = [each for each in kind.__mro__ if each.__module__.split(".")[0] not in ("keras", "builtins")]
    functions = [value for each in own for value in vars(each).values()]
    return any("add_loss" in getattr(getattr(each, "__code__", None), "co_names", ()) for each in functions)


def _may_mask(model: Any) -> bool:
    """Whether an output may have a mask, by whose sum Keras divides a loss."""
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


def _loss_of_part(model: Any, part: slice, x: Any, y: Any, weights: Any) -> float:
    own_x, own_y, own_weights = (
        each if each is None else keras.tree.map_structure(lambda array: keras.ops.convert_to_tensor(array[part]), each)
        for each in (x, y, weights)
    )
    outputs = model(own_x, training=False)
    return float(keras.ops.convert_to_numpy(model.compute_loss(own_x, own_y, outputs, own_weights)))


def _weights_of_classes(y: Any, class_weight: dict[int, float]) -> Any:
    """Return the weight of each example, as Keras' ``fit`` does."""
    targets = np.asarray(keras.tree.flatten(y)[0])
    classes = targets.argmax(-1) if targets.ndim > 1 and targets.shape[-1] > 1 else targets.reshape(len(targets))
    return np.array([class_weight.get(int(each), 1.0) for each in np.round(classes).ravel()]).reshape(classes.shape)
