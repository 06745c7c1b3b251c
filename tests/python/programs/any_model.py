"""Trains models that the native engine does not know with `lockstep.fit`, and compares them with Keras' own ``fit``.

any_model.py MODEL:WORKERS...: the models are those of Keras' examples, made small.
"""

from __future__ import annotations

import sys
from typing import Any

import keras
import lockstep
import numpy as np
from keras import layers, ops

TOLERANCE = 1e-3  # of float32 sums in another order, after some steps of Adam
FLIPPED = 2.5  # examples near a boundary, whose class the order of sums decides
draw = np.random.default_rng(0)
X = draw.normal(size=(60, 8)).astype("float32")
SERIES = draw.normal(size=(60, 5, 3)).astype("float32")
WORDS = draw.integers(0, 20, (60, 6))
CLASSES = draw.integers(0, 3, 60)


class Scaled(layers.Layer):
    """A layer of this program, without get_config for its argument."""

    def __init__(self, units: int, activation: Any) -> None:
        super().__init__()
        self.units, self.activation = units, activation

    def build(self, shape: Any) -> None:
        self.kernel = self.add_weight(shape=(shape[-1], self.units))
        self.scale = self.add_weight(shape=(), initializer="ones")

    def call(self, x: Any) -> Any:
        return self.scale * self.activation(ops.matmul(x, self.kernel))


class TransformerBlock(layers.Layer):
    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.attention = layers.MultiHeadAttention(heads, size)
        self.feed = keras.Sequential([layers.Dense(2 * size, activation="relu"), layers.Dense(size)])
        self.norms = [layers.LayerNormalization(), layers.LayerNormalization()]

    def call(self, x: Any) -> Any:
        x = self.norms[0](x + self.attention(x, x))
        return self.norms[1](x + self.feed(x))


class VAE(keras.Model):
    """A variational autoencoder with its own train_step on each backend; its noise is that of its input."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = keras.Sequential([keras.Input((8,)), layers.Dense(6, activation="relu"), layers.Dense(4)])
        self.decoder = keras.Sequential([keras.Input((2,)), layers.Dense(6, activation="relu"), layers.Dense(8)])
        self.loss_tracker = keras.metrics.Mean(name="loss")

    @property
    def metrics(self) -> list[Any]:
        return [self.loss_tracker]

    def call(self, x: Any) -> Any:
        code = self.encoder(x)
        mean, spread = code[:, :2], code[:, 2:]
        return self.decoder(mean + ops.exp(0.5 * spread) * ops.sin(50 * x[:, :2])), mean, spread

    def loss_of(self, x: Any, result: Any) -> Any:
        decoded, mean, spread = result
        divergence = -0.5 * (1 + spread - ops.square(mean) - ops.exp(spread))
        return ops.mean(ops.sum(ops.square(x - decoded), 1) + ops.sum(divergence, 1))

    def train_step(self, *arguments: Any) -> Any:
        backend = keras.backend.backend()
        if backend == "jax":
            return self._train_step_jax(*arguments)
        x = arguments[0]
        if backend == "tensorflow":
            import tensorflow as tf

            with tf.GradientTape() as tape:
                loss = self.loss_of(x, self(x))
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        else:
            import torch

            self.zero_grad()
            loss = self.loss_of(x, self(x))
            loss.backward()
            with torch.no_grad():
                self.optimizer.apply([each.value.grad for each in self.trainable_weights], self.trainable_weights)
        self.loss_tracker.update_state(loss, sample_weight=ops.shape(x)[0])
        return {"loss": self.loss_tracker.result()}

    def _train_step_jax(self, state: Any, data: Any) -> Any:
        import jax

        x = data
        trainable, others, optimizer, metrics = state

        def loss_of(trainable: Any) -> Any:
            result, updated = self.stateless_call(trainable, others, x)
            return self.loss_of(x, result), updated

        (loss, others), gradients = jax.value_and_grad(loss_of, has_aux=True)(trainable)
        trainable, optimizer = self.optimizer.stateless_apply(optimizer, gradients, trainable)
        metrics = self.loss_tracker.stateless_update_state(metrics, loss, sample_weight=ops.shape(x)[0])
        logs = {"loss": self.loss_tracker.stateless_result(metrics)}
        return logs, (trainable, others, optimizer, metrics)


def make(name: str) -> tuple[Any, tuple[Any, ...]]:
    """Return a compiled model and its data."""
    keras.utils.set_random_seed(1)
    if name == "vae":
        model = VAE()
        model.build((None, 8))
        model.compile(optimizer=keras.optimizers.Adam(0.01))
        return model, (X,)
    bodies = {
        "layer": (X, lambda: [keras.Input((8,)), Scaled(6, ops.tanh), layers.Lambda(lambda x: ops.sin(x))]),
        "lstm": (SERIES, lambda: [keras.Input((5, 3)), layers.LSTM(4), Scaled(4, ops.tanh)]),
        "transformer": (WORDS, lambda: [
            keras.Input((6,)), layers.Embedding(20, 8), TransformerBlock(8, 2), layers.GlobalAveragePooling1D()]),
    }  # fmt: skip
    x, body = bodies[name]
    model = keras.Sequential([*body(), layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    return model, (x, CLASSES)


for case in sys.argv[1:]:
    name, workers = case.split(":")
    expected_model, data = make(name)
    options: dict[str, Any] = {"epochs": 3, "batch_size": 16, "shuffle": False, "verbose": 0}
    expected = expected_model.fit(*data, **options).history
    model, data = make(name)
    assert lockstep.check(model).engine == "keras", name
    found = lockstep.fit(model, *data, workers=int(workers), engine="keras", **options).history
    assert found.keys() == expected.keys(), (found, expected)
    for key, values in expected.items():
        tolerance = TOLERANCE if key == "loss" else FLIPPED / len(CLASSES)
        np.testing.assert_allclose(
            found[key], values, atol=tolerance, rtol=TOLERANCE, err_msg=f"{name} {found} {expected}"
        )
    for own, theirs in zip(model.get_weights(), expected_model.get_weights(), strict=True):
        np.testing.assert_allclose(own, theirs, atol=TOLERANCE, rtol=TOLERANCE, err_msg=name)
    assert int(model.optimizer.iterations) == int(expected_model.optimizer.iterations) == 12, name
    print("equal:", case, flush=True)
