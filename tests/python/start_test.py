"""What a `backup_dir` says of the training that began there: which later one is taken for it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np
from lockstep import _start

FACTOR: Any = None
_X, _Y = np.ones((4, 2), "float32"), np.zeros((4, 1), "float32")

_A_LOSS_WITH_A_SET = """
import os, sys
os.environ["KERAS_BACKEND"] = "jax"
from lockstep import _start
def loss(y, p):
    return p if "a" in {"a", "b", "c"} else ("x", y)
print(_start._code_of_value(loss))
"""


def compiled(loss: Any = "mse") -> keras.Model:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name="only")])
    model.compile("sgd", loss)
    return model


def scaled(factor: float) -> Callable[[Any, Any], Any]:
    def loss(y: Any, p: Any) -> Any:
        return factor * (y - p) ** 2

    return loss


class StartTest(unittest.TestCase):
    def setUp(self) -> None:
        self.directory = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def take(self, model: keras.Model, resume: bool = True, data: Any = _X) -> int | None:
        arguments = {"engine": "keras", "batch_size": 2, "shuffle": True, "class_weight": None, "validation_split": 0.0}
        arguments |= {"initial_epoch": 0, "validation_freq": 1}
        begun, facts = _start.take(self.directory, resume, model, (5, 5), data, **arguments)
        if begun is None:
            _start.Owned(self.directory).keep(facts)
        return begun

    def back_up(self) -> None:
        (self.directory / "fit-1-step-0000000001.h5").touch()

    def test_a_model_that_was_used_meanwhile_is_the_same(self) -> None:
        model = compiled()
        self.take(model, resume=False)
        self.back_up()
        self.assertEqual(self.take(model), 5)
        model.evaluate(_X, _Y, verbose=0)
        model.predict(_X, verbose=0)
        self.assertEqual(self.take(model), 5)

    def test_what_decides_a_loss_is_compared(self) -> None:
        self.take(compiled(scaled(1.0)), resume=False)
        self.back_up()
        self.assertEqual(self.take(compiled(scaled(1.0))), 5)
        with self.assertRaisesRegex(ValueError, "another model|another loss"):
            self.take(compiled(scaled(9.0)))
        with self.assertRaisesRegex(ValueError, "other data"):
            self.take(compiled(scaled(1.0)), data=2 * _X)

    def test_whatever_a_loss_or_a_layer_computes_with_is_compared(self) -> None:
        def base_of(factor: float) -> type:
            class Base(keras.layers.Layer):  # type: ignore[misc]
                def call(self, x: Any) -> Any:
                    return factor * x

            return Base

        one = base_of(1.0)

        def layered(base: type = one, mode: str = "m_1", rate: float = 1.0, scale: float = 2.0) -> keras.Model:
            class Own(base):  # type: ignore[misc, valid-type]
                size = scale

                def get_config(self) -> dict[str, Any]:
                    return {**super().get_config(), "mode": mode, "learning_rate": rate}

            model = keras.Sequential([keras.Input((2,)), Own(name="own"), keras.layers.Dense(1, name="only")])
            model.compile("sgd", "mse")
            return model

        def of_global(value: Any) -> keras.Model:
            global FACTOR
            FACTOR = value
            return compiled(lambda y, p: FACTOR * (y - p) ** 2)

        def of_list(values: list[float]) -> keras.Model:
            return compiled(lambda y, p: values[0] * (y - p) ** 2)

        def optimized(factor: float) -> keras.Model:
            class Own(keras.optimizers.SGD):  # type: ignore[misc]
                def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
                    super().update_step(factor * gradient, variable, learning_rate)

            model = compiled()
            model.compile(Own(), "mse")
            return model

        def regularized(factor: float) -> keras.Model:
            class Own(keras.regularizers.Regularizer):  # type: ignore[misc]
                def __call__(self, x: Any) -> Any:
                    return factor * keras.ops.sum(x)

            model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, kernel_regularizer=Own(), name="only")])
            model.compile("sgd", "mse")
            return model

        cases: list[tuple[Callable[[Any], keras.Model], Any, Any]] = [
            (of_global, 1.0, 9.0),
            (of_global, [1.0], [9.0]),
            (of_global, np.ones(3), np.zeros(3)),
            (of_list, [1.0], [9.0]),
            (lambda base: layered(base=base), base_of(1.0), base_of(3.0)),
            (lambda mode: layered(mode=mode), "m_1", "m_2"),
            (lambda rate: layered(rate=rate), 1.0, 2.0),
            (lambda scale: layered(scale=scale), 1.0, 2.0),
            (optimized, 1.0, 9.0),
            (regularized, 1.0, 9.0),
        ]
        for number, (make, then, now) in enumerate(cases):
            with self.subTest(number=number):
                self.take(make(then), resume=False)
                self.back_up()
                self.assertEqual(self.take(make(then)), 5)
                with self.assertRaisesRegex(ValueError, "another model|another loss"):
                    self.take(make(now))
                (self.directory / "fit-1-step-0000000001.h5").unlink()

    def test_a_function_that_many_call_is_described_once(self) -> None:
        lines = [f"def f{i}(y, p): return f{i + 1}(y, p) + f{i + 2}(y, p)" for i in range(20)]
        names: dict[str, Any] = {"__name__": "of_a_user"}
        exec("\n".join([*lines, "def f20(y, p): return p", "def f21(y, p): return y"]), names)
        self.assertLess(len(str(_start._code_of_value(names["f0"]))), 10_000)

    def test_a_training_without_a_backup_is_not_resumed(self) -> None:
        self.take(compiled(), resume=False)
        self.assertIsNone(self.take(compiled(), data=2 * _X))

    def test_seeds_that_keras_draws_are_not_compared(self) -> None:
        def made(mode: str) -> dict[str, Any]:
            model = keras.Sequential([keras.Input((4, 4, 1)), keras.layers.RandomFlip(mode), keras.layers.Dropout(0.1)])
            model.compile("sgd", "mse")
            return _start.describe_model(model)

        self.assertIsNone(_start.other_training(made("vertical"), made("vertical")))
        self.assertEqual(
            _start.other_training(made("vertical"), made("horizontal")),
            "another model: mode vertical then, horizontal now",
        )

    def test_a_rate_that_a_training_has_changed_is_not_compared(self) -> None:
        model = compiled()
        start = _start.describe_model(model)
        model.optimizer.learning_rate = 0.5
        self.assertEqual(
            _start.other_training(start, _start.describe_model(model)), "another learning rate: 0.01 then, 0.5 now"
        )
        model.optimizer.iterations.assign(3)
        self.assertIsNone(_start.other_training(start, _start.describe_model(model)))

    def test_data_are_compared_in_the_order_of_their_construction(self) -> None:
        first = {"batch_size": 4, "seed": 1, "digest": {"x": "a", "y": "c"}}
        second = {"batch_size": 4, "seed": 2, "digest": {"x": "b", "y": "c"}}
        self.assertIsNone(_start.other_shards([first, None], [first, second], 0))
        self.assertEqual(_start.other_shards([first, second], [first, first], 0), "another seed: 2 then, 1 now")
        changed = second | {"digest": first["digest"]}
        self.assertEqual(_start.other_shards([second], [changed], 0), "other data: other values in x")
        self.assertIsNone(_start.other_shards([first, second], [first], 0))
        self.assertEqual(_start.other_shards([first, second], [first], 1), "another batch_size")
        self.assertIsNone(_start.other_shards([first], [], None))

    def test_processes_describe_a_function_alike(self) -> None:
        told = {
            subprocess.run(
                [sys.executable, "-c", _A_LOSS_WITH_A_SET],
                env={**os.environ, "PYTHONHASHSEED": seed},
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            ).stdout
            for seed in ("0", "1", "2")
        }
        self.assertEqual(len(told), 1)


if __name__ == "__main__":
    unittest.main()
