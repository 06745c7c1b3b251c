"""Trains with crossentropies after activations, natively where Lockstep chooses so, and compares with Keras' fit.

Prints a line `native: ...` for each pair that the native engine trains.
"""

from __future__ import annotations

import itertools
from typing import Any

import keras
import lockstep
import numpy as np

CLASSES = 4
LOSSES = (
    keras.losses.SparseCategoricalCrossentropy,
    keras.losses.CategoricalCrossentropy,
    keras.losses.BinaryCrossentropy,
    keras.losses.CategoricalFocalCrossentropy,
    keras.losses.BinaryFocalCrossentropy,
)


def main() -> None:
    random = np.random.default_rng(3)
    x, classes = random.uniform(-1, 1, (64, 3)), random.integers(0, CLASSES, 64)
    for last, loss, from_logits in itertools.product((None, "softmax", "sigmoid", "softplus"), LOSSES, (False, True)):
        if last is None and not from_logits:
            continue  # logarithms of negative numbers
        if last == "softplus" and "Binary" in loss.__name__ and not from_logits:
            continue  # near 1, 1 / (1 - p) enlarges rounding errors a thousandfold
        compare(x, classes, last, loss, from_logits, [])
    follows = ("Identity", "linear", "Dropout") if keras.backend.backend() == "tensorflow" else ("Identity",)
    for last, loss, after in itertools.product(("softmax", "sigmoid"), LOSSES, follows):
        layer = {"Identity": keras.layers.Identity(), "linear": keras.layers.Activation("linear"),
                 "Dropout": keras.layers.Dropout(0.0)}[after]  # fmt: skip
        compare(x, classes, last, loss, False, [layer])
    x, classes = random.uniform(-1, 1, (64, 2, 5, 3)), random.integers(0, CLASSES, (64, 2, 5))  # a class for each pixel
    for last, loss in itertools.product((None, "softmax", "sigmoid"), LOSSES):
        compare(x, classes, last, loss, last is None, [])
    compare(x, classes[..., None], "softmax", LOSSES[0], False, [])


def compare(x: Any, classes: Any, last: str | None, loss: Any, from_logits: bool, after: list[Any]) -> None:
    """Train with Keras and natively, if Lockstep would; some probabilities are so small that only logits tell them."""
    targets = classes if loss is LOSSES[0] else keras.utils.to_categorical(classes, CLASSES)
    for scale, own_metric in itertools.product((1.0, 30.0), (False, True)):
        near_1 = scale > 1 and "Binary" in loss.__name__ and keras.backend.backend() != "tensorflow"
        if scale > 1 and (last not in ("softmax", "sigmoid") or (near_1 and last == "softmax")):
            continue  # none are so small, or they are near 1, as above
        if scale > 1 and last == "sigmoid" and x.ndim > 2:
            continue  # several are 1 but for rounding, and of so many pixels some have another largest output
        limits = {"rtol": 5e-3, "atol": 5e-3} if near_1 else {"rtol": 1e-4, "atol": 1e-5}
        if own_metric and not hasattr(keras.metrics, loss.__name__):
            continue
        keras.utils.set_random_seed(1)
        alone = keras.Sequential([keras.Input(x.shape[1:]), keras.layers.Dense(CLASSES, last), *after])
        alone.set_weights([scale * each for each in alone.get_weights()])
        model = keras.models.clone_model(alone)
        model.set_weights(alone.get_weights())
        for each in (alone, model):
            metric = getattr(keras.metrics, loss.__name__)() if own_metric else "accuracy"
            each.compile(keras.optimizers.SGD(0.1), loss(from_logits=from_logits), metrics=[metric])
        layers = "".join(f", {each.name}" for each in after)
        layers += ", in a metric too" if own_metric else ""
        name = f"{loss.__name__}(from_logits={from_logits}) after {last}{layers}, weights x {scale:g}, x {x.shape}"
        if lockstep.check(model).engine != "native":
            continue  # Keras' engine computes as Keras
        print(f"native: {name}", flush=True)
        options = {"batch_size": 16, "shuffle": False, "verbose": 0, "epochs": 2}
        expected = alone.fit(x, targets, **options).history
        history = lockstep.fit(model, x, targets, workers=1, engine="native", **options).history
        for key, values in expected.items():
            np.testing.assert_allclose(history[key], values, **limits, err_msg=f"{name}: {key}")
        for ours, theirs in zip(model.get_weights(), alone.get_weights(), strict=True):
            np.testing.assert_allclose(ours, theirs, **limits, err_msg=name)


if __name__ == "__main__":
    main()
