"""Further features of Keras models: learning rate schedules, Functional models, Rescaling, and model JSON.

    keras_descriptions_test.py BIN_DIR
"""

import subprocess
from pathlib import Path
from typing import Any

import support  # before Keras, because it selects the backend
from support import SPARSE, Scratch, keras, layers, np, program, read_model, small, weights_in_order, without

import h5py
from keras.src.legacy.saving import legacy_h5_format, saving_utils

schedules = keras.optimizers.schedules
SCHEDULES = [
    schedules.ExponentialDecay(0.1, 10, 0.5),
    schedules.ExponentialDecay(0.1, 7, 0.9, staircase=True),
    schedules.PiecewiseConstantDecay([3], [0.1, 0.01]),
    schedules.PiecewiseConstantDecay([1, 5, 60], [0.1, 0.05, 0.01, 0.001]),
    schedules.PolynomialDecay(0.1, 40),
    schedules.PolynomialDecay(0.1, 20, end_learning_rate=0.02, power=0.5),
    schedules.PolynomialDecay(0.1, 15, end_learning_rate=0.02, power=2.0, cycle=True),
    schedules.InverseTimeDecay(0.1, 3.5, 0.5),
    schedules.InverseTimeDecay(0.1, 4, 0.5, staircase=True),
    schedules.CosineDecay(0.1, 50),
    schedules.CosineDecay(0.1, 30, alpha=0.2),
    schedules.CosineDecay(0.0, 30, alpha=0.1, warmup_target=0.2, warmup_steps=10),
]
OPTIMIZERS = [
    lambda rate: keras.optimizers.SGD(rate),
    lambda rate: keras.optimizers.SGD(rate, momentum=0.9),
    lambda rate: keras.optimizers.Adam(rate),
    lambda rate: keras.optimizers.AdamW(rate, weight_decay=0.01),
    lambda rate: keras.optimizers.RMSprop(rate, momentum=0.5, centered=True),
]


def slots_of(model: keras.Model) -> list[Any]:
    """The optimizer's slots. With a schedule there is no learning rate variable to skip."""
    return model.optimizer.variables[1:]


def chain() -> keras.Model:
    """A Functional chain of all kinds of layers."""
    inputs = keras.Input((12, 11, 2), name="picture")
    x = layers.Rescaling(1 / 127.5, offset=-1)(inputs)
    x = layers.Conv2D(4, (3, 2), padding="same", activation="tanh", name="first_conv")(x)
    x = layers.BatchNormalization(momentum=0.9)(x)
    x = layers.Activation("relu")(x)
    x = layers.MaxPooling2D()(inputs=x)
    x = layers.Dropout(0.25)(x)
    x = layers.Conv2D(3, 2)(x)
    x = layers.BatchNormalization()(x)
    x = layers.AveragePooling2D((2, 1))(x)
    x = layers.Reshape((-1, 2, 3))(x)
    x = layers.Flatten()(x)
    x = layers.Dense(8, activation="relu", use_bias=False)(x)
    return keras.Model(inputs, layers.Dense(5, activation="softmax")(x), name="chained")


def rescaling_first() -> keras.Sequential:
    return keras.Sequential([layers.Input((6, 5)), layers.Rescaling(0.5, offset=0.25, name="raw"),
                             layers.Reshape((6, 5, 1)), layers.Conv2D(2, 3), layers.Flatten(), layers.Dense(3)])


def some_bytes(model: keras.Model, count: int = 16) -> Any:
    """An array, or a list of one per input."""
    rng = np.random.default_rng(3)
    arrays = [rng.integers(256, size=(count,) + tensor.shape[1:]).astype(np.float32) for tensor in model.inputs]
    return arrays if len(arrays) > 1 else arrays[0]


def called_layers(model: keras.Model) -> list[str]:
    return [layer.name for layer in model.layers if not isinstance(layer, layers.InputLayer)]


def train(model: keras.Model, steps: int) -> None:
    """Trains, so that biases and BatchNormalization's weights are no longer constant."""
    targets = np.arange(8 * steps) % model.output_shape[1]
    model.fit(some_bytes(model, 8 * steps), targets, batch_size=8, verbose=0)


class Schedules(Scratch):
    def assert_rates(self, found: dict[str, Any], schedule: Any) -> None:
        expected = [float(schedule(step)) for step in range(len(found["learning_rates"]))]
        self.assertGreater(np.ptp(expected), 0)
        np.testing.assert_allclose(found["learning_rates"], expected, rtol=2e-6, atol=1e-8)  # Keras computes rates in float32
        self.assertEqual(len(expected), 100)

    def assert_same_schedule(self, found: Any, schedule: Any) -> None:
        self.assertIs(type(found), type(schedule))
        self.assertEqual(without(found.get_config(), "name"), without(schedule.get_config(), "name"))

    def check(self, schedule: Any, optimizer: Any) -> None:
        model = small()
        model.compile(optimizer(type(schedule).from_config(schedule.get_config())), loss=SPARSE(), metrics=["accuracy"])
        model.fit(np.random.default_rng(4).normal(size=(40, 4)), np.arange(40) % 3, batch_size=8, verbose=0)
        archive, weights, whole = (self.folder / name for name in ("m.keras", "m.weights.h5", "m.h5"))
        model.save(archive)
        model.save(whole)
        model.save_weights(weights)
        readings = [read_model(archive, self.folder / "copy.keras"), read_model(whole, self.folder / "copy.h5"),
                    read_model(weights, self.folder / "copy.weights.h5", archive)]
        for found in readings:
            self.assert_tensors(found["weights"], weights_in_order(model))
            self.assert_tensors(found["slots"], slots_of(model))
            self.assertEqual(found["iteration"], 5)
            self.assert_rates(found, schedule)

        # And back: Keras reads Lockstep's copies.
        again = keras.models.load_model(self.folder / "copy.keras")
        self.assert_same_schedule(again.optimizer._learning_rate, schedule)
        self.assert_same_arrays(again.optimizer.variables, model.optimizer.variables)
        again.optimizer.apply([np.ones(weight.shape, np.float32) for weight in again.trainable_variables])
        self.assertEqual(int(again.optimizer.iterations), 6)

        again.load_weights(self.folder / "copy.weights.h5")
        self.assert_same_arrays(again.optimizer.variables, model.optimizer.variables)

        again = keras.models.load_model(self.folder / "copy.h5")
        self.assert_same_schedule(again.optimizer._learning_rate, schedule)
        # Keras 3.15 builds the optimizer of an .h5 file without weights, even of its own files. Build it here.
        restored = type(again.optimizer).from_config(again.optimizer.get_config())
        restored.build(again.trainable_variables)
        with h5py.File(self.folder / "copy.h5") as opened:
            values = legacy_h5_format.load_optimizer_weights_from_hdf5_group(opened)
            restored.set_weights([np.asarray(value) for value in values])
        self.assert_same_arrays(restored.variables, model.optimizer.variables)

    def test_every_schedule_and_every_optimizer(self) -> None:
        for number, schedule in enumerate(SCHEDULES):
            optimizer = OPTIMIZERS[number % len(OPTIMIZERS)]
            with self.subTest(type(schedule).__name__, number=number):
                self.check(schedule, optimizer)

    def test_unsupported_features_are_rejected_by_name(self) -> None:
        class Mine(schedules.CosineDecay):
            pass

        model = small()
        model.compile(keras.optimizers.SGD(Mine(0.1, 10)), loss="mse")
        for name in ("m.keras", "m.h5"):
            model.save(self.folder / name)
            result = subprocess.run([program("interop_read_model"), self.folder / name], capture_output=True, text=True)
            self.assertEqual(result.returncode, 65, result.stderr)
            self.assertIn("Mine", result.stderr)


class Descriptions(Scratch):
    def forms_of(self, model: keras.Model) -> list[Path]:
        """Saves the model in all formats with weights."""
        forms = [self.folder / "m.keras", self.folder / "m.h5"]
        for form in forms:
            model.save(form)
        return forms

    def check(self, model: keras.Model) -> None:
        (self.folder / "m.json").write_text(model.to_json())
        described = read_model(self.folder / "m.json")["model"]
        data = some_bytes(model)
        expected = model.predict(data, verbose=0)
        for form in self.forms_of(model):
            copy = self.folder / f"copy{form.suffix}"
            found = read_model(form, copy)
            self.assertEqual(found["model"], described)
            self.assert_tensors(found["weights"], weights_in_order(model))
            again = keras.models.load_model(copy)
            self.assertIs(type(again), type(model))
            self.assertEqual(again.name, model.name)
            self.assertEqual(called_layers(again), called_layers(model))
            self.assert_same_arrays(again.predict(data, verbose=0), expected)
            if model.compiled:
                self.assertEqual(found["iteration"], 3)
                self.assert_tensors(found["slots"], model.optimizer.variables[2:])

    def test_functional_chains(self) -> None:
        self.check(chain())
        model = chain()
        model.compile("adam", loss=SPARSE(), metrics=["accuracy"])
        train(model, 3)
        self.check(model)

    def test_layers_created_in_another_order_than_called(self) -> None:
        last, first = layers.Dense(3), layers.Dense(7, activation="relu")
        inputs = keras.Input((4,))
        between = layers.Dense(2)(first(inputs))  # part of another model that shares the first layers
        keras.Model(inputs, between)
        self.check(keras.Model(inputs, last(layers.Dropout(0.5)(first(inputs)))))

    def test_rescaling(self) -> None:
        self.check(rescaling_first())
        model = rescaling_first()
        model.compile(keras.optimizers.SGD(0.01, momentum=0.9), loss=SPARSE(from_logits=True))
        train(model, 3)
        self.check(model)
        found = read_model(self.folder / "m.h5")["model"]["config"]["layers"][1]
        self.assertEqual(found["class_name"], "Rescaling")
        self.assertEqual(without(found["config"], "trainable", "dtype"), {"name": "raw", "scale": 0.5, "offset": 0.25})

    def test_sequential_json(self) -> None:
        for model in (small(), keras.Sequential([layers.Input((4,)), layers.Rescaling(2), layers.Dense(3)])):
            (self.folder / "m.json").write_text(model.to_json(indent=2))
            found = read_model(self.folder / "m.json")["model"]
            self.assertEqual([entry["config"]["name"] for entry in found["config"]["layers"][1:]],
                             [layer.name for layer in model.layers])
            twin = saving_utils.model_from_config(found)  # Lockstep writes the format of .h5 files
            self.assertEqual([layer.get_config() for layer in twin.layers],
                             [layer.get_config() for layer in model.layers])

    def test_models_that_are_not_chains(self) -> None:
        one, other = keras.Input((4,), name="one"), keras.Input((4,), name="other")
        dense = layers.Dense(4, name="shared")
        left, right = layers.Dense(4, name="left")(one), layers.Dense(4, name="right")(one)
        cases = {
            "branches": keras.Model(one, layers.Add(name="add")([left, right])),
            "a shortcut": keras.Model(one, layers.Maximum()([left, one])),
            "a layer called twice": keras.Model(one, dense(dense(one))),
            "a layer called on two inputs": keras.Model([one, other], layers.Subtract()([dense(one), dense(other)])),
            "two inputs in another order": keras.Model([other, one], layers.Subtract()([one, other])),
            "two outputs": keras.Model(one, [right, left]),
            "an output that another output needs": keras.Model(one, [left, layers.Dense(2)(left)]),
        }
        for what, model in cases.items():
            with self.subTest(what):
                self.check(model)

    def test_operations_become_layers(self) -> None:
        ops = keras.ops
        image = keras.Input((4, 5, 3))
        x = layers.Conv2D(3, 2, padding="same")(image * 0.25 - 3.0)
        x = ops.multiply(ops.relu6(2.0 - x) + 3, 1 / 6) * x + x / 4
        x = ops.maximum(-x, image) - ops.tanh(ops.silu(x))
        outputs = layers.Dense(3)(layers.Flatten()(x))
        model = keras.Model(image, outputs)
        data = some_bytes(model) / 100
        expected = model.predict(data, verbose=0)
        model.save(self.folder / "m.keras")  # Keras does not load such .h5 files
        for copy in (self.folder / "copy.keras", self.folder / "copy.h5"):
            found = read_model(self.folder / "m.keras", copy)
            self.assert_tensors(found["weights"], weights_in_order(model))
            again = keras.models.load_model(copy)
            np.testing.assert_allclose(again.predict(data, verbose=0), expected, rtol=1e-5, atol=1e-5)

    def test_operations_without_a_layer_are_rejected_by_name(self) -> None:
        one = keras.Input((4,), name="one")
        cases = {
            "layer 1 (Mean of keras.ops) is an operation that Lockstep does not have": keras.ops.mean(one, axis=-1),
            "layer 1 (TrueDivide of keras.ops) is an operation that Lockstep does not have": 1 / one,
            "layer 1 (Power of keras.ops) is an operation that Lockstep does not have": one**2,
            "layer 1 (Add of keras.ops) is called on something other than": one + np.ones(4, np.float32),
        }
        for message, output in cases.items():
            (self.folder / "m.json").write_text(keras.Model(one, output).to_json())
            with self.subTest(message):
                result = subprocess.run([program("interop_read_model"), self.folder / "m.json"], capture_output=True,
                                        text=True)
                self.assertEqual(result.returncode, 65, result.stderr)
                self.assertIn(message, result.stderr)

    def test_layers_are_rejected_by_name(self) -> None:
        one, other = keras.Input((4,), name="one"), keras.Input((4,), name="other")
        cases = {
            "'joined' (Lambda) is of a class that Lockstep does not have": keras.Model(
                [one, other], layers.Lambda(sum, (4,), name="joined")([one, other])),
            "'joined' (Add) is called with more than layers' outputs": keras.Model(
                one, layers.Add(name="joined")([one, np.ones(4)])),
            "'always' (Dropout) is called with training": keras.Model(
                one, layers.Dropout(0.5, name="always")(one, training=True)),
        }
        for message, model in cases.items():
            (self.folder / "m.json").write_text(model.to_json())
            for form in self.forms_of(model) + [self.folder / "m.json"]:
                with self.subTest(message, form=form.suffix):
                    result = subprocess.run([program("interop_read_model"), form], capture_output=True, text=True)
                    self.assertEqual(result.returncode, 65, result.stderr)
                    self.assertIn(message, result.stderr)


if __name__ == "__main__":
    support.main(__doc__)
