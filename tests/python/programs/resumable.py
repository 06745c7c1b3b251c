"""Trains with backups, and kills a rank at given steps of given generations.

resumable.py FOLDER KILLS [CHANGES]: KILLS is JSON, a list of [rank, step] by generation; CHANGES is JSON, what to begin
with instead of the values below. Writes FOLDER/history.json at the end.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import lockstep
import numpy as np

lockstep.init()

import keras  # noqa: E402

folder = Path(sys.argv[1])
kills = json.loads(sys.argv[2])
begin = {"rate": 0.01, "beta_1": 0.9, "units": 16, "batch_size": 8, "seed": 4, "examples": 96, "shift": 0, "epochs": 3}
begin |= {"rates": []}  # of the first epochs
begin |= json.loads(sys.argv[3]) if len(sys.argv) > 3 else {}
generation = int(os.environ["LOCKSTEP_GENERATION"])


class Kill(keras.callbacks.Callback):
    steps = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.steps += 1
        if generation <= len(kills) and kills[generation - 1] == [lockstep.rank(), self.steps]:
            os.kill(os.getpid(), signal.SIGKILL)


class Halve(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        rates = begin["rates"]
        self.model.optimizer.learning_rate = rates[epoch] if epoch < len(rates) else begin["rate"] * 0.5**epoch


keras.utils.set_random_seed(3)
rng = np.random.default_rng(0)
x = rng.normal(size=(96, 10)).astype("float32")[: begin["examples"]]
y = rng.integers(0, 3, 96)[: begin["examples"]]
x[-1] += begin["shift"]
layers = [
    keras.Input((10,)),
    keras.layers.Dense(begin["units"]),
    keras.layers.BatchNormalization(),
    keras.layers.Activation("relu"),
]
model = keras.Sequential([*layers, keras.layers.Dropout(0.2), keras.layers.Dense(3)])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer = lockstep.DistributedOptimizer(keras.optimizers.Adam(begin["rate"], beta_1=begin["beta_1"]))
model.compile(optimizer, loss=loss, metrics=["accuracy"])
history = model.fit(
    lockstep.shard(x, y, batch_size=begin["batch_size"], seed=begin["seed"]),
    validation_data=lockstep.shard(x[:20], y[:20], batch_size=10, shuffle=False),
    epochs=begin["epochs"],
    verbose=0,
    shuffle=False,
    callbacks=[
        lockstep.callbacks.BackupAndRestore(folder / "backup", save_freq=3),
        lockstep.callbacks.ModelCheckpoint(folder / f"checkpoint-{lockstep.rank()}.keras"),
        Halve(),
        Kill(),
    ],
)
logs = {key: [float(value).hex() for value in values] for key, values in history.history.items()}
weights = [keras.ops.convert_to_numpy(weight).tobytes().hex() for weight in model.weights]
everything = lockstep.allgather_object(weights)
assert everything[0] == everything[-1]
if lockstep.is_chief():
    epochs = [int(epoch) for epoch in history.epoch]
    (folder / "history.json").write_text(json.dumps({"logs": logs, "epochs": epochs, "weights": weights}))
