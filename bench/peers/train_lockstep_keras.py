"""Trains a model's file in Lockstep's Keras engine, on the backend that KERAS_BACKEND names.

    lockstep launch --workers N -- python train_lockstep_keras.py FOLDER BATCH STEPS EPOCHS [--overlap]

A user's program: lockstep.init, DistributedOptimizer, shard, and Keras' own fit, without backups, since the peers have
none either. Each worker has one core. BATCH is the global batch. The chief prints the epochs' times as JSON.
--overlap: on PyTorch, average gradients while backward computes others.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import lockstep

lockstep.init()

from pinning import pin  # noqa: E402

pin()

import keras  # noqa: E402
import numpy as np  # noqa: E402
from common import peak_memory_mb  # noqa: E402
from train_keras import Stopwatch, use_threads  # noqa: E402


def main() -> None:
    folder, batch, steps, epochs = sys.argv[1], *map(int, sys.argv[2:5])
    use_threads(1)
    model: Any = keras.models.load_model(f"{folder}/model.keras")
    optimizer = lockstep.DistributedOptimizer(model.optimizer, overlap="--overlap" in sys.argv)
    model.compile(optimizer, model.loss)
    data = np.load(f"{folder}/data.npz")
    assert len(data["y_train"]) == batch * steps
    watch = Stopwatch()
    shard = lockstep.shard(data["x_train"], data["y_train"], batch_size=batch)
    history = model.fit(shard, epochs=epochs, verbose=0, shuffle=False, callbacks=[watch])
    if lockstep.is_chief():
        seconds = {"epoch_seconds": watch.epoch_seconds, "peak_memory_mb": peak_memory_mb()}
        print(json.dumps({**seconds, "loss": history.history["loss"][-1]}))


if __name__ == "__main__":
    main()
