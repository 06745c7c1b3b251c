"""Trains small models in every way that the package offers, and writes what came out as JSON.

cases.py RESULTS: each rank writes RESULTS.RANK. The tests compare one worker with two.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import lockstep
import numpy as np

lockstep.init()

import keras  # noqa: E402

BACKEND = keras.backend.backend()
EPOCHS = 2
rng = np.random.default_rng(0)
X = rng.normal(size=(101, 12)).astype("float32")
Y = rng.integers(0, 4, 101)
WORDS = rng.integers(0, 50, (101, 6))


def weights_of(model: Any) -> list[float]:
    return [float(np.abs(keras.ops.convert_to_numpy(weight)).sum()) for weight in model.trainable_weights]


def digest_of(model: Any) -> str:
    data = b"".join(keras.ops.convert_to_numpy(weight).tobytes() for weight in model.weights)
    return hashlib.sha256(data).hexdigest()


def result_of(model: Any, history: Any = None) -> dict[str, Any]:
    logs = {} if history is None else {key: [float(each) for each in values] for key, values in history.history.items()}
    return {"weights": weights_of(model), "logs": logs, "digest": digest_of(model)}


def dense_model(seed: int, units: int = 16) -> Any:
    keras.utils.set_random_seed(seed)
    layers = [keras.Input((12,)), keras.layers.Dense(units, activation="relu"), keras.layers.Dense(4)]
    return keras.Sequential(layers)


LOSS = {"loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True), "metrics": ["accuracy"]}


def fit_dense(units: int = 16, **options: Any) -> dict[str, Any]:
    # The ranks begin with different weights: the chief's count. 101 examples end with a batch of 2 + 1.
    model = dense_model(1 + lockstep.rank(), units)
    optimizer = keras.optimizers.Adam(0.01, clipnorm=0.5)
    model.compile(lockstep.DistributedOptimizer(optimizer, **options), **LOSS)
    history = model.fit(
        lockstep.shard(X, Y, batch_size=14),
        validation_data=lockstep.shard(X[:33], Y[:33], batch_size=10, shuffle=False),
        epochs=EPOCHS,
        verbose=0,
        shuffle=False,
        callbacks=[lockstep.callbacks.AverageMetrics()],
    )
    assert type(optimizer).__name__ == "Adam"
    assert "lockstep" not in json.dumps(keras.saving.serialize_keras_object(model.optimizer))
    return result_of(model, history)


def fit_words() -> dict[str, Any]:
    """An embedding, whose gradient is sparse in TensorFlow, and of which batches use different rows."""
    keras.utils.set_random_seed(5)
    layers = [keras.Input((6,), dtype="int32"), keras.layers.Embedding(50, 8), keras.layers.Flatten()]
    model = keras.Sequential([*layers, keras.layers.Dense(4)])
    model.compile(lockstep.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)), **LOSS)
    callbacks = [lockstep.callbacks.AverageMetrics()]
    return result_of(
        model,
        model.fit(
            lockstep.shard(WORDS, Y, batch_size=10), epochs=EPOCHS, verbose=0, shuffle=False, callbacks=callbacks
        ),
    )


def fit_tiny_batch() -> dict[str, Any]:
    """The last global batch has one example: with two workers, one of them has none, and joins."""
    model = dense_model(7)
    model.compile(lockstep.DistributedOptimizer(keras.optimizers.SGD(0.1)), **LOSS)
    data = lockstep.shard(X[:21], Y[:21], batch_size=10)
    callbacks = [lockstep.callbacks.AverageMetrics()]
    return result_of(model, model.fit(data, epochs=EPOCHS, verbose=0, shuffle=False, callbacks=callbacks))


def custom_loop() -> dict[str, Any]:
    """A loop of the user's own on NumPy arrays: linear regression by gradient descent."""
    own = slice(lockstep.rank(), 100, lockstep.size())
    weights = lockstep.broadcast(np.full(12, float(lockstep.rank())))
    target = X @ np.arange(12.0)
    for _ in range(20):
        error = X[own] @ weights - target[own]
        averages = lockstep.allreduce({"gradient": X[own].T @ error / len(error), "none": None})
        weights = weights - 0.05 * averages["gradient"]
    lockstep.barrier()
    counts = lockstep.allreduce([np.int64(3), np.float32(lockstep.rank())], op="sum")
    assert counts[0] == 3 * lockstep.size() and counts[0].dtype == np.int64
    assert lockstep.allgather_object({"rank": lockstep.rank()}) == [{"rank": r} for r in range(lockstep.size())]
    return {"weights": weights.tolist(), "logs": {}, "digest": hashlib.sha256(weights.tobytes()).hexdigest()}


def uneven() -> dict[str, Any]:
    """Data that lockstep knows nothing of, and of which rank 1 has less. All ranks end with the same weights."""
    model = dense_model(9)
    model.compile(lockstep.DistributedOptimizer(keras.optimizers.Adam(0.01)), **LOSS)
    batches = 4 - 2 * lockstep.rank()

    class Batches(keras.utils.PyDataset):
        num_batches = batches

        def __getitem__(self, index: int) -> Any:
            return X[8 * index : 8 * index + 8], Y[8 * index : 8 * index + 8]

    history = model.fit(
        Batches(), epochs=EPOCHS, verbose=0, shuffle=False, callbacks=[lockstep.callbacks.AverageMetrics()]
    )
    assert int(model.optimizer.iterations) == 4 * EPOCHS
    return result_of(model, history)


cases = {
    "dense": fit_dense(),
    "small_buckets": fit_dense(bucket_bytes=64),
    "words": fit_words(),
    "tiny_batch": fit_tiny_batch(),
    "custom_loop": custom_loop(),
    "uneven": uneven(),
    # Wide enough that its gradients are worth compressing.
    "wide": fit_dense(units=512),
    "bfloat16": fit_dense(units=512, compression="bfloat16"),
}
if BACKEND == "torch":
    cases["overlap"] = fit_dense(overlap=True, bucket_bytes=64)
Path(f"{sys.argv[1]}.{lockstep.rank()}").write_text(json.dumps(cases))
