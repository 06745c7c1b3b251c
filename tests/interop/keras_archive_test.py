""".keras archives and .weights.h5 files between Lockstep and real Keras, in both directions.

    keras_archive_test.py BIN_DIR     the folder of interop_write_model and interop_read_model
"""

import subprocess

import support
from support import WRITTEN, Scratch, formula, is_positive, keras, layers, np, program, read_model, some_input
from support import some_target, weights_in_order, without


def compiled_like(build, optimizer, loss, metrics):
    model = build()
    if optimizer is not None:
        model.compile(type(optimizer).from_config(optimizer.get_config()), loss=loss, metrics=metrics or None)
    return model


class OurFilesInKeras(Scratch):
    def setUp(self):
        super().setUp()
        subprocess.run([program("interop_write_model"), self.folder], check=True)

    def assert_formula(self, variables, first):
        for number, variable in enumerate(variables):
            expected = formula(first + number, variable.shape, is_positive(variable.path))
            np.testing.assert_array_equal(np.asarray(variable), expected, err_msg=variable.path)

    def check_training(self, model, optimizer):
        self.assertIs(type(model.optimizer), type(optimizer))
        self.assertEqual(without(model.optimizer.get_config(), "name"), without(optimizer.get_config(), "name"))
        self.assertEqual(int(model.optimizer.iterations), 1234)
        self.assert_formula(model.optimizer.variables[2:], 1000)

    def test_keras_loads_our_archives(self):
        for name, (build, optimizer, loss, metrics) in WRITTEN.items():
            with self.subTest(name):
                model = keras.models.load_model(self.folder / f"{name}.keras")
                keras.utils.clear_session()
                twin = build()
                self.assertEqual(model.name, twin.name)
                self.assertEqual(model.input_shape, twin.input_shape)
                self.assertEqual([layer.get_config() for layer in model.layers],
                                 [layer.get_config() for layer in twin.layers])
                self.assert_formula(weights_in_order(model), 0)
                for weight, value in zip(weights_in_order(twin), weights_in_order(model)):
                    weight.assign(np.array(value))  # a copy, because JAX donates the array
                data = some_input(model)
                np.testing.assert_array_equal(model.predict(data, verbose=0), twin.predict(data, verbose=0))
                self.assertEqual(model.compiled, optimizer is not None)
                if optimizer is None:
                    continue
                self.check_training(model, optimizer)
                self.assertEqual(without(model.loss.get_config(), "name"), without(loss.get_config(), "name"))
                found = model.evaluate(data, some_target(model, loss, 3), verbose=0, return_dict=True)
                self.assertEqual(sorted(found), sorted(["loss"] + metrics))
                model.fit(data, some_target(model, loss, 3), verbose=0)  # training continues
                self.assertEqual(int(model.optimizer.iterations), 1235)

    def test_keras_loads_our_weights_files(self):
        for name, (build, optimizer, loss, metrics) in WRITTEN.items():
            with self.subTest(name):
                model = compiled_like(build, optimizer, loss, metrics)
                if optimizer is not None:
                    model.optimizer.build(model.trainable_variables)
                model.load_weights(self.folder / f"{name}.weights.h5")
                self.assert_formula(weights_in_order(model), 0)
                if optimizer is not None:
                    self.check_training(model, optimizer)


class KerasFilesInOurs(Scratch):
    def test_trained_models(self):
        for name, (build, optimizer, loss, metrics) in WRITTEN.items():
            with self.subTest(name):
                model = compiled_like(build, optimizer, loss, metrics)
                data = some_input(model, 32)
                if optimizer is not None:
                    model.fit(data, some_target(model, loss, 32), batch_size=8, verbose=0)
                archive, weights = self.folder / f"{name}.keras", self.folder / f"{name}.weights.h5"
                copy = self.folder / f"{name}-copy.keras"
                model.save(archive)
                model.save_weights(weights)
                for found in (read_model(archive, copy), read_model(weights, self.folder / "copy.h5", archive)):
                    self.assert_tensors(found["weights"], weights_in_order(model))
                    self.assertEqual("training" in found, optimizer is not None)
                    if optimizer is not None:
                        self.assert_training(found, model, metrics)
                again = keras.models.load_model(copy)
                np.testing.assert_array_equal(again.predict(data, verbose=0), model.predict(data, verbose=0))
                if optimizer is not None:
                    for ours, theirs in zip(again.optimizer.variables, model.optimizer.variables):
                        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))

    def test_untrained_model_without_input_layer(self):
        model = keras.Sequential([layers.Flatten(), layers.Dense(2)])
        model.build((None, 3, 2))
        model.compile("adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
        model.save(self.folder / "built.keras")
        found = read_model(self.folder / "built.keras")
        self.assertEqual(found["model"]["config"]["layers"][0]["config"]["batch_input_shape"], [None, 3, 2])
        self.assert_tensors(found["weights"], weights_in_order(model))
        self.assertEqual(found["iteration"], 0)

    def test_unsupported_features_are_rejected_by_name(self):
        self.check_refusals("refused.keras")

    def test_classes_and_functions_that_are_not_keras_own_are_refused(self):
        """Whatever they are called."""
        class Dense(layers.Dense):
            pass

        @keras.saving.register_keras_serializable(package="mine", name="Dense")
        class Registered(layers.Dense):
            pass

        class MeanSquaredError(keras.losses.MeanSquaredError):
            pass

        def mse(target, output):
            return keras.ops.mean(abs(target - output), axis=-1)

        def model_of(last, **compilation):
            model = keras.Sequential([layers.Input((4,)), last])
            if compilation:
                model.compile("sgd", **compilation)
            return model

        cases = {
            "Dense of your program": model_of(Dense(3)),
            "mine>Dense of your program": model_of(Registered(3)),
            "MeanSquaredError of your program": model_of(layers.Dense(3), loss=MeanSquaredError()),
            "the loss mse is not": model_of(layers.Dense(3), loss=mse),
            "the metric mse is not": model_of(layers.Dense(3), loss="mse", metrics=[mse]),
            "the metric AUC": model_of(layers.Dense(3), loss="mse", metrics=[keras.metrics.AUC(name="accuracy")]),
            "the metric TopKCategoricalAccuracy has the name 'accuracy'": model_of(
                layers.Dense(3), loss="mse", metrics=[keras.metrics.TopKCategoricalAccuracy(name="accuracy")]),
        }
        for words, model in cases.items():
            with self.subTest(words):
                file = self.folder / "m.keras"
                model.save(file)
                result = subprocess.run([program("interop_read_model"), file], capture_output=True, text=True)
                self.assertEqual(result.returncode, 65, result.stderr)
                self.assertIn(words, result.stderr)


if __name__ == "__main__":
    support.main(__doc__)
