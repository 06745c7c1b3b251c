""".keras archives and .weights.h5 files between Lockstep and real Keras, in both directions.

    keras_archive_test.py BIN_DIR     the folder of interop_write_model, interop_read_model and lockstep
"""

import json
import subprocess
import warnings
import zipfile

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

    def test_policies(self):
        """A file's mixed_bfloat16 is what Lockstep computes in, and what it writes."""
        keras.utils.set_random_seed(1)  # bfloat16 sums near a ReLU's 0 may differ more with other weights
        random = np.random.default_rng(1)
        x = random.normal(size=(24, 8, 8, 2)).astype(np.float32)
        y = random.integers(0, 3, 24)
        np.savez(self.folder / "d.npz", x_train=x, y_train=y, x_test=x, y_test=y)
        for form in (".keras", ".h5"):
            for last in ("mixed_bfloat16", "float32"):
                with self.subTest(form=form, last=last):
                    low = {"dtype": "mixed_bfloat16"}
                    model = keras.Sequential([
                        layers.Input((8, 8, 2)), layers.Conv2D(8, 3, activation="relu", **low), layers.Flatten(**low),
                        layers.Dense(16, activation="tanh", **low), layers.Dense(3, dtype=last)])
                    model.compile(keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(True))
                    file, out = self.folder / f"low{form}", self.folder / "out"
                    model.save(file)
                    before = [np.array(weight) for weight in weights_in_order(model)]
                    command = [program("lockstep"), "train", "--model", file, "--data-dir", self.folder / "d.npz",
                               "--model-dir", out, "--epochs", "3", "--global-batch-size", "24", "--verbose", "0",
                               "--backup-save-freq", "never"]
                    ended = subprocess.run(command, capture_output=True, text=True)
                    if ended.returncode == 64 and "needs a CPU with AVX-512 BF16" in ended.stderr:
                        print(f"skipped: {ended.stderr.strip()}")
                        return
                    self.assertEqual(ended.returncode, 0, ended.stderr)
                    record = json.loads((out / "history.json").read_text())
                    self.assertEqual(record["world"]["precision"], "mixed_bfloat16")
                    trained = keras.models.load_model(out / f"model{form}")
                    self.assertEqual([layer.dtype_policy.name for layer in trained.layers],
                                     [layer.dtype_policy.name for layer in model.layers])
                    model.fit(x, y, batch_size=24, epochs=3, shuffle=False, verbose=0)
                    for ours, theirs, first in zip(weights_in_order(trained), weights_in_order(model), before):
                        change = np.abs(np.array(theirs) - first).max()
                        # Products of 8 bits; in float32 the difference is a thousandth of this.
                        np.testing.assert_allclose(np.array(ours), np.array(theirs), rtol=0, atol=0.06 * change)

    def test_untrained_model_without_input_layer(self):
        model = keras.Sequential([layers.Flatten(), layers.Dense(2)])
        model.build((None, 3, 2))
        model.compile("adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
        model.save(self.folder / "built.keras")
        found = read_model(self.folder / "built.keras")
        self.assertEqual(found["model"]["config"]["layers"][0]["config"]["batch_input_shape"], [None, 3, 2])
        self.assert_tensors(found["weights"], weights_in_order(model))
        self.assertEqual(found["iteration"], 0)

    def test_weights_need_no_initializer(self):
        self.check_initializers("initialized.keras")

    def test_unsupported_features_are_rejected_by_name(self):
        self.check_refusals("refused.keras")

    def test_two_members_of_one_name_are_refused(self):
        """Python reads the last of them."""
        model = keras.Sequential([layers.Input((4,)), layers.Dense(3)])
        file = self.folder / "m.keras"
        model.save(file)
        with zipfile.ZipFile(file, "a") as archive, warnings.catch_warnings(action="ignore"):
            archive.writestr("config.json", archive.read("config.json"))
        result = subprocess.run([program("interop_read_model"), file], capture_output=True, text=True)
        self.assertEqual(result.returncode, 65, result.stderr)
        self.assertIn("two members config.json", result.stderr)

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

        def swish(inputs):
            return inputs + 1

        def l2(weights):
            return 7 * keras.ops.sum(abs(weights))

        def model_of(last, **compilation):
            model = keras.Sequential([layers.Input((4,)), last])
            if compilation:
                model.compile("sgd", **compilation)
            return model

        cases = {
            "Dense of your program": model_of(Dense(3)),
            "mine>Dense of your program": model_of(Registered(3)),
            "activation = ": model_of(layers.Dense(3, activation=swish)),
            "kernel_regularizer = ": model_of(layers.Dense(3, kernel_regularizer=l2)),
            "MeanSquaredError of your program": model_of(layers.Dense(3), loss=MeanSquaredError()),
            "the loss mse is not": model_of(layers.Dense(3), loss=mse),
            "the metric mse is not": model_of(layers.Dense(3), loss="mse", metrics=[mse]),
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
