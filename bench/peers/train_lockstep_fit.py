"""Trains a model's file with lockstep.fit in the native engine: train_lockstep_fit.py FOLDER BATCH EPOCHS WORKERS SEED.

Prints a line after each epoch, as `lockstep train --verbose 2` does.
"""

from __future__ import annotations

import sys
from typing import Any

import keras
import lockstep
import numpy as np


def main() -> None:
    folder, batch, epochs, workers, seed = sys.argv[1], *map(int, sys.argv[2:6])
    model: Any = keras.models.load_model(f"{folder}/model.keras")
    data = np.load(f"{folder}/data.npz")
    lockstep.fit(model, data["x_train"], data["y_train"], batch_size=batch, epochs=epochs, workers=workers, seed=seed,
                 engine="native", verbose=2)  # fmt: skip


if __name__ == "__main__":
    main()
