"""Shared by these tests: Lockstep's programs, the models of write_model.cpp, and comparisons of models and arrays.

Run a test as `NAME_test.py BIN_DIR`, where BIN_DIR is the folder of Lockstep's programs.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "jax")

import absl.logging  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402
from keras import layers  # noqa: E402

absl.logging.set_verbosity(absl.logging.ERROR)  # Keras warns about every .h5 file
options = argparse.Namespace(bin=Path())  # the parsed command line


def main(description: str, **arguments: dict[str, Any]) -> None:
    """Runs the tests of the main module. `arguments` are its additional options, by name."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", metavar="BIN_DIR", type=Path, help="the folder of Lockstep's programs")
    for name, settings in arguments.items():
        parser.add_argument("--" + name.replace("_", "-"), **settings)
    _, for_unittest = parser.parse_known_args(namespace=options)
    options.bin = options.bin.resolve()
    unittest.main(module="__main__", argv=[sys.argv[0], *for_unittest])


def program(name: str) -> Path:
    return options.bin / name


def output_of(*command: object) -> str:
    """Returns a program's output. Raises RuntimeError with its error output if it fails."""
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))} ended with {result.returncode}: {result.stderr.strip()}")
    return result.stdout


def read_model(file: Path, *arguments: Path) -> dict[str, Any]:
    """The output of interop_read_model for a file."""
    return json.loads(output_of(program("interop_read_model"), file, *arguments))


def own_initializer(shape: Sequence[int], dtype: Any = None) -> Any:
    return keras.ops.full(shape, 0.25, dtype)


@keras.saving.register_keras_serializable("of_a_test")
class OwnInitializer(keras.initializers.Initializer):
    def __call__(self, shape: Sequence[int], dtype: Any = None) -> Any:
        return keras.ops.full(shape, 0.5, dtype)


class Scratch(unittest.TestCase):
    """A test with a temporary folder."""

    def setUp(self) -> None:
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)

    def assert_tensors(self, tensors: list[dict[str, Any]], expected: Sequence[Any]) -> None:
        """Compares tensors with read_model.cpp's descriptions, bit for bit."""
        self.assertEqual(len(tensors), len(expected))
        for tensor, values in zip(tensors, expected):
            values = np.asarray(values)
            self.assertEqual(tuple(tensor["shape"]), values.shape, tensor["name"])
            self.assertEqual(tensor["bits"], bits_of(values), tensor["name"])
            np.testing.assert_allclose(tensor["sum"], values.astype(np.float64).sum(), rtol=1e-9, atol=1e-9)

    def assert_same_arrays(self, found: Sequence[Any], expected: Sequence[Any]) -> None:
        self.assertEqual(len(found), len(expected))
        for ours, theirs in zip(found, expected):
            np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))

    def assert_training(self, found: dict[str, Any], model: keras.Model, metrics: list[str]) -> None:
        """Checks the training state that read_model found after four steps of this model."""
        self.assertEqual(found["iteration"], 4)
        self.assert_tensors(found["slots"], model.optimizer.variables[2:])
        self.assertEqual(found["training"]["metrics"], metrics)
        config = found["training"]["optimizer_config"]
        self.assertEqual(config["class_name"], type(model.optimizer).__name__)
        for key, value in without(config["config"], "name").items():
            self.assertEqual(value, model.optimizer.get_config()[key], key)

    def check_initializers(self, name: str) -> None:
        """Weights that are in the file need no initializer that Lockstep has."""
        kernel: Any = {"an own function": own_initializer, "an own class": OwnInitializer(), "orthogonal": "orthogonal",
                       "identity": keras.initializers.Identity(gain=2.0)}
        inputs = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
        np.save(self.folder / "x.npy", inputs)
        for (word, initializer), gamma in zip(kernel.items(), itertools.cycle(["zeros", "uniform"])):
            with self.subTest(word):
                model = keras.Sequential([layers.Input((4,)), layers.Dense(4, kernel_initializer=initializer),
                                          layers.BatchNormalization(gamma_initializer=gamma)])
                file, output = self.folder / name, self.folder / "y.npy"
                model.save(file)
                output_of(program("lockstep"), "predict", "--model", file, "--data-dir", self.folder / "x.npy",
                          "--output", output)
                np.testing.assert_allclose(np.load(output), model.predict(inputs, verbose=0), atol=1e-5)

    def check_refusals(self, name: str) -> None:
        """Saves models with features that Lockstep lacks under this name. Each must be rejected by the feature's
        name."""
        inputs = layers.Input((4,))
        cases = {
            "Lambda": keras.Sequential([inputs, layers.Lambda(abs)]),
            "LSTM": keras.Sequential([layers.Input((5, 2)), layers.LSTM(3)]),
            "sparsemax": keras.Sequential([inputs, layers.Dense(2, activation="sparsemax")]),
            "output_padding": keras.Sequential([
                layers.Input((8, 8, 2)), layers.Conv2DTranspose(2, 3, strides=2, output_padding=1)]),
            "kernel_regularizer": keras.Sequential([inputs, layers.Dense(2, kernel_regularizer=keras.regularizers.OrthogonalRegularizer())]),
            "mixed_float16": keras.Sequential([inputs, layers.Dense(2, dtype="mixed_float16")]),
        }
        compiled = {
            "Muon": dict(optimizer=keras.optimizers.Muon(), loss="mse"),
            "clipnorm is -1": dict(optimizer=keras.optimizers.SGD(0.1, clipnorm=-1.0), loss="mse"),
            "loss_scale_factor": dict(optimizer=keras.optimizers.SGD(0.1, loss_scale_factor=2.0), loss="mse"),
            "Tversky": dict(optimizer="sgd", loss=keras.losses.Tversky()),
            "average": dict(optimizer="sgd", loss="mse", metrics=[keras.metrics.F1Score()]),
        }
        for word, options in compiled.items():
            cases[word] = small()
            cases[word].compile(**options)
        for word, model in cases.items():
            with self.subTest(word):
                file = self.folder / name
                model.save(file)
                result = subprocess.run([program("interop_read_model"), file], capture_output=True, text=True)
                self.assertEqual(result.returncode, 65, result.stderr)
                self.assertIn(word, result.stderr)
                self.assertIn(str(file), result.stderr)


def formula(array: int, shape: Sequence[int], positive: bool) -> np.ndarray:
    """The values of write_model.cpp."""
    index = np.arange(int(np.prod(shape)), dtype=np.uint64)
    value = ((index * 7919 + array * 104729 + 12345) % 511).astype(np.float32)
    value = (value - np.float32(255)) / np.float32(1024)
    return (value + np.float32(0.75) if positive else value).reshape(shape)


def is_positive(name: str) -> bool:
    return name.endswith(("variance", "velocity", "average_gradient"))


def weights_in_order(model: keras.Model) -> list[Any]:
    return [weight for layer in model.layers for weight in layer.weights]


def some_input(model: keras.Model, count: int = 3) -> np.ndarray:
    shape = (count,) + model.input_shape[1:]
    return np.random.default_rng(1).uniform(size=shape).astype(np.float32)


def some_target(model: keras.Model, loss: Any, count: int) -> np.ndarray:
    classes = np.arange(count) % model.output_shape[1]
    return classes if isinstance(loss, SPARSE) else np.eye(model.output_shape[1])[classes]


def bits_of(values: Any) -> int:
    """The checksum of read_model.cpp."""
    words = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32).ravel().astype(np.uint64)
    with np.errstate(over="ignore"):
        return int((words * np.arange(1, len(words) + 1, dtype=np.uint64)).sum(dtype=np.uint64))


def without(config: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in keys}


def keras_mnist() -> keras.Sequential:
    return keras.Sequential([
        layers.Input((28, 28)), layers.Reshape((28, 28, 1)), layers.Conv2D(32, 3, activation="relu"),
        layers.Flatten(), layers.Dense(128, activation="relu"), layers.Dense(10)], name="sequential")


def custom_training_mnist() -> keras.Sequential:
    return keras.Sequential([
        layers.Input((28, 28, 1)), layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(),
        layers.Conv2D(64, 3, activation="relu"), layers.MaxPooling2D(), layers.Flatten(),
        layers.Dense(64, activation="relu"), layers.Dense(10)], name="sequential")


def everything() -> keras.Sequential:
    return keras.Sequential([
        layers.Input((12, 11, 2), name="picture"),
        layers.Conv2D(4, (3, 2), strides=(2, 1), padding="same", activation="tanh",
                      kernel_initializer="he_normal", name="first_conv"),
        layers.BatchNormalization(momentum=0.9, epsilon=0.01), layers.Activation("sigmoid"),
        layers.AveragePooling2D((2, 3), strides=1, padding="same"), layers.Dropout(0.25),
        layers.Conv2D(3, 2, dilation_rate=2, use_bias=False, kernel_initializer="glorot_normal"),
        layers.BatchNormalization(center=False, scale=False), layers.MaxPooling2D(2, strides=(1, 2)),
        layers.Conv2D(6, 1, kernel_initializer="he_uniform", bias_initializer="ones"),
        layers.GlobalAveragePooling2D(), layers.Dense(8, activation="relu", use_bias=False),
        layers.Reshape((2, -1)), layers.Flatten(),
        layers.Dense(5, activation="softmax", kernel_initializer="zeros")], name="everything")


def small() -> keras.Sequential:
    return keras.Sequential([layers.Input((4,)), layers.Dense(3, activation="softmax")], name="sequential")


SPARSE = keras.losses.SparseCategoricalCrossentropy
WRITTEN = {
    "keras_mnist": (keras_mnist, keras.optimizers.SGD(0.001), SPARSE(from_logits=True), ["accuracy"]),
    "custom_training_mnist": (custom_training_mnist, keras.optimizers.Adam(), SPARSE(from_logits=True),
                              ["accuracy", "sparse_top_k_categorical_accuracy"]),
    "everything": (everything, keras.optimizers.RMSprop(0.01, momentum=0.5, centered=True),
                   keras.losses.CategoricalCrossentropy(), ["accuracy", "top_k_categorical_accuracy"]),
    "uncompiled": (everything, None, None, None),
    "sgd_momentum": (small, keras.optimizers.SGD(0.01, momentum=0.9, nesterov=True), keras.losses.MeanSquaredError(),
                     ["mean_absolute_error", "root_mean_squared_error"]),
    "adamw": (small, keras.optimizers.AdamW(weight_decay=0.01, beta_1=0.8), SPARSE(), []),
    "rmsprop": (small, keras.optimizers.RMSprop(rho=0.8, epsilon=1e-5), keras.losses.MeanSquaredError(),
                ["mean_squared_error"]),
}
