"""Trains, evaluates and predicts on data in batches in the Keras engine, with 1 and 2 workers, as Keras does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import lockstep
import numpy as np
from keras import layers, ops

TOLERANCE = 1e-3  # of float32 sums in another order, after some steps of Adam
draw = np.random.default_rng(0)
X = draw.normal(size=(61, 8)).astype("float32")
Y = draw.integers(0, 3, 61)


class Own(layers.Layer):
    """A layer that the native engine does not know."""

    def call(self, x: Any) -> Any:
        return ops.sin(x)


class Batches(keras.utils.PyDataset):
    """Five batches, the last of which has one example."""

    num_batches = 5

    def __getitem__(self, index: int) -> Any:
        own = slice(15 * index, 15 * (index + 1))
        return X[own], Y[own]


def generate() -> Iterator[Any]:
    while True:
        for begin in range(0, 60, 20):
            yield X[begin : begin + 20], Y[begin : begin + 20]


def make() -> Any:
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((8,)), layers.Dense(6), Own(), layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    return model


for workers in (1, 2):
    model, alone = make(), make()
    options: dict[str, Any] = {"epochs": 3, "verbose": 0, "shuffle": False}
    expected = alone.fit(Batches(), validation_data=generate(), validation_steps=2, **options).history
    found = lockstep.fit(
        model, Batches(), validation_data=generate(), validation_steps=2, workers=workers, **options
    ).history
    assert found.keys() == expected.keys(), found
    for key in ("loss", "val_loss"):
        np.testing.assert_allclose(found[key], expected[key], atol=TOLERANCE, err_msg=f"{found} {expected}")
    for own, theirs in zip(model.get_weights(), alone.get_weights(), strict=True):
        np.testing.assert_allclose(own, theirs, atol=TOLERANCE, rtol=TOLERANCE)
    assert int(model.optimizer.iterations) == int(alone.optimizer.iterations) == 15
    np.testing.assert_allclose(
        lockstep.evaluate(model, X, Y, workers=workers), model.evaluate(X, Y, verbose=0), atol=TOLERANCE
    )
    np.testing.assert_allclose(
        lockstep.predict(model, Batches(), workers=workers), model.predict(X, verbose=0), atol=TOLERANCE
    )
    # Keras' predict has left a function in the model, which does not go to workers.
    predicted = lockstep.predict(model, X, workers=workers)
    np.testing.assert_allclose(predicted, model.predict(X, verbose=0), atol=TOLERANCE)
    print("equal:", workers, flush=True)
