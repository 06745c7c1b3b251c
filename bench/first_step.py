#!/usr/bin/env python3
"""Seconds from the call of lockstep.fit to the end of its first step, on keras_mnist's model with two workers.

    bench/first_step.py [--calls N]

Needs the Python package and Keras 3 on any backend. The first call is told apart: Keras imports what it needs to save a
model there, of TensorFlow too if that is installed.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import keras
import numpy as np

import lockstep


class Clock(keras.callbacks.Callback):
    """When the first step ended. It makes the workers wait for it after each batch."""

    first = 0.0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.first = self.first or time.perf_counter()


def make_model() -> keras.Model:
    model = keras.Sequential([
        keras.Input((28, 28)),
        keras.layers.Rescaling(1 / 255),
        keras.layers.Reshape((28, 28, 1)),
        keras.layers.Conv2D(32, 3, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(128, activation="relu"),
        keras.layers.Dense(10),
    ])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.001), loss, metrics=["accuracy"])
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=6, help="after the first one [6]")
    calls: int = parser.parse_args().calls
    random = np.random.default_rng(0)
    x = random.integers(0, 256, (8960, 28, 28), dtype=np.uint8)
    y = random.integers(0, 10, 8960, dtype=np.uint8)
    seconds = []
    for _ in range(calls + 1):
        model, clock = make_model(), Clock()
        began = time.perf_counter()
        lockstep.fit(model, x, y, batch_size=128, workers=2, callbacks=[clock], verbose=0)
        seconds.append(clock.first - began)
    print(f"first step after {seconds[0]:.2f} s in the first call, {statistics.median(seconds[1:]):.2f} s in later ones "
          f"(median of {calls}; the slowest {max(seconds[1:]):.2f} s); Keras on {keras.backend.backend()}")


if __name__ == "__main__":
    main()
