"""Trains a model whose normalizations are synchronized, on two workers, and compares with Keras' fit of one process.

The compared model has `synchronized=False`. Keras has the option on TensorFlow alone.
"""

from __future__ import annotations

import keras
import lockstep
import numpy as np


def make_model(synchronized: bool) -> keras.Model:
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((6, 6, 2)),
            layers.Conv2D(4, 3, use_bias=False),
            layers.BatchNormalization(momentum=0.5, synchronized=synchronized),
            layers.Activation("relu"),
            layers.Flatten(),
            layers.Dense(5, use_bias=False),
            layers.BatchNormalization(scale=False, synchronized=synchronized),
            layers.Dense(3, activation="softmax"),
        ]
    )
    model.compile(keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(), metrics=["accuracy"])
    return model


def main() -> None:
    random = np.random.default_rng(3)
    x, y = random.normal(size=(44, 6, 6, 2)).astype("float32"), random.integers(0, 3, 44)
    alone, model = make_model(False), make_model(True)
    model.set_weights(alone.get_weights())
    options = {"batch_size": 16, "shuffle": False, "verbose": 0, "epochs": 3}
    expected = alone.fit(x, y, **options).history
    history = lockstep.fit(model, x, y, workers=2, engine="native", **options).history
    for key, values in expected.items():
        np.testing.assert_allclose(history[key], values, rtol=1e-4, err_msg=key)
    for ours, theirs in zip(model.get_weights(), alone.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)
    try:
        lockstep.fit(model, x, y, workers=2, engine="keras", **options)
    except lockstep.UsageError as error:
        print(f"refused: {error}")


if __name__ == "__main__":
    main()
