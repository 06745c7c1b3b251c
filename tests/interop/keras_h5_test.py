"""Whole-model .h5 files between Lockstep and real Keras, both ways.

    keras_h5_test.py BIN_DIR     the folder of interop_write_model and interop_read_model
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")

import h5py  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402
from keras import layers  # noqa: E402
from keras.src.legacy.saving import legacy_h5_format  # noqa: E402

BIN = Path()


def formula(array, shape, positive):
    """The values of write_model.cpp."""
    index = np.arange(int(np.prod(shape)), dtype=np.uint64)
    value = ((index * 7919 + array * 104729 + 12345) % 511).astype(np.float32)
    value = (value - np.float32(255)) / np.float32(1024)
    return (value + np.float32(0.75) if positive else value).reshape(shape)


def is_positive(name):
    return name.endswith(("variance", "velocity", "average_gradient"))


def weights_in_order(model):
    return [weight for layer in model.layers for weight in layer.weights]


def some_input(model, count=3):
    shape = (count,) + model.input_shape[1:]
    return np.random.default_rng(1).uniform(size=shape).astype(np.float32)


def bits_of(values):
    """The checksum of read_model.cpp."""
    words = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32).ravel().astype(np.uint64)
    with np.errstate(over="ignore"):
        return int((words * np.arange(1, len(words) + 1, dtype=np.uint64)).sum(dtype=np.uint64))


def keras_mnist():
    return keras.Sequential([
        layers.Input((28, 28)), layers.Reshape((28, 28, 1)), layers.Conv2D(32, 3, activation="relu"),
        layers.Flatten(), layers.Dense(128, activation="relu"), layers.Dense(10)], name="sequential")


def custom_training_mnist():
    return keras.Sequential([
        layers.Input((28, 28, 1)), layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(),
        layers.Conv2D(64, 3, activation="relu"), layers.MaxPooling2D(), layers.Flatten(),
        layers.Dense(64, activation="relu"), layers.Dense(10)], name="sequential")


def everything():
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


def small():
    return keras.Sequential([layers.Input((4,)), layers.Dense(3, activation="softmax")], name="sequential")


SPARSE = keras.losses.SparseCategoricalCrossentropy
WRITTEN = {
    "keras_mnist": (keras_mnist, keras.optimizers.SGD(0.001), SPARSE(from_logits=True), ["accuracy"]),
    "custom_training_mnist": (custom_training_mnist, keras.optimizers.Adam(), SPARSE(from_logits=True), ["accuracy"]),
    "everything": (everything, keras.optimizers.RMSprop(0.01, momentum=0.5, centered=True),
                   keras.losses.CategoricalCrossentropy(), ["accuracy"]),
    "uncompiled": (everything, None, None, None),
    "sgd_momentum": (small, keras.optimizers.SGD(0.01, momentum=0.9, nesterov=True), keras.losses.MeanSquaredError(),
                     []),
    "adamw": (small, keras.optimizers.AdamW(weight_decay=0.01, beta_1=0.8), SPARSE(), []),
    "rmsprop": (small, keras.optimizers.RMSprop(rho=0.8, epsilon=1e-5), keras.losses.MeanSquaredError(), []),
}


def without(config, *keys):
    return {key: value for key, value in config.items() if key not in keys}


class OurFilesInKeras(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.scratch.name)
        subprocess.run([BIN / "interop_write_model", cls.folder], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def each(self):
        for name, expected in WRITTEN.items():
            file = self.folder / f"{name}.h5"
            model = keras.models.load_model(file)
            keras.utils.clear_session()  # automatic names of twins begin anew
            yield file, model, *expected

    def test_architecture(self):
        for file, model, build, *_ in self.each():
            with self.subTest(file.name):
                twin = build()
                self.assertEqual(model.name, twin.name)
                self.assertEqual(model.input_shape, twin.input_shape)
                self.assertEqual(len(model.layers), len(twin.layers))
                for layer, other in zip(model.layers, twin.layers):
                    self.assertIs(type(layer), type(other))
                    self.assertEqual(layer.get_config(), other.get_config())

    def test_weights_bit_for_bit(self):
        for file, model, *_ in self.each():
            with self.subTest(file.name):
                for number, weight in enumerate(weights_in_order(model)):
                    expected = formula(number, weight.shape, is_positive(weight.path))
                    np.testing.assert_array_equal(np.asarray(weight), expected, err_msg=weight.path)

    def test_predictions(self):
        for file, model, build, *_ in self.each():
            with self.subTest(file.name):
                twin = build()
                for number, weight in enumerate(weights_in_order(twin)):
                    weight.assign(formula(number, weight.shape, is_positive(weight.path)))
                data = some_input(model)
                predicted = model.predict(data, verbose=0)
                self.assertGreater(np.ptp(predicted), 0)
                np.testing.assert_array_equal(predicted, twin.predict(data, verbose=0))

    def test_compilation(self):
        for file, model, _, optimizer, loss, metrics in self.each():
            with self.subTest(file.name):
                if optimizer is None:
                    self.assertFalse(model.compiled)
                    continue
                self.assertIs(type(model.optimizer), type(optimizer))
                loaded, expected = model.optimizer.get_config(), optimizer.get_config()
                self.assertEqual(without(loaded, "name"), without(expected, "name"))
                self.assertIs(type(model.loss), type(loss))
                self.assertEqual(without(model.loss.get_config(), "name"), without(loss.get_config(), "name"))
                self.assertEqual(int(model.optimizer.iterations), 1234)
                data = some_input(model)
                target = np.zeros(3) if isinstance(loss, SPARSE) else np.eye(model.output_shape[1])[[0, 1, 2]]
                evaluated = model.evaluate(data, target, verbose=0, return_dict=True)
                self.assertEqual(sorted(evaluated), sorted(["loss"] + metrics))

    def test_optimizer_state(self):
        """Keras 3.15 builds the loaded optimizer for no weights at all, also with its own files; build it here."""
        for file, model, _, optimizer, _, _ in self.each():
            with self.subTest(file.name):
                if optimizer is None:
                    continue
                with h5py.File(file) as opened:
                    values = legacy_h5_format.load_optimizer_weights_from_hdf5_group(opened)
                    values = [np.asarray(value) for value in values]
                    names = list(opened["optimizer_weights"].attrs["weight_names"])
                restored = type(optimizer).from_config(model.optimizer.get_config())
                restored.build(model.trainable_variables)
                restored.set_weights(values)
                self.assertEqual(len(restored.variables), len(values))
                self.assertEqual([name.split("/")[-1] for name in names],
                                 [variable.path.split("/")[-1] for variable in restored.variables])
                self.assertEqual(int(restored.iterations), 1234)
                self.assertEqual(np.float32(restored.learning_rate), np.float32(optimizer.learning_rate))
                for number, slot in enumerate(restored.variables[2:]):
                    expected = formula(1000 + number, slot.shape, is_positive(slot.path))
                    np.testing.assert_array_equal(np.asarray(slot), expected, err_msg=slot.path)


class KerasFilesInOurs(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)

    def read(self, file, copy=None):
        command = [BIN / "interop_read_model", file] + ([copy] if copy else [])
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    def compare(self, tensors, expected):
        self.assertEqual(len(tensors), len(expected))
        for tensor, values in zip(tensors, expected):
            values = np.asarray(values)
            self.assertEqual(tuple(tensor["shape"]), values.shape, tensor["name"])
            self.assertEqual(tensor["bits"], bits_of(values), tensor["name"])
            np.testing.assert_allclose(tensor["sum"], values.astype(np.float64).sum(), rtol=1e-9, atol=1e-9)

    def test_trained_models(self):
        for name, (build, optimizer, loss, metrics) in WRITTEN.items():
            if optimizer is None:
                continue
            with self.subTest(name):
                model = build()
                model.compile(type(optimizer).from_config(optimizer.get_config()), loss=loss, metrics=metrics or None)
                data = some_input(model, 32)
                classes = np.arange(32) % model.output_shape[1]
                target = classes if isinstance(loss, SPARSE) else np.eye(model.output_shape[1])[classes]
                model.fit(data, target, batch_size=8, verbose=0)
                file, copy = self.folder / f"{name}.h5", self.folder / f"{name}-copy.h5"
                model.save(file)

                found = self.read(file, copy)
                self.compare(found["weights"], weights_in_order(model))
                self.assertEqual(found["iteration"], 4)
                self.compare(found["slots"], model.optimizer.variables[2:])
                entries = found["model"]["config"]["layers"][1:]
                self.assertEqual([entry["config"]["name"] for entry in entries], [one.name for one in model.layers])
                self.assertEqual(found["training"]["metrics"], metrics)
                config = found["training"]["optimizer_config"]
                self.assertEqual(config["class_name"], type(optimizer).__name__)
                for key, value in without(config["config"], "name").items():
                    self.assertEqual(value, model.optimizer.get_config()[key], key)

                again = keras.models.load_model(copy)
                np.testing.assert_array_equal(again.predict(data, verbose=0), model.predict(data, verbose=0))

    def test_uncompiled_and_untrained_models(self):
        model = everything()
        model.save(self.folder / "plain.h5")
        found = self.read(self.folder / "plain.h5")
        self.compare(found["weights"], weights_in_order(model))
        self.assertNotIn("training", found)

        model = small()
        model.compile("adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
        model.save(self.folder / "fresh.h5")
        found = self.read(self.folder / "fresh.h5")
        self.assertEqual(found["iteration"], 0)
        self.compare(found["slots"], [np.zeros(shape, np.float32) for shape in ((4, 3), (4, 3), (3,), (3,))])

    def test_model_without_input_layer(self):
        model = keras.Sequential([layers.Flatten(), layers.Dense(2)])
        model.build((None, 3, 2))
        model.save(self.folder / "built.h5")
        found = self.read(self.folder / "built.h5")
        self.assertEqual(found["model"]["config"]["layers"][0]["config"]["batch_input_shape"], [None, 3, 2])
        self.compare(found["weights"], weights_in_order(model))

    def test_what_we_lack_is_refused_by_name(self):
        inputs = layers.Input((4,))
        cases = {
            "Functional": keras.Model(inputs, layers.Dense(2)(inputs)),
            "LSTM": keras.Sequential([layers.Input((5, 2)), layers.LSTM(3)]),
            "gelu": keras.Sequential([inputs, layers.Dense(2, activation="gelu")]),
            "groups = 2": keras.Sequential([layers.Input((8, 8, 2)), layers.Conv2D(2, 3, groups=2)]),
            "kernel_regularizer": keras.Sequential([inputs, layers.Dense(2, kernel_regularizer="l2")]),
            "RandomNormal": keras.Sequential([inputs, layers.Dense(2, kernel_initializer="random_normal")]),
            "mixed_bfloat16": keras.Sequential([inputs, layers.Dense(2, dtype="mixed_bfloat16")]),
        }
        compiled = {
            "Nadam": dict(optimizer="nadam", loss="mse"),
            "clipnorm": dict(optimizer=keras.optimizers.SGD(0.1, clipnorm=1.0), loss="mse"),
            "CosineDecay": dict(optimizer=keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.1, 10)),
                                loss="mse"),
            "Huber": dict(optimizer="sgd", loss=keras.losses.Huber()),
            "mae": dict(optimizer="sgd", loss="mse", metrics=["mae"]),
        }
        for word, options in compiled.items():
            cases[word] = small()
            cases[word].compile(**options)
        for word, model in cases.items():
            with self.subTest(word):
                file = self.folder / "refused.h5"
                model.save(file)
                result = subprocess.run([BIN / "interop_read_model", file], capture_output=True, text=True)
                self.assertEqual(result.returncode, 65, result.stderr)
                self.assertIn(word, result.stderr)
                self.assertIn(str(file), result.stderr)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: keras_h5_test.py BIN_DIR")
    BIN = Path(sys.argv.pop()).resolve()
    unittest.main()
