"""Trains a model's file on Keras' JAX backend with keras.distribution.DataParallel over several processes.

    lockstep launch --workers N -- python train_keras_distribution.py FOLDER BATCH STEPS EPOCHS

Knows nothing of Lockstep: keras.distribution.initialize() reads Keras' own variables. Each process feeds its slice of
every global batch. BatchNormalization sees the whole global batch, as everywhere in JAX's SPMD. Each process has one
core. BATCH is the global batch. Process 0 prints the epochs' times as JSON.
"""

from __future__ import annotations

from pinning import pin

pin()

import json  # noqa: E402
import sys  # noqa: E402
from typing import Any  # noqa: E402

import keras  # noqa: E402
import numpy as np  # noqa: E402

keras.distribution.initialize()
keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))

import jax  # noqa: E402
from common import peak_memory_mb  # noqa: E402
from train_keras import Stopwatch  # noqa: E402


def main() -> None:
    folder, batch, steps, epochs = sys.argv[1], *map(int, sys.argv[2:5])
    process, processes = jax.process_index(), jax.process_count()
    model: Any = keras.models.load_model(f"{folder}/model.keras")
    data = np.load(f"{folder}/data.npz")
    assert len(data["y_train"]) == batch * steps
    x, y = data["x_train"][process::processes], data["y_train"][process::processes]
    watch = Stopwatch()
    history = model.fit(x, y, batch_size=batch // processes, epochs=epochs, verbose=0, callbacks=[watch])
    if process == 0:
        seconds = {"epoch_seconds": watch.epoch_seconds, "peak_memory_mb": peak_memory_mb()}
        print(json.dumps({**seconds, "loss": float(history.history["loss"][-1])}))


if __name__ == "__main__":
    main()
