"""Prints the numbers of tests/unit/layers/reference_keras_test.cpp, which Keras computes in double precision.

    KERAS_BACKEND=jax python3 tests/interop/reference_golden.py

Needs keras (the numbers are from 3.15.1) and jax. Both files define weights, inputs and targets by the same formulas.
"""

import math

import jax

jax.config.update("jax_enable_x64", True)

import keras  # noqa: E402
import numpy as np  # noqa: E402
from keras import layers, losses, optimizers  # noqa: E402
from keras.src.backend.common import dtypes  # noqa: E402

keras.config.set_floatx("float64")
keras.config.set_dtype_policy("float64")
dtypes.BIT64_TO_BIT32_DTYPE["float64"] = "float64"  # otherwise Keras' JAX backend rounds to float32
EXAMPLES = 6
STEPS = 3


def initial(name, parameter, elements):
    base = 1.0 if name in ("gamma", "moving_variance") else 0.0
    return [base + 0.3 * math.sin(1.7 * parameter + 0.61 * i + 0.2) for i in range(elements)]


def variables(model):
    return [v for layer in model.layers for v in layer.trainable_variables + layer.non_trainable_variables]


def inputs(model, step):
    shape = (EXAMPLES, *model.input_shape[1:])
    return np.array([math.sin(0.37 * i + step) for i in range(math.prod(shape))]).reshape(shape)


def targets(model, loss, step):
    classes = model.output_shape[-1]
    if isinstance(loss, losses.SparseCategoricalCrossentropy):
        return np.array([(5 * i + step) % classes for i in range(EXAMPLES)])
    dense = np.array([1.5 + math.cos(0.3 * i + step) for i in range(EXAMPLES * classes)]).reshape(EXAMPLES, classes)
    if isinstance(loss, losses.CategoricalCrossentropy):
        dense /= dense.sum(axis=1, keepdims=True)
    return dense


def run(title, chain, loss, optimizer):
    model = keras.Sequential(chain)
    for parameter, variable in enumerate(variables(model)):
        variable.assign(np.array(initial(variable.name, parameter, math.prod(variable.shape))).reshape(variable.shape))
    model.compile(optimizer=optimizer, loss=loss)
    step_losses = []
    for step in range(STEPS):
        model.reset_metrics()
        step_losses.append(float(model.train_on_batch(inputs(model, step), targets(model, loss, step))))
    sums = [float(np.sum(np.asarray(v).ravel() * np.cos(np.arange(math.prod(v.shape))))) for v in variables(model)]
    outputs = np.asarray(model.predict_on_batch(inputs(model, STEPS)))[0].tolist()
    print(f"// {title}")
    for name, values in (("losses", step_losses), ("weights", sums), ("outputs", outputs)):
        print(f"{name}: {{" + ", ".join(repr(value) for value in values) + "}")


def image_chain():
    return [
        layers.Input((7, 6, 2)),
        layers.Conv2D(3, (3, 2), strides=(2, 1), padding="same", activation="relu"),
        layers.MaxPooling2D(2, strides=1, padding="same"),
        layers.BatchNormalization(),
        layers.AveragePooling2D((2, 3), strides=2, padding="same"),
        layers.Conv2D(4, 2, dilation_rate=2, padding="same"),
        layers.Flatten(),
        layers.Dense(5, activation="tanh"),
        layers.Dense(4),
    ]


run("images, Nesterov", image_chain(), losses.SparseCategoricalCrossentropy(from_logits=True),
    optimizers.SGD(learning_rate=0.05, momentum=0.9, nesterov=True))
run("images, RMSprop", image_chain(), losses.SparseCategoricalCrossentropy(from_logits=True),
    optimizers.RMSprop(learning_rate=0.01))
run("dilated, Adam", [
    layers.Input((8, 8, 1)),
    layers.Conv2D(2, 3, dilation_rate=2, use_bias=False, activation="sigmoid"),
    layers.AveragePooling2D(2),
    layers.GlobalAveragePooling2D(),
    layers.Dense(3, activation="softmax"),
], losses.CategoricalCrossentropy(), optimizers.Adam(learning_rate=0.05))
run("vectors, centered RMSprop", [
    layers.Input((5,)),
    layers.Dense(6, activation="sigmoid"),
    layers.BatchNormalization(momentum=0.9, center=False),
    layers.Activation("tanh"),
    layers.Dense(2),
], losses.MeanSquaredError(), optimizers.RMSprop(learning_rate=0.01, momentum=0.5, centered=True))
run("reshaped, AdamW", [
    layers.Input((12,)),
    layers.Reshape((-1, 3, 2)),
    layers.Conv2D(3, (2, 1)),
    layers.Activation("softmax"),
    layers.MaxPooling2D((1, 2)),
    layers.Flatten(),
    layers.Dense(3, activation="softmax"),
], losses.SparseCategoricalCrossentropy(), optimizers.AdamW(learning_rate=0.02))
run("vectors, momentum", [
    layers.Input((5,)),
    layers.Dense(4, activation="relu", use_bias=False),
    layers.BatchNormalization(scale=False, epsilon=0.01),
    layers.Dense(3),
], losses.CategoricalCrossentropy(from_logits=True), optimizers.SGD(learning_rate=0.1, momentum=0.8))
run("vectors, plain SGD", [
    layers.Input((5,)),
    layers.Dense(4, activation="tanh"),
    layers.Dense(3, activation="sigmoid"),
], losses.MeanSquaredError(), optimizers.SGD(learning_rate=0.1))
