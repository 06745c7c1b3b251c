"""TensorFlow with legacy Keras (tf_keras): `fit`, in one process or under MultiWorkerMirroredStrategy.

Both models use fit, whose compiled train function is as fast as a custom loop. The input follows tf.data's performance
guide: shuffled indices are batched, then gathered and normalized in one vectorized call per batch, and prefetched.
jit_compile (refused under the strategy) and more inter-op threads than cores are slower on the CPU. --keras3 selects
Keras 3, which raises at the first step under the strategy.
"""

from __future__ import annotations

import json
import os
import sys

from common import Job, Stopwatch, parse_job
from mnist import load_mnist

KERAS_3 = "--keras3" in sys.argv


def describe_cluster(job: Job) -> None:
    """Sets TF_CONFIG, which TensorFlow reads when the strategy is constructed."""
    if job.workers > 1:
        cluster = {"worker": job.addresses}
        os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": job.worker}})


def sequential(keras, job: Job):
    layers = keras.layers
    if job.model == "keras_mnist":
        return keras.Sequential(
            [
                layers.Input((28, 28)),
                layers.Reshape((28, 28, 1)),
                layers.Conv2D(32, 3, activation="relu"),
                layers.Flatten(),
                layers.Dense(128, activation="relu"),
                layers.Dense(10, dtype="float32"),
            ]
        )
    return keras.Sequential(
        [
            layers.Input((28, 28, 1)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10, dtype="float32"),
        ]
    )


def compiled_model(keras, job: Job):
    model = sequential(keras, job)
    optimizer = keras.optimizers.SGD(0.001) if job.model == "keras_mnist" else keras.optimizers.Adam()
    model.compile(
        optimizer=optimizer,
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        # Ten steps per call reduce Python's overhead. Under the multi-worker strategy they gain nothing.
        steps_per_execution=10 if job.workers == 1 else 1,
    )
    return model


def batches(tf, job: Job, images, labels):
    """An endless dataset of this worker's batches."""
    pixels, answers = tf.constant(images), tf.constant(labels)
    shape = (-1, 28, 28) if job.model == "keras_mnist" else (-1, 28, 28, 1)

    def gather(indices):
        chosen = tf.cast(tf.gather(pixels, indices), tf.float32) / 255.0
        return tf.reshape(chosen, shape), tf.gather(answers, indices)

    indices = tf.data.Dataset.range(len(labels)).shard(job.workers, job.worker)
    shuffled = indices.shuffle(len(labels) // job.workers + 1).repeat()
    data = shuffled.batch(job.local_batch, drop_remainder=True).map(gather).prefetch(tf.data.AUTOTUNE)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    if job.threads == 1:  # a larger private pool would compete with the step for the only core
        options.threading.private_threadpool_size = 1
    return data.with_options(options)


def train(job: Job) -> None:
    watch = Stopwatch(job)
    describe_cluster(job)
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    import tensorflow as tf

    if KERAS_3:
        import keras
    else:
        import tf_keras as keras

    tf.config.threading.set_intra_op_parallelism_threads(job.threads)
    tf.config.threading.set_inter_op_parallelism_threads(job.threads)
    if job.half:
        keras.mixed_precision.set_global_policy("mixed_bfloat16")
    images, labels = load_mnist(job.data_dir)
    if job.workers > 1:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        with strategy.scope():
            model = compiled_model(keras, job)
        data = strategy.distribute_datasets_from_function(lambda context: batches(tf, job, images, labels))
    else:
        model = compiled_model(keras, job)
        data = batches(tf, job, images, labels)

    class Timing(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            watch.begin()

        def on_epoch_end(self, epoch, logs=None):
            watch.end()
            if epoch + 1 == epochs:  # report here, because fit takes seconds to return
                watch.epoch_seconds = watch.epoch_seconds[1:]
                watch.report("tensorflow", f"{tf.__version__}, keras {keras.__version__}", logs["loss"])

    model.fit(data, epochs=1, steps_per_epoch=1, verbose=0)
    watch.first_step()
    # One call for all epochs keeps the iterator with its shuffle buffer. The first epoch fills the buffer; it is the
    # warm-up and does not count.
    per_epoch = job.steps_per_epoch
    epochs = 1 + job.steps // per_epoch
    model.fit(data, epochs=epochs, steps_per_epoch=per_epoch, verbose=0, callbacks=[Timing()])


if __name__ == "__main__":
    if KERAS_3:
        sys.argv.remove("--keras3")
    train(parse_job(__doc__))
