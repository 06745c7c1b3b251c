"""What of the caller's model reaches the workers of `lockstep.fit`: functions, classes, and the parts of layers."""

from __future__ import annotations

import importlib
import os
import sys
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

os.environ["KERAS_BACKEND"] = "jax"

import keras
import lockstep
import numpy as np
from fit_support import BATCH, FitTest, data, make_model


# None of these is what Keras calls by the same name.
def relu(x: Any) -> Any:
    return x * 3


def huber(y_true: Any, y_pred: Any) -> Any:
    return 7.0 * keras.ops.mean(keras.ops.square(y_true - y_pred), axis=-1)


def mean_absolute_error(y_true: Any, y_pred: Any) -> Any:
    return 5.0 + keras.ops.mean(keras.ops.abs(y_true - y_pred), axis=-1)


def l2(weights: Any) -> Any:
    return 3.0 * keras.ops.sum(keras.ops.abs(weights))


def max_norm(weights: Any) -> Any:
    return keras.ops.clip(weights, -0.01, 0.01)


def zeros(shape: Any, dtype: Any = None) -> Any:
    return keras.ops.ones(shape, dtype)


def bare_model(*layers: Any) -> Any:
    """Return a model that was not compiled yet: Keras goes on to log the metrics of an earlier compilation."""
    model = keras.Sequential([keras.Input((6, 6, 1)), keras.layers.Flatten(), *layers])
    draw = np.random.default_rng(1)
    model.set_weights([draw.normal(0, 0.3, weight.shape) for weight in model.weights])
    return model


class TransferTest(FitTest):
    def assert_fits_as_keras(self, make: Any) -> None:
        x, y = data()
        targets = keras.utils.to_categorical(y, 4)
        options = {"batch_size": BATCH, "shuffle": False, "verbose": 0, "epochs": 2}
        alone, model = make(), make()
        expected = alone.fit(x, targets, **options).history
        history = lockstep.fit(model, x, targets, **options).history
        for name, values in expected.items():
            np.testing.assert_allclose(history[name], values, rtol=1e-3, err_msg=name)
        self.assert_same(model, alone)


class QuickTest(TransferTest):
    def test_own_functions_with_keras_names_are_used(self) -> None:
        x, y = data()
        wrapped = keras.metrics.MeanMetricWrapper(mean_absolute_error, name="wrapped")

        def make(**options: Any) -> Any:
            model = make_model(layers=[keras.layers.Flatten()])
            model.compile("sgd", **({"loss": "mse"} | options))
            return model

        for what, options in (
            ("loss huber", {"loss": huber}),
            ("metric mean_absolute_error", {"metrics": [mean_absolute_error]}),
            ("metric mean_absolute_error", {"weighted_metrics": [wrapped]}),
        ):
            with self.subTest(what):
                self.assertIn(f"your {what}", lockstep.check(make(**options)).reason)
                with self.assertRaisesRegex(ValueError, f"your {what}"):
                    lockstep.evaluate(make(**options), x, y, engine="native")
        self.assert_fits_as_keras(lambda: make(loss=huber, metrics=[mean_absolute_error], weighted_metrics=[wrapped]))

    def test_own_functions_of_layers_with_keras_names_are_used(self) -> None:
        x, _ = data()

        def make(**options: Any) -> Any:
            model = make_model(layers=[keras.layers.Flatten(), keras.layers.Dense(4, name="own", **options)])
            model.compile("sgd", "mse")
            return model

        functions = {
            "activation": relu,
            "kernel_regularizer": l2,
            "bias_constraint": max_norm,
        }
        for attribute, function in functions.items():
            what = f"your {attribute} {function.__name__} of layer own"
            with self.subTest(what):
                self.assertIn(what, lockstep.check(make(**{attribute: function})).reason)
                with self.assertRaisesRegex(
                    ValueError, f"{attribute}.* {function.__name__}|{attribute} = the function"
                ):
                    lockstep.predict(make(**{attribute: function}), x, engine="native")
        self.assertEqual(lockstep.check(make(kernel_initializer=zeros)).engine, "native")  # the file has the weights
        self.assert_fits_as_keras(lambda: make(kernel_initializer=zeros, **functions))

    def test_registered_classes_reach_workers(self) -> None:
        @keras.saving.register_keras_serializable("mine")
        class Scaled(keras.layers.Layer):
            def call(self, x: Any) -> Any:
                return 2 * x

        def make() -> Any:
            model = make_model(layers=[keras.layers.Flatten(), Scaled()])
            model.compile("sgd", "mse")
            return model

        self.assert_fits_as_keras(make)

    def test_workers_import_the_modules_that_the_caller_has(self) -> None:
        text = (
            "import keras\n@keras.saving.register_keras_serializable('mine')\nclass Registered(keras.layers.Layer):\n"
            "    def call(self, x):\n        return FACTOR * x\n"
        )
        for folder, factor in (("caller", 2.0), ("elsewhere", 0.5)):
            (self.folder / folder).mkdir()
            (self.folder / folder / "layers_of_a_user.py").write_text(text.replace("FACTOR", str(factor)))
        self.enterContext(mock.patch.object(sys, "path", [str(self.folder / "caller"), *sys.path]))
        self.addCleanup(os.chdir, Path.cwd())
        os.chdir(self.folder / "elsewhere")
        registered = importlib.import_module("layers_of_a_user").Registered

        def make() -> Any:
            model = bare_model(registered(), keras.layers.Dense(4))
            model.compile("sgd", "mse")
            return model

        self.assert_fits_as_keras(make)

    def test_regularizers_and_constraints_reach_workers_by_value(self) -> None:
        class Twice(keras.layers.Layer):
            def call(self, x: Any) -> Any:
                return 2 * x

        def make() -> Any:
            dense = keras.layers.Dense(
                4,
                kernel_regularizer=keras.regularizers.L2(0.5),
                kernel_constraint=keras.constraints.MaxNorm(0.2),
                bias_constraint=keras.constraints.NonNeg(),
            )
            model = make_model(layers=[keras.layers.Flatten(), Twice(), dense])
            model.compile("sgd", "mse")
            return model

        self.assert_fits_as_keras(make)


class FullTest(TransferTest):
    def test_what_variables_say_is_what_trains(self) -> None:
        def make(*changes: str) -> Any:
            layers = [keras.layers.Dense(4, name=name) for name in ("frozen", "own", "bound", "named")]
            layers += [keras.layers.Dense(4, name="regularized", kernel_regularizer=keras.regularizers.L1(0.1))]
            model = bare_model(*layers)
            frozen, own, bound, named, regularized = layers
            if "frozen" in changes:
                frozen.kernel.trainable = False
            if "own" in changes:
                own.kernel.regularizer = keras.regularizers.L2(1.0)
            if "bound" in changes:
                bound.bias.constraint = keras.constraints.MaxNorm(0.001)
            if "named" in changes:
                named.kernel_regularizer = keras.regularizers.L2(1.0)  # Keras ignores it: the layer is built
            if "regularized" in changes:
                regularized.kernel.regularizer = None
            model.compile(keras.optimizers.SGD(0.1), "mse")
            return model

        reasons = {
            "frozen": "trainable=False of the variable .*frozen/kernel",
            "own": "the regularizer of the variable .*own/kernel",
            "bound": "the constraint of the variable .*bound/bias",
            "named": "the regularizer of the variable .*named/kernel",
            "regularized": "the regularizer of the variable .*regularized/kernel",
        }
        self.assertEqual(lockstep.check(make()).engine, "native")
        for change, reason in reasons.items():
            with self.subTest(change):
                self.assertRegex(lockstep.check(make(change)).reason, f"Keras' file does not hold {reason}")
        x, y = data()
        with self.assertRaisesRegex(ValueError, "the regularizer of the variable"):
            lockstep.evaluate(make("own"), x, keras.utils.to_categorical(y, 4), engine="native")
        self.assert_fits_as_keras(lambda: make(*reasons))
        freeze = keras.callbacks.LambdaCallback(on_train_begin=lambda logs: setattr(kernel, "trainable", False))
        model = make()
        kernel = model.layers[1].kernel
        with self.assertRaisesRegex(ValueError, "trainable=False of the variable .*on_train_begin"):
            lockstep.fit(model, x, keras.utils.to_categorical(y, 4), verbose=0, callbacks=[freeze])

    def test_layers_that_name_regularizers_otherwise_train_natively(self) -> None:
        layers = [
            keras.layers.DepthwiseConv2D(2, depthwise_regularizer="l2", use_bias=False, bias_regularizer="l2"),
            keras.layers.BatchNormalization(gamma_regularizer="l2", beta_constraint="non_neg"),
            keras.layers.Conv2D(2, 2, trainable=False, kernel_regularizer="l1"),
            keras.layers.Flatten(),
        ]
        self.assertEqual(lockstep.check(make_model(layers=layers)).engine, "native")

    def test_methods_that_are_set_on_objects_are_used(self) -> None:
        def make(*changes: str) -> Any:
            dense = keras.layers.Dense(4, name="dense")
            model = bare_model(dense)
            loss = keras.losses.MeanSquaredError()
            if "loss" in changes:
                loss.call = lambda y_true, y_pred: 3.0 * keras.ops.mean(keras.ops.abs(y_true - y_pred), axis=-1)
            if "call" in changes:
                dense.call = lambda x, training=None: 0.5 * keras.ops.matmul(x, dense.kernel)
            if "compute_loss" in changes:
                own = model.compute_loss
                model.compute_loss = lambda *arguments, **options: 2.0 * own(*arguments, **options)
            if "compute_metrics" in changes:
                metrics = model.compute_metrics
                model.compute_metrics = lambda *arguments, **options: {
                    name: 2 * value for name, value in metrics(*arguments, **options).items()
                }
            model.compile(keras.optimizers.SGD(0.1), loss, metrics=["mae"])
            return model

        x, y = data()
        changes = ("loss", "call", "compute_loss", "compute_metrics")
        for change in changes:
            with self.subTest(change):
                self.assertRegex(lockstep.check(make(change)).reason, f"the ({change}|call) that was set on")
        with self.assertRaisesRegex(ValueError, "the call that was set on dense"):
            lockstep.predict(make("call"), x, engine="native")
        lockstep.predict(make("compute_loss"), x, engine="native")
        self.assert_fits_as_keras(lambda: make(*changes))
        model = make()
        model.optimizer.apply = lambda *arguments, **options: None
        with self.assertRaisesRegex(ValueError, "the apply that was set on the optimizer"):
            lockstep.fit(model, x, y, verbose=0)

    def test_gradients_of_mixed_float16_are_averaged(self) -> None:
        self.addCleanup(keras.config.set_dtype_policy, keras.config.dtype_policy())
        keras.config.set_dtype_policy("mixed_float16")
        x, y = data()
        models = [bare_model(keras.layers.Dense(3)), bare_model(keras.layers.Dense(3))]
        for model in models:
            # A small scale: in which step float16 overflows depends on a worker's part of the batch.
            optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.01), initial_scale=2.0)
            model.compile(optimizer, lambda true, outputs: (outputs - true[:, None]) ** 2)
        options: dict[str, Any] = {"batch_size": BATCH, "epochs": 1, "shuffle": False, "verbose": 0}
        models[0].fit(x, y, **options)
        lockstep.fit(models[1], x, y, workers=2, **options)
        for own, theirs in zip(models[1].get_weights(), models[0].get_weights(), strict=True):
            np.testing.assert_allclose(own, theirs, atol=1e-3)

    def test_epsilon_reaches_workers(self) -> None:
        def make() -> Any:
            model = bare_model(keras.layers.Dense(4, activation="softmax"))
            model.compile(keras.optimizers.SGD(0.1), "categorical_crossentropy")
            return model

        x, y = data()
        self.addCleanup(keras.config.set_epsilon, keras.config.epsilon())
        keras.config.set_epsilon(0.2)
        self.assertIn(r"epsilon() 1e-07, which is 0.2 here", lockstep.check(make()).reason)
        with self.assertRaisesRegex(ValueError, "epsilon"):
            lockstep.evaluate(make(), x, keras.utils.to_categorical(y, 4), engine="native")
        self.assert_fits_as_keras(make)

    def test_limits_of_keras_are_kept(self) -> None:
        """keras.config limits epochs, and steps of an epoch."""
        self.addCleanup(keras.config.set_max_epochs, None)
        self.addCleanup(keras.config.set_max_steps_per_epoch, None)
        x, y = data()
        model = make_model()
        keras.config.set_max_epochs(2)
        with self.assertWarnsRegex(UserWarning, r"max_epochs\(\) limits epochs to 2"):
            history = lockstep.fit(model, x, y, epochs=5, verbose=0)
        self.assertEqual(history.epoch, [0, 1])
        keras.config.set_max_steps_per_epoch(3)
        for task in (lockstep.fit, lockstep.evaluate, lambda *given: lockstep.predict(given[0], given[1])):
            with self.assertRaisesRegex(ValueError, r"max_steps_per_epoch\(\) is 3, which the workers do not know"):
                task(model, x, y)

    def test_limits_in_the_environment_are_the_callers_alone(self) -> None:
        """A worker imports Keras anew, which reads the variables; the caller may have set other limits since."""
        x, y = data()
        with mock.patch.dict(os.environ, {"KERAS_MAX_EPOCHS": "1", "KERAS_MAX_STEPS_PER_EPOCH": "1"}):
            history = lockstep.fit(make_model(), x, y, epochs=2, batch_size=BATCH, verbose=0, engine="keras")
            self.assertEqual(history.epoch, [0, 1])
            model = make_model()
            self.assertEqual(lockstep.predict(model, x, batch_size=BATCH, engine="keras").shape, (len(x), 4))


if __name__ == "__main__":
    unittest.main()
