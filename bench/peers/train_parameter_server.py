"""TensorFlow's ParameterServerStrategy with legacy Keras (tf_keras): `fit` of keras_mnist's model, asynchronous.

One process for each task of TF_CONFIG: servers and workers run a TensorFlow server until they are killed, the chief trains
and prints the seconds of each epoch as JSON. An epoch is STEPS steps of one worker's batch each. Images are random numbers,
since only the speed is of interest. With fewer inter-op threads than workers and one more, a server hangs.

    train_parameter_server.py BATCH STEPS EPOCHS
"""

from __future__ import annotations

import json
import os
import sys
import time

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import tensorflow as tf  # noqa: E402

EXAMPLES = 4096


def serve(resolver: tf.distribute.cluster_resolver.TFConfigClusterResolver) -> None:
    options = tf.compat.v1.ConfigProto()
    options.inter_op_parallelism_threads = 4
    options.intra_op_parallelism_threads = 1
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc",
        config=options,
    )  # fmt: skip
    server.join()


def train(resolver: tf.distribute.cluster_resolver.TFConfigClusterResolver, batch: int, steps: int, epochs: int) -> None:
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    layers = tf.keras.layers
    with strategy.scope():
        model = tf.keras.Sequential(
            [
                layers.Input((28, 28)),
                layers.Reshape((28, 28, 1)),
                layers.Conv2D(32, 3, activation="relu"),
                layers.Flatten(),
                layers.Dense(128, activation="relu"),
                layers.Dense(10),
            ]
        )
        model.compile(
            tf.keras.optimizers.SGD(0.001), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"], steps_per_execution=10,
        )  # fmt: skip

    def batches(context: tf.distribute.InputContext) -> tf.data.Dataset:
        images = tf.random.uniform((EXAMPLES, 28, 28), seed=context.input_pipeline_id)
        labels = tf.random.uniform((EXAMPLES,), maxval=10, dtype=tf.int32)
        return tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(EXAMPLES).repeat().batch(batch).prefetch(4)

    ends = [time.perf_counter()]
    clock = tf.keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: ends.append(time.perf_counter()))
    data = tf.keras.utils.experimental.DatasetCreator(batches)
    model.fit(data, epochs=epochs, steps_per_epoch=steps, callbacks=[clock], verbose=0)
    print(json.dumps({"epoch_seconds": [end - begin for begin, end in zip(ends, ends[1:])]}), flush=True)


if __name__ == "__main__":
    tf.config.threading.set_intra_op_parallelism_threads(1)
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if cluster.task_type == "chief":
        train(cluster, *map(int, sys.argv[1:4]))
        os._exit(0)  # the strategy's threads wait for servers that nobody needs any more
    serve(cluster)
