"""What of the caller's model reaches the workers of `lockstep.fit`: functions, classes, and the parts of layers."""

from __future__ import annotations

import os
import unittest
from typing import Any

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


class QuickTest(FitTest):
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
                    lockstep.evaluate(make(**options), x, y)
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
                    lockstep.predict(make(**{attribute: function}), x)
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


if __name__ == "__main__":
    unittest.main()
