"""Makes the mistake that is its argument, on rank 1 or on all ranks."""

from __future__ import annotations

import sys

import lockstep
import numpy as np

mistake = sys.argv[1]
if mistake == "no_init":
    lockstep.rank()
lockstep.init()
if mistake == "rank_raises":
    lockstep.barrier()
    if lockstep.rank() == 1:
        raise KeyError("a column that is not there")
    lockstep.barrier()
if mistake == "disagree":
    lockstep.barrier() if lockstep.rank() == 0 else lockstep.allgather_object(1)
if mistake in ("not_distributed", "own_weights", "broadcast_weights"):
    import keras

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd" if mistake == "not_distributed" else lockstep.DistributedOptimizer("sgd"), "mse")
    if mistake == "broadcast_weights":
        lockstep.broadcast(model)
    averages = [lockstep.callbacks.AverageMetrics()] if mistake == "not_distributed" else []
    model.fit(np.zeros((4, 2)), np.zeros(4), verbose=0, callbacks=averages)
if mistake == "ends_early" and lockstep.rank() == 0:
    lockstep.allreduce(np.zeros(3))
