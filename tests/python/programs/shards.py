"""Gives `lockstep.shard` other data on rank 1 than on rank 0, and data of which ranks may have their own."""

from __future__ import annotations

from typing import Any

import lockstep
import numpy as np

lockstep.init()

import keras  # noqa: E402
from lockstep._data import feed  # noqa: E402

RANK = lockstep.rank()
draw = np.random.default_rng(0)
X, Y = draw.normal(size=(12, 3)).astype("float32"), draw.normal(size=12).astype("float32")


class Batches(keras.utils.PyDataset):
    """Global batches that each rank draws for itself."""

    num_batches = 2

    def __getitem__(self, index: int) -> Any:
        own = np.random.default_rng(RANK).normal(size=(4, 3))
        return own, own[:, 0]


def made() -> Any:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(lockstep.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse")
    return model


def fit(data: Any, validation: Any = None, has_callback: bool = True) -> None:
    callbacks = [lockstep.callbacks.AverageMetrics()] if has_callback else []
    made().fit(data, validation_data=validation, epochs=2, shuffle=False, verbose=0, callbacks=callbacks)


def refused(words: str, *data: Any, **options: Any) -> None:
    try:
        fit(*data, **options)
    except lockstep.UsageError as error:
        assert f"rank 1 gives lockstep.shard {words}; give the same on all ranks" in str(error), error
    else:
        raise AssertionError(f"not refused: {words}")
    feed.shards.clear()  # those that were refused may still be in use


shard = lockstep.shard
if lockstep.is_chief():
    alone = made()
    alone.evaluate(shard(X[:5], Y[:5], batch_size=2, shuffle=False), verbose=0)
fit(shard(X, Y, batch_size=4), shard(X[:5], Y[:5], batch_size=4))
fit(shard(Batches()))
fit(Batches())
for has_callback in (False, True):
    refused("other data: other values in y", shard(X, Y + RANK, batch_size=4), has_callback=has_callback)
refused("other data: other values in x, y", shard(X[::-1] if RANK else X, Y + RANK, batch_size=4))
refused("another seed: 3 on rank 0, 4 on rank 1", shard(X, Y, batch_size=4, seed=3 + RANK))
refused("other data: examples 12 on rank 0, 11 on rank 1", shard(X[RANK:], Y[RANK:], batch_size=4))
refused("other data: other values in x", shard(X, Y, batch_size=4), shard(X + RANK, Y, batch_size=4))
