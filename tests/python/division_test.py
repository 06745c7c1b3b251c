"""Which losses the Keras engine's workers may average: those that are means over examples."""

from __future__ import annotations

import functools
import os
import unittest
import warnings
from collections.abc import Callable
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np
from lockstep import UsageError
from lockstep._division import refuse_indivisible_losses
from lockstep._engine_choice import beyond_32_bits

ops = keras.ops
RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(24, 6)).astype("float32")
Y = RANDOM.normal(size=(24, 3)).astype("float32")
ONE = RANDOM.normal(size=24).astype("float32")
CLASSES = RANDOM.integers(0, 3, 24)
WEIGHTS = np.arange(24.0)
LATE = np.abs(np.tile(Y, (9, 1)))
LATE[-20:] = -1


def mean(true: Any, outputs: Any) -> Any:
    return ops.mean((true - outputs) ** 2)


def total(true: Any, outputs: Any) -> Any:
    return ops.sum((true - outputs) ** 2)


def of_each(true: Any, outputs: Any) -> Any:
    return ops.mean((true - outputs) ** 2, axis=-1)


def among_the_batch(true: Any, outputs: Any) -> Any:
    products = ops.matmul(outputs, ops.transpose(outputs))
    return ops.sparse_categorical_crossentropy(ops.arange(len(outputs)), products, from_logits=True)


class Total(keras.losses.Loss):  # type: ignore[misc]
    def call(self, y_true: Any, y_pred: Any) -> Any:
        return total(y_true, y_pred)


class Each(keras.losses.Loss):  # type: ignore[misc]
    def call(self, y_true: Any, y_pred: Any) -> Any:
        return of_each(y_true, y_pred)


class Adds(keras.layers.Layer):  # type: ignore[misc]
    def __init__(self, reduce: Callable[[Any], Any]) -> None:
        super().__init__()
        self.reduce = reduce

    def call(self, x: Any) -> Any:
        self.add_loss(0.1 * self.reduce(x**2))
        return x


def add_loss_of(layer: Any, loss: Any) -> None:
    layer.add_loss(loss)


class AddsElsewhere(Adds):
    def call(self, x: Any) -> Any:
        add_loss_of(self, 0.1 * self.reduce(x**2))
        return x


class Samples(Adds):
    def build(self, input_shape: Any) -> None:
        self.seeds = keras.random.SeedGenerator(3)

    def call(self, x: Any) -> Any:
        return super().call(x) + keras.random.normal(ops.shape(x), seed=self.seeds)


class Hides(keras.layers.Layer):  # type: ignore[misc]
    """Adds a loss of some of the numbers, which it draws."""

    def build(self, input_shape: Any) -> None:
        self.seeds = keras.random.SeedGenerator(3)

    def call(self, x: Any) -> Any:
        hidden = ops.cast(keras.random.uniform(ops.shape(x), seed=self.seeds) < 0.25, "float32")
        self.add_loss(ops.sum(hidden * x**2))
        return x


class Masks(keras.layers.Layer):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.supports_masking = True

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        return ops.any(inputs != 0, -1)

    def call(self, x: Any) -> Any:
        return x


class Tags(keras.Model):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.masks, self.last = Masks(), keras.layers.Dense(3)

    def call(self, x: Any) -> Any:
        return self.last(self.masks(x))


class Needs(keras.Sequential):  # type: ignore[misc]
    def compute_loss(self, x: Any, y: Any, y_pred: Any, sample_weight: Any, training: Any) -> Any:
        return total(y, y_pred)


class AddsInTraining(Adds):
    def call(self, x: Any, training: Any = None) -> Any:
        return super().call(x) if training else x


class Several(keras.Model):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.last = keras.layers.Dense(3)

    def call(self, x: Any) -> Any:
        return {"logits": self.last(x), "scalar": ops.sum(self.last.bias), "none": None}


def without_gaps(true: Any, outputs: Any) -> Any:
    kept = ops.cast(true >= 0, "float32")
    return ops.sum(kept * (true - outputs) ** 2) / ops.maximum(ops.sum(kept), 1)


def deviation(true: Any, outputs: Any) -> Any:
    return ops.std(outputs) + mean(true, outputs)


def root(true: Any, outputs: Any) -> Any:
    return ops.sqrt(ops.mean((true - outputs) ** 2))


class Counts(keras.layers.Layer):  # type: ignore[misc]
    def build(self, input_shape: Any) -> None:
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False)
        self.seeds = keras.random.SeedGenerator(3)

    def call(self, x: Any) -> Any:
        self.calls.assign_add(1.0)
        return x * (1 + 0.1 * self.calls)


class Draws(Counts):
    def call(self, x: Any) -> Any:
        return super().call(x) + keras.random.normal(ops.shape(x), seed=self.seeds)


class Computes(keras.Sequential):  # type: ignore[misc]
    reduce: Any = None

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):  # type: ignore[no-untyped-def]
        return self.reduce((y - y_pred) ** 2)


def made(loss: Any, outputs: int = 3, *more: Any, kind: Any = keras.Sequential) -> Any:
    keras.utils.set_random_seed(1)
    model = kind([keras.Input((6,)), keras.layers.Dense(outputs, kernel_regularizer="l2"), *more])
    model.compile("sgd", loss)
    return model


def computing(reduce: Callable[[Any], Any]) -> Any:
    model = made("mse", kind=Computes)
    model.reduce = reduce
    return model


def of_two(losses: list[Any]) -> Any:
    keras.utils.set_random_seed(1)
    given = keras.Input((6,))
    model = keras.Model(given, [keras.layers.Dense(3)(given), keras.layers.Dense(3)(given)])
    model.compile("sgd", losses)
    return model


class LossesTest(unittest.TestCase):
    def test_means_are_taken(self) -> None:
        cases: list[tuple[str, Any, tuple[Any, ...], Any]] = [
            ("Keras' own", made("mse"), (X, Y), None),
            ("with weights", made("mse"), (X, Y, WEIGHTS), None),
            ("a mean", made(mean), (X, Y), None),
            ("of targets without an axis", made(mean, 1), (X, ONE), None),
            ("of targets with one", made(mean, 1), (X, ONE[:, None]), None),
            ("a value of each", made(of_each), (X, Y, WEIGHTS), None),
            ("a class of losses", made(Each()), (X, Y, WEIGHTS), None),
            ("classes", made("sparse_categorical_crossentropy"), (X, CLASSES), {0: 5.0, 2: 0.1}),
            ("of two outputs", of_two([mean, "mse"]), (X, (Y, Y)), None),
            ("one without a loss", of_two([mean, None]), (X, (Y, Y)), None),
            ("compute_loss", computing(ops.mean), (X, Y), None),
            ("add_loss", made("mse", 3, Adds(ops.mean)), (X, Y), None),
            ("of random numbers", made("mse", 3, Samples(ops.mean)), (X, Y), None),
        ]
        for name, model, batch, class_weight in cases:
            for workers in (2, 3, 5):
                with self.subTest(name, workers=workers):
                    refuse_indivisible_losses(model, batch, workers, class_weight)

    def test_others_are_refused(self) -> None:
        cases: list[tuple[str, Any, tuple[Any, ...], Any]] = [
            ("a sum", made(total), (X, Y), None),
            ("in a list", made(total), (X, [Y]), None),
            ("a sum over the batch", made(lambda true, outputs: ops.sum((true - outputs) ** 2, axis=0)), (X, Y), None),
            ("a part of a function", made(functools.partial(total)), (X, Y), None),
            ("a class of losses", made(Total()), (X, Y), None),
            ("a mean of which weights are multiples", made(mean), (X, Y, WEIGHTS), None),
            ("the same of classes", made(mean, 1), (X, np.sort(CLASSES).astype("float32")), {0: 5.0, 1: 2.0}),
            ("compared with each other", made(among_the_batch), (X, Y), None),
            ("Dice", made("dice", 3, keras.layers.Activation("sigmoid")), (X, (Y > 0).astype("float32")), None),
            ("Tversky", made(keras.losses.Tversky(), 3, keras.layers.Activation("sigmoid")),
             (X, (Y > 0).astype("float32")), None),
            ("Circle", made(keras.losses.Circle()), (X, CLASSES), None),
            ("of two outputs", of_two([total, "mse"]), (X, (Y, Y)), None),
            ("compute_loss", computing(ops.sum), (X, Y), None),
            ("add_loss", made("mse", 3, Adds(ops.sum)), (X, Y), None),
            ("add_loss in a function", made("mse", 3, AddsElsewhere(ops.sum)), (X, Y), None),
            ("of random numbers", made("mse", 3, Samples(ops.sum)), (X, Y), None),
            ("of hidden numbers", made("mse", 8, Hides(), keras.layers.Dense(3)), (X, Y), None),
            ("gaps that come later", made(without_gaps), (np.tile(X, (9, 1)), LATE), None),
            ("whose method needs training", made("mse", kind=Needs), (X, Y), None),
            ("near large targets", made(root, 1), (X, 1998 + 10 * ONE[:, None]), None),
            ("after zeros", made(deviation, 3, keras.layers.Dense(3, kernel_initializer="zeros")), (X, Y), None),
        ]  # fmt: skip
        for name, model, batch, class_weight in cases:
            with self.subTest(name), self.assertRaisesRegex(UsageError, "a mean over examples: use workers=1"):
                refuse_indivisible_losses(model, batch, 2, class_weight)

    def test_nothing_that_the_model_counts_changes(self) -> None:
        for layer in (Counts(), Draws()):
            model = made(mean, 3, layer)
            before = [np.array(each) for each in model.variables]
            refuse_indivisible_losses(model, (X, Y), 2, None)
            for variable, value in zip(model.variables, before, strict=True):
                np.testing.assert_array_equal(np.array(variable), value)
        with self.assertRaises(UsageError):
            refuse_indivisible_losses(made(total, 3, Counts()), (X, Y), 2, None)

    def test_masks_are_told(self) -> None:
        words = RANDOM.integers(0, 9, (24, 5))
        layers = keras.layers
        for ends_masked, last in (
            (True, []),
            (False, [layers.LSTM(2)]),
            (True, [layers.LSTM(2, return_sequences=True)]),
        ):
            model = keras.Sequential([keras.Input((5,)), layers.Embedding(9, 2, mask_zero=True), *last])
            model.compile("sgd", "mse")
            y = np.zeros((24, *model.output_shape[1:]))
            with self.subTest(layers=len(model.layers)), warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                refuse_indivisible_losses(model, (words, y), 2, None)
                self.assertEqual([True for each in said if "have masks" in str(each.message)], [True] * ends_masked)
        tags = Tags()
        tags.compile("sgd", "mse")
        sequences = np.zeros((24, 5, 4), "float32")
        tags.build(sequences.shape)
        with self.assertWarnsRegex(UserWarning, "have masks"):
            refuse_indivisible_losses(tags, (sequences, np.zeros((24, 5, 3))), 2, None)

    def test_outputs_that_no_loss_compares_may_be_anything(self) -> None:
        model = Several()
        model.compile("sgd", {"logits": "mse"})
        model(X)
        refuse_indivisible_losses(model, (X, {"logits": Y}), 2, None)

    def test_losses_that_cannot_be_tried_are_told(self) -> None:
        with self.assertWarnsRegex(UserWarning, "is made in training only"):
            refuse_indivisible_losses(made("mse", 3, AddsInTraining(ops.sum)), (X, Y), 2, None)

    def test_metrics_that_are_no_means_are_told(self) -> None:
        for metric, is_told in ((mean, False), (root, True), ("mae", False)):
            model = made("mse")
            model.compile("sgd", "mse", metrics=[metric])
            with self.subTest(metric=metric), warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                refuse_indivisible_losses(model, (X, Y), 2, None)
                self.assertEqual(
                    [True for each in said if "the metric root is no mean" in str(each.message)], [True] * is_told
                )


class WholeNumbersTest(unittest.TestCase):
    def test_what_jax_cuts_is_found(self) -> None:
        x = np.arange(4)
        for value in (
            x,
            x.astype("uint32") + np.uint32(2**31 + 7),
            x + 2.0**40,
            None,
            "text",
            [["a"]],
            np.zeros((3, 0), int),
        ):
            self.assertIsNone(beyond_32_bits(value))
        wide = [x + 2**31, x - 2**31 - 1, x.astype("uint64") + np.uint64(2**32)]
        for value in (*wide, [2**40], {"a": x, "b": x + 2**31}, [x, x + 2**31]):
            self.assertRegex(str(beyond_32_bits(x, value)), "cuts whole numbers to 32 bits")


if __name__ == "__main__":
    unittest.main()
