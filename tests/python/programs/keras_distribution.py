"""A keras.distribution program that knows nothing of Lockstep: two JAX processes, found by Keras' variables."""

from __future__ import annotations

import sys

import keras
import numpy as np

keras.distribution.initialize()
keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
import jax  # noqa: E402

keras.utils.set_random_seed(0)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
model.compile("sgd", "mse")
rng = np.random.default_rng(jax.process_index())
history = model.fit(rng.normal(size=(16, 4)), rng.normal(size=(16, 2)), batch_size=4, epochs=1, verbose=0)
learned = history.history["loss"][0] > 0
# One write, since the launcher passes on what each process writes as it comes.
sys.stdout.write(f"process {jax.process_index()} of {jax.process_count()} {learned}\n")
