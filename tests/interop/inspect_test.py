"""`lockstep inspect` on files of real Keras.

    inspect_test.py BIN_DIR     the folder of interop_write_model and lockstep
"""

import json
import os
import subprocess
import unittest.mock

import h5py
import support
from support import Scratch, everything, keras, layers, np, program, small, weights_in_order


class Inspect(Scratch):
    def inspect(self, *arguments):
        return subprocess.run([program("lockstep"), "inspect", *arguments], capture_output=True, text=True)

    def model(self):
        model = everything()
        model.compile("adam", loss="categorical_crossentropy", metrics=["accuracy"])
        data = np.random.default_rng(1).uniform(size=(8,) + model.input_shape[1:]).astype(np.float32)
        model.fit(data, np.eye(5)[np.arange(8) % 5], batch_size=4, verbose=0)
        return model

    def test_statistics(self):
        model = self.model()
        expected = [np.asarray(weight, dtype=np.float64) for weight in weights_in_order(model)]
        for name in ("m.keras", "m.h5"):
            model.save(self.folder / name)
            result = self.inspect("--json", "--check", self.folder / name)
            self.assertEqual(result.returncode, 0, result.stderr)
            document = json.loads(result.stdout)
            self.assertEqual(document["training"]["optimizer"], "Adam")
            self.assertEqual(document["training"]["iteration"], 2)
            self.assertEqual(len(document["optimizer_state"]), 2 * len(model.trainable_variables))
            self.assertEqual(len(document["weights"]), len(expected))
            for found, values in zip(document["weights"], expected):
                self.assertEqual(tuple(found["shape"]), values.shape)
                for key, value in (("mean", values.mean()), ("std", values.std()), ("min", values.min()),
                                   ("max", values.max())):
                    self.assertAlmostEqual(found[key], value, delta=1e-9, msg=found["name"] + " " + key)
        self.assertEqual(self.inspect("--compare", self.folder / "m.keras", self.folder / "m.h5").returncode, 0)

    def test_weights_of_any_model(self):
        model = keras.Sequential([layers.Input((5, 2)), layers.LSTM(3), layers.Dense(1)])
        model.save_weights(self.folder / "lstm.weights.h5")
        result = self.inspect("--json", "--check", self.folder / "lstm.weights.h5")
        self.assertEqual(result.returncode, 0, result.stderr)
        shapes = sorted(tuple(one["shape"]) for one in json.loads(result.stdout)["weights"])
        self.assertEqual(shapes, sorted(tuple(weight.shape) for weight in weights_in_order(model)))

    def test_differences_and_nan_are_reported(self):
        model = self.model()
        model.save(self.folder / "a.keras")
        model.save_weights(self.folder / "a.weights.h5")
        self.assertEqual(
            self.inspect("--compare", self.folder / "a.keras", self.folder / "a.weights.h5").returncode, 0)
        weight = model.layers[0].kernel
        values = np.array(weight)
        values[0, 0, 0, 0] = np.nan
        weight.assign(values)
        model.save(self.folder / "b.keras")
        result = self.inspect("--compare", self.folder / "a.keras", self.folder / "b.keras")
        self.assertEqual(result.returncode, 65)
        self.assertIn("first_conv/kernel: 1 of 48 values differ", result.stdout)
        result = self.inspect("--check", self.folder / "b.keras")
        self.assertEqual(result.returncode, 65)
        self.assertIn("1 NaN", result.stderr)

    def lockstep(self, *arguments):
        return subprocess.run([program("lockstep"), *map(str, arguments)], capture_output=True, text=True, cwd=self.folder)

    def trained(self, optimizer):
        """A model after one epoch on data.npz, which it writes."""
        model = small()
        model.compile(optimizer, loss="mse")
        inputs = np.random.default_rng(1).normal(size=(8, *model.input_shape[1:])).astype(np.float32)
        targets = np.zeros((8, *model.output_shape[1:]), np.float32)
        model.fit(inputs, targets, verbose=0)
        np.savez(self.folder / "data.npz", x_train=inputs, y_train=targets)
        return model

    def test_a_learning_rate_that_is_nan_is_not_taken_for_another(self):
        model = self.trained("sgd")
        file = self.folder / "rate.h5"
        model.save(file)
        with h5py.File(file, "r+") as stored:
            names = []
            stored["optimizer_weights"].visit(names.append)
            (rate,) = [name for name in names if name.endswith("learning_rate")]
            stored["optimizer_weights"][rate][...] = np.nan
        for command in (("inspect", "--check", "--for", "train", file),
                        ("train", "--model", file, "--data-dir", self.folder / "data.npz", "--epochs", 1)):
            with self.subTest(command=command[0]):
                result = self.lockstep(*command)
                self.assertEqual(result.returncode, 65, result.stdout + result.stderr)
                self.assertIn("learning rate nan", result.stderr)

    def test_what_inspect_refuses_for_training_does_not_train(self):
        model = self.trained("adam")
        slot = model.optimizer.variables[-1]
        slot.assign(np.full(slot.shape, np.nan))
        for form in (".keras", ".h5"):
            file = self.folder / f"slots{form}"
            model.save(file)
            for command in (("inspect", "--check", "--for", "train", file),
                            ("train", "--model", file, "--data-dir", self.folder / "data.npz", "--epochs", 1)):
                with self.subTest(form, command=command[0]):
                    result = self.lockstep(*command)
                    self.assertEqual(result.returncode, 65, result.stderr)
                    self.assertIn("use an earlier copy", result.stderr)
                    self.assertNotIn("--learning-rate", result.stderr)

    def test_a_loss_that_is_not_finite(self):
        """An overflow makes NaN of finite inputs and weights: Keras prints nan."""
        model = keras.Sequential([keras.Input((4,)), *[layers.Dense(4, activation) for activation in
                                                       ("linear", "relu6", "hard_tanh", "hard_silu")]])
        model.set_weights([np.full(weight.shape, 0.1) for weight in model.weights])
        model.layers[0].set_weights([np.tile([1e38, -1e38, 1e38, -1e38], (4, 1)), np.zeros(4)])
        inputs = np.full((3, 4), 1e10, np.float32)
        model.compile("sgd", loss="mse")
        model.save(self.folder / "m.keras")
        self.assertTrue(np.isnan(model.predict(inputs, verbose=0)).all())
        np.savez(self.folder / "data.npz", x_test=inputs, y_test=np.zeros((3, 4)))
        result = self.lockstep("evaluate", "--model", "m.keras", "--data-dir", "data.npz", "--verbose", 0)
        self.assertEqual((result.returncode, result.stdout), (65, "loss: nan\n"), result.stderr)
        self.assertIn("the loss is nan", result.stderr)

    def test_weighted_metrics_are_shown(self):
        model = small()
        model.compile("sgd", loss="mse", metrics=["mae"], weighted_metrics=["mse", keras.metrics.RootMeanSquaredError()])
        model.save(self.folder / "m.keras")
        document = json.loads(self.inspect("--json", self.folder / "m.keras").stdout)["training"]
        self.assertEqual((document["metrics"], document["weighted_metrics"]),
                         (["mae"], ["mse", "root_mean_squared_error"]))
        self.assertIn("metric: mae, weighted metric: mse, weighted metric: root_mean_squared_error",
                      self.inspect(self.folder / "m.keras").stdout)

    def test_what_is_not_supported_is_not_called_equal(self):
        model = small()
        for name, optimizer, loss in (("a", keras.optimizers.Lamb(0.5), keras.losses.Tversky()),
                                      ("b", keras.optimizers.Lamb(0.1), keras.losses.Dice()), ("c", "sgd", "mse")):
            model.compile(optimizer, loss=loss)
            model.save(self.folder / f"{name}.keras")
        for other, whose in (("b", "them"), ("c", "that of A")):
            shown = self.inspect("--compare", self.folder / "a.keras", self.folder / f"{other}.keras").stdout
            self.assertIn(f"the optimizers are not compared, because Lockstep does not support {whose}:", shown)
            self.assertIn(f"the losses are not compared, because Lockstep does not support {whose}:", shown)
            self.assertNotIn("metrics are", shown)

    def test_what_lockstep_cannot_train_is_told(self):
        for form in (".keras", ".h5"):
            file = self.folder / f"m{form}"
            model = small()
            model.compile(keras.optimizers.Lamb(0.01), loss=keras.losses.Tversky(), metrics=["accuracy"])
            model.save(file)
            result = self.inspect("--check", file)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertRegex(result.stdout, "Optimizer: not supported: .*Lamb")
            self.assertRegex(result.stdout, "Loss: not supported: .*Tversky")
            document = json.loads(self.inspect("--json", file).stdout)["training"]
            self.assertEqual((document["optimizer"], document["loss"]), (None, None))
            self.assertIn("Lamb", document["not_supported"]["optimizer"])
            self.assertEqual(self.inspect("--check", "--for", "predict", file).returncode, 0)
            for command, names in (("train", ("Lamb", "--optimizer")), ("evaluate", ("Tversky", "--loss"))):
                result = self.inspect("--check", "--for", command, file)
                self.assertEqual(result.returncode, 65)
                for name in names:
                    self.assertIn(name, result.stderr)

    def test_a_precision_that_the_cpu_lacks_is_told(self):
        file = self.folder / "m.keras"
        keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, dtype="mixed_bfloat16")]).save(file)
        with unittest.mock.patch.dict(os.environ, {"ONEDNN_MAX_CPU_ISA": "AVX2"}):
            result = self.inspect("--check", "--for", "predict", file)
        self.assertEqual(result.returncode, 65)
        self.assertIn("mixed_bfloat16 needs a CPU with AVX-512 BF16", result.stderr)

    def test_directory(self):
        small().save(self.folder / "a.keras")
        small().save(self.folder / "b.h5")
        self.assertEqual(self.inspect(self.folder, "--check").returncode, 0)
        (self.folder / "c.keras").write_bytes((self.folder / "a.keras").read_bytes()[:-100])
        result = self.inspect(self.folder, "--check")
        self.assertEqual(result.returncode, 65)
        self.assertIn("1 of 3 files", result.stderr)


if __name__ == "__main__":
    support.main(__doc__)
