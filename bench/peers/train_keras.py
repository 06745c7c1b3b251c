"""Trains a model's file with Keras' fit, on the backend that KERAS_BACKEND names:
train_keras.py FOLDER BATCH STEPS EPOCHS. Prints the epochs' times as JSON."""

import json
import os
import sys
import time
from typing import Any

import keras
import numpy as np
from common import peak_memory_mb


class Stopwatch(keras.callbacks.Callback):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.epoch_seconds: list[float] = []
        self.begun = 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.begun = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.epoch_seconds.append(time.perf_counter() - self.begun)


def use_threads(threads: int) -> None:
    """JAX takes as many threads as the process may use cores."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow

        tensorflow.config.threading.set_intra_op_parallelism_threads(threads)
        tensorflow.config.threading.set_inter_op_parallelism_threads(1)
    if keras.backend.backend() == "torch":
        import torch

        torch.set_num_threads(threads)


def main() -> None:
    folder, batch, steps, epochs = sys.argv[1], *map(int, sys.argv[2:5])
    use_threads(len(os.sched_getaffinity(0)))
    model = keras.models.load_model(f"{folder}/model.keras")
    data = np.load(f"{folder}/data.npz")
    watch = Stopwatch()
    model.fit(data["x_train"], data["y_train"], batch_size=batch, epochs=epochs, verbose=0, callbacks=[watch])
    assert len(data["y_train"]) == batch * steps
    print(json.dumps({"epoch_seconds": watch.epoch_seconds, "peak_memory_mb": peak_memory_mb()}))


if __name__ == "__main__":
    main()
