"""JAX on a GPU: a jitted training step of the same models, in which XLA fuses what it can.

Dataset, order of examples and position stay on the device, each step's buffers are donated to the next, and the loss is
read once per epoch, as in peer_pytorch.py. The program reads one job per line, a JSON object, and answers each with a
line: seconds and test accuracy of each epoch, or the error. `--device cpu` tests this program without a GPU.
"""

from __future__ import annotations

import math
import os
import time
from functools import partial
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # the other programs need memory too

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from data import load_mnist  # noqa: E402
from jax import Array, lax  # noqa: E402
from peer_jobs import answer_jobs  # noqa: E402

Tree = Any  # of arrays

# Shapes of the weights, in the order of the layers: HWIO and [inputs, outputs].
SHAPES = {
    "keras_mnist": ((3, 3, 1, 32), (21632, 128), (128, 10)),
    "custom_training_mnist": ((3, 3, 1, 32), (3, 3, 32, 64), (1600, 64), (64, 10)),
}
LAYOUT = ("NHWC", "HWIO", "NHWC")
MATMUL_PRECISIONS = {"float32": "highest", "tf32": "tensorfloat32", "bf16": "bfloat16"}


def initial_weights(model: str) -> list[tuple[Array, Array]]:
    weights = []
    for key, shape in zip(jax.random.split(jax.random.key(0), len(SHAPES[model])), SHAPES[model]):
        limit = math.sqrt(6 / (math.prod(shape[:-1]) + math.prod(shape[:-2]) * shape[-1]))
        weights.append((jax.random.uniform(key, shape, minval=-limit, maxval=limit), jnp.zeros(shape[-1])))
    return weights


def logits_of(model: str, kind: Any, weights: list[tuple[Array, Array]], pixels: Array) -> Array:
    """The outputs for images [n, 28, 28] of bytes; products in the type `kind`."""
    x = (pixels[..., None].astype(jnp.float32) / 255).astype(kind)
    for kernel, bias in weights:
        if kernel.ndim == 4:
            x = lax.conv_general_dilated(x, kernel.astype(kind), (1, 1), "VALID", dimension_numbers=LAYOUT)
            x = jax.nn.relu(x + bias.astype(kind))
            if model == "custom_training_mnist":
                x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        else:
            x = x.reshape(len(x), -1) @ kernel.astype(kind) + bias.astype(kind)
            if kernel.shape[-1] != 10:
                x = jax.nn.relu(x)
    return x.astype(jnp.float32)


def update(model: str, weights: Tree, slots: Tree, gradients: Tree) -> tuple[Tree, Tree]:
    """SGD, or Adam as Keras computes it."""
    rate = 0.001
    if model == "keras_mnist":
        return jax.tree.map(lambda w, g: w - rate * g, weights, gradients), slots
    mean, square, count = slots
    count += 1
    mean = jax.tree.map(lambda m, g: m + (g - m) * (1 - 0.9), mean, gradients)
    square = jax.tree.map(lambda v, g: v + (g * g - v) * (1 - 0.999), square, gradients)
    scale = rate * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
    weights = jax.tree.map(lambda w, m, v: w - scale * m / (jnp.sqrt(v) + 1e-7), weights, mean, square)
    return weights, (mean, square, count)


class Peer:
    def __init__(self, device: str, data_dir: str) -> None:
        self.device = jax.devices("gpu" if device == "cuda" else device)[0]
        jax.config.update("jax_default_device", self.device)
        (images, labels), (test_images, test_labels) = load_mnist(data_dir)
        self.pixels, self.answers = jnp.asarray(images), jnp.asarray(labels, jnp.int32)
        self.test_pixels, self.test_answers = jnp.asarray(test_images), jnp.asarray(test_labels, jnp.int32)

    def run(self, model: str, batch: int, steps: int, epochs: int, precision: str, **_: object) -> dict[str, Any]:
        with jax.default_matmul_precision(MATMUL_PRECISIONS[precision]):
            return self.measure(model, batch, steps, epochs, jnp.bfloat16 if precision == "bf16" else jnp.float32)

    def measure(self, model: str, batch: int, steps: int, epochs: int, kind: Any) -> dict[str, Any]:
        def loss_of(weights: Tree, x: Array, y: Array) -> tuple[Array, Array]:
            logits = logits_of(model, kind, weights, x)
            chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1)
            return -chosen.mean(), (logits.argmax(1) == y).sum()

        @partial(jax.jit, donate_argnums=0)
        def step(state: Tree, order: Array, pixels: Array, answers: Array) -> Tree:
            weights, slots, position, totals = state
            chosen = lax.dynamic_slice(order, (position,), (batch,))
            y = answers[chosen]
            (loss, right), gradients = jax.value_and_grad(loss_of, has_aux=True)(weights, pixels[chosen], y)
            weights, slots = update(model, weights, slots, gradients)
            return weights, slots, position + batch, totals + jnp.stack([loss, right.astype(jnp.float32)])

        @jax.jit
        def count_right(weights: Tree, x: Array, y: Array) -> Array:
            return loss_of(weights, x, y)[1]

        def zeros(weights: Tree) -> Tree:
            return jax.tree.map(jnp.zeros_like, weights)

        weights = initial_weights(model)
        state: Tree = (weights, (zeros(weights), zeros(weights), jnp.zeros(())), jnp.int32(0), jnp.zeros(2))
        shuffles = jax.random.split(jax.random.key(1), epochs + 1)

        def train(state: Tree, shuffle: Array, count: int) -> Tree:
            order = jax.random.permutation(shuffle, len(self.answers))
            state = (*state[:2], jnp.int32(0), jnp.zeros(2))
            for _ in range(count):
                state = step(state, order, self.pixels, self.answers)
            state[3].tolist()
            return state

        state = train(state, shuffles[0], min(5, steps))
        seconds, accuracies = [], []
        for shuffle in shuffles[1:]:
            began = time.perf_counter()
            state = train(state, shuffle, steps)
            seconds.append(time.perf_counter() - began)
            parts = range(0, len(self.test_answers), 1000)
            right = sum(int(count_right(state[0], self.test_pixels[at:at + 1000], self.test_answers[at:at + 1000]))
                        for at in parts)  # fmt: skip
            accuracies.append(right / len(self.test_answers))
        return {"version": jax.__version__, "epoch_seconds": seconds, "accuracies": accuracies}


if __name__ == "__main__":
    answer_jobs(__doc__, Peer)
