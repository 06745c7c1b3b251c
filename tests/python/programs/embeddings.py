"""Trains an Embedding whose rows occur several times in each batch, by many optimizers, and compares with Keras' fit.

Prints a line `native: ...` for each optimizer with which Lockstep trains natively.
"""

from __future__ import annotations

import keras
import lockstep
import numpy as np
from keras import optimizers

OPTIMIZERS = {
    "SGD": lambda: optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "Lion": lambda: optimizers.Lion(0.01, weight_decay=0.1),
    "accumulating Adam": lambda: optimizers.Adam(0.01, gradient_accumulation_steps=2),
    "clipping SGD": lambda: optimizers.SGD(0.1, clipvalue=0.02),
    "SGD that clips the norm": lambda: optimizers.SGD(0.1, clipnorm=0.05),
    "SGD that clips the norm of all": lambda: optimizers.SGD(0.1, global_clipnorm=0.05),
    "Adam": lambda: optimizers.Adam(0.01),
    "Nadam": lambda: optimizers.Nadam(0.01),
    "Adamax": lambda: optimizers.Adamax(0.01),
    "Adagrad": lambda: optimizers.Adagrad(0.1),
    "RMSprop": lambda: optimizers.RMSprop(0.01),
    "Ftrl": lambda: optimizers.Ftrl(0.1),
}


def main() -> None:
    random = np.random.default_rng(0)
    x, y = random.integers(0, 5, (13, 6)), random.normal(size=(13, 2))
    for name, make in OPTIMIZERS.items():
        keras.utils.set_random_seed(1)
        layers = [keras.layers.Embedding(5, 3), keras.layers.Flatten(), keras.layers.Dense(2)]
        alone = keras.Sequential([keras.Input((6,), dtype="int32"), *layers])
        model = keras.models.clone_model(alone)
        model.set_weights(alone.get_weights())
        for each in (alone, model):
            each.compile(make(), "mse")
        options = {"batch_size": 13, "epochs": 4, "shuffle": False, "verbose": 0}
        expected = alone.fit(x, y, **options).history["loss"]
        is_native = lockstep.check(model).engine == "native"
        if is_native or name == "Adam":  # the Keras engine starts workers, so one is enough
            found = lockstep.fit(model, x, y, **options).history["loss"]
            np.testing.assert_allclose(found, expected, rtol=1e-4, err_msg=name)
            for ours, theirs in zip(model.get_weights(), alone.get_weights(), strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5, err_msg=name)
        if is_native:
            print("native:", name, flush=True)


if __name__ == "__main__":
    main()
