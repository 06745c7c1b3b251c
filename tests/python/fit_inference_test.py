"""`lockstep.evaluate` and `lockstep.predict` of models that the native engine does not know, beside Keras' own."""

from __future__ import annotations

import os
import unittest
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import keras
import lockstep
import numpy as np
from fit_support import FitTest, data, make_model

EXAMPLES = 41  # over 2 workers in batches of 8: the last batch has one


class Halves(keras.layers.Layer):
    """A layer of this program that gives two outputs."""

    def call(self, x: Any) -> Any:
        return {"small": 0.5 * x, "large": keras.ops.sin(x)}


class QuickTest(FitTest):
    def check(self, model: Any, x: Any, *arguments: Any, **options: Any) -> None:
        """Compare both functions with Keras' methods."""
        for workers in (1, 2):
            found = lockstep.evaluate(model, x, *arguments, workers=workers, batch_size=8, engine="keras", **options)
            expected = model.evaluate(x, *arguments, batch_size=8, verbose=0, **options)
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)

    def test_unknown_layers_in_the_engine_that_knows_them(self) -> None:
        x, y = data(EXAMPLES)
        layers = [keras.layers.Reshape((6, 6)), keras.layers.GRU(3)]
        model = make_model(layers=layers)
        model.compile(
            "sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"],
            weighted_metrics=[keras.metrics.SparseTopKCategoricalAccuracy(2)],
        )  # fmt: skip
        self.check(model, x, y)
        self.check(model, x, y, sample_weight=np.linspace(0, 3, EXAMPLES))
        logs = lockstep.evaluate(model, x, y, return_dict=True)
        for name, value in model.evaluate(x, y, return_dict=True, verbose=0).items():
            np.testing.assert_allclose(logs[name], value, rtol=1e-4, atol=1e-5)
        bare = keras.Sequential([keras.Input((6, 6, 1)), *layers])  # not compiled
        for workers in (1, 2):
            found = lockstep.predict(bare, x, workers=workers)
            np.testing.assert_allclose(found, bare.predict(x, verbose=0), rtol=1e-4, atol=1e-5)
        one = lockstep.predict(bare, x[:1], workers=2)
        np.testing.assert_allclose(one, bare.predict(x[:1], verbose=0), rtol=1e-4, atol=1e-5)

    def test_outputs_have_the_structure_that_keras_gives_them(self) -> None:
        x, _ = data(EXAMPLES)
        image, number = keras.Input((6, 6, 1), name="image"), keras.Input((1,), name="number")
        flat = keras.layers.Concatenate()([keras.layers.Flatten()(image), number])
        model = keras.Model({"image": image, "number": number}, Halves()(keras.layers.Dense(3)(flat)))
        given = {"number": x[:, 0, 0], "image": x}
        expected = model.predict(given, verbose=0)
        found = lockstep.predict(model, given, workers=2)
        self.assertEqual(found.keys(), expected.keys())
        for name, values in expected.items():
            np.testing.assert_allclose(found[name], values, rtol=1e-4, atol=1e-5)

    def test_inputs_and_outputs_by_name_as_keras_takes_them(self) -> None:
        """Dictionaries in any order, also with the names of other layers, and the order of what `evaluate` returns."""
        random = np.random.default_rng(4)
        a, b = random.random((2, EXAMPLES, 3))
        target = random.random((EXAMPLES, 2))
        first, second = keras.Input((3,), name="a"), keras.Input((3,), name="b")
        joined = keras.layers.Concatenate()([first, keras.layers.Rescaling(2.0)(second)])
        p, q = keras.layers.Dense(2, name="p")(joined), keras.layers.Dense(2, name="q")(joined)
        losses = {"q": "mse", "p": "mae"}
        metrics = {"p": ["mape"], "q": ["msle"]}
        by_name = {"p": target, "q": -target}
        for outputs, targets in (
            ([q, p], [-target, target]),
            ({"p": p, "q": q}, by_name),
            ({"q": q, "p": p}, by_name),
            ({"q": p, "p": q}, by_name),
        ):
            for inputs, x, loss in (
                ([first, second], [a, b], losses),
                ({"a": second, "b": first}, {"a": a, "b": b}, "mse"),
            ):
                model = keras.Model(inputs, outputs)
                model.compile("sgd", loss, metrics=metrics)
                with self.subTest(outputs=str(outputs), inputs=type(inputs)):
                    found = lockstep.evaluate(model, x, targets)
                    expected = model.evaluate(x, targets, verbose=0)
                    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        for outputs in ({"p": p}, [p], p):
            model = keras.Model([first, second], outputs)
            found, expected = lockstep.predict(model, [a, b]), model.predict([a, b], verbose=0)
            self.assertEqual(type(found), type(expected))
            keras.tree.map_structure(
                lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5), found, expected
            )

    def test_metrics_that_compare_each_target_with_all_outputs(self) -> None:
        """Keras' functions for these drop no last axis of 1, so only the Keras engine takes flat targets."""
        x, y = np.random.default_rng(5).random((EXAMPLES, 3)), np.arange(EXAMPLES) % 2.0
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, activation="sigmoid")])
        model.compile("sgd", "mse", metrics=["hinge", "poisson"])
        for targets in (y, y[:, None]):
            found, expected = lockstep.evaluate(model, x, targets), model.evaluate(x, targets, verbose=0)
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        lockstep.fit(model, x, y[:, None], engine="native", verbose=0)
        with self.assertRaisesRegex(ValueError, "metric hinge compares targets without a last axis"):
            lockstep.fit(model, x, y, engine="native", verbose=0)

    def test_mistakes_are_told(self) -> None:
        x, y = data(EXAMPLES)
        model = make_model()
        with self.assertRaisesRegex(ValueError, "40 examples|40, 41 examples|41, 40 examples"):
            lockstep.evaluate(model, x, y[1:], engine="keras")
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(reduction="sum"))
        with self.assertRaisesRegex(ValueError, "reduction='sum'"):
            lockstep.evaluate(model, x, y, workers=2, engine="keras")


if __name__ == "__main__":
    unittest.main()
