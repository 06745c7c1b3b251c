"""Whole-model .h5 files between Lockstep and real Keras, in both directions.

    keras_h5_test.py BIN_DIR     the folder of interop_write_model and interop_read_model
"""

import subprocess
import tempfile
import unittest
from pathlib import Path

import support  # before Keras, because it selects the backend
from support import SPARSE, WRITTEN, Scratch, everything, formula, is_positive, keras, layers, np, program, read_model
from support import small, some_input, some_target, weights_in_order, without

import h5py
from keras.src.legacy.saving import legacy_h5_format


class OurFilesInKeras(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.scratch.name)
        subprocess.run([program("interop_write_model"), cls.folder], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def each(self):
        for name, expected in WRITTEN.items():
            file = self.folder / f"{name}.h5"
            model = keras.models.load_model(file)
            keras.utils.clear_session()  # restarts automatic names, so that they match
            yield file, model, *expected

    def test_keras_reads_the_architecture(self):
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

    def test_loaded_models_predict_like_models_with_equal_weights(self):
        for file, model, build, *_ in self.each():
            with self.subTest(file.name):
                twin = build()
                for number, weight in enumerate(weights_in_order(twin)):
                    weight.assign(formula(number, weight.shape, is_positive(weight.path)))
                data = some_input(model)
                predicted = model.predict(data, verbose=0)
                self.assertGreater(np.ptp(predicted), 0)
                np.testing.assert_array_equal(predicted, twin.predict(data, verbose=0))

    def test_keras_reads_the_compile_options(self):
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

    def test_keras_reads_the_optimizer_state(self):
        """Keras 3.15 builds the loaded optimizer without weights, even of its own files. Build it here."""
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


class KerasFilesInOurs(Scratch):
    def test_trained_models(self):
        for name, (build, optimizer, loss, metrics) in WRITTEN.items():
            if optimizer is None:
                continue
            with self.subTest(name):
                model = build()
                model.compile(type(optimizer).from_config(optimizer.get_config()), loss=loss, metrics=metrics or None)
                data = some_input(model, 32)
                model.fit(data, some_target(model, loss, 32), batch_size=8, verbose=0)
                file, copy = self.folder / f"{name}.h5", self.folder / f"{name}-copy.h5"
                model.save(file)

                found = read_model(file, copy)
                self.assert_tensors(found["weights"], weights_in_order(model))
                entries = found["model"]["config"]["layers"][1:]
                self.assertEqual([entry["config"]["name"] for entry in entries], [one.name for one in model.layers])
                self.assert_training(found, model, metrics)

                again = keras.models.load_model(copy)
                np.testing.assert_array_equal(again.predict(data, verbose=0), model.predict(data, verbose=0))

    def test_uncompiled_and_untrained_models(self):
        model = everything()
        model.save(self.folder / "plain.h5")
        found = read_model(self.folder / "plain.h5")
        self.assert_tensors(found["weights"], weights_in_order(model))
        self.assertNotIn("training", found)

        model = small()
        model.compile("adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
        model.save(self.folder / "fresh.h5")
        found = read_model(self.folder / "fresh.h5")
        self.assertEqual(found["iteration"], 0)
        self.assert_tensors(found["slots"], [np.zeros(shape, np.float32) for shape in ((4, 3), (4, 3), (3,), (3,))])

    def test_model_without_input_layer(self):
        model = keras.Sequential([layers.Flatten(), layers.Dense(2)])
        model.build((None, 3, 2))
        model.save(self.folder / "built.h5")
        found = read_model(self.folder / "built.h5")
        self.assertEqual(found["model"]["config"]["layers"][0]["config"]["batch_input_shape"], [None, 3, 2])
        self.assert_tensors(found["weights"], weights_in_order(model))

    def test_weights_need_no_initializer(self):
        self.check_initializers("initialized.h5")

    def test_unsupported_features_are_rejected_by_name(self):
        self.check_refusals("refused.h5")


if __name__ == "__main__":
    support.main(__doc__)
