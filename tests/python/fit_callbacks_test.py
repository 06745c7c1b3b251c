"""What `lockstep.fit` does with callbacks' decisions, metrics of several numbers, and averages of weights."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import unittest
from collections.abc import Callable
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import keras
import lockstep
import numpy as np
from fit_support import BATCH, TOLERANCE, Collect, FitTest, data, make_model


class QuickTest(FitTest):
    def test_averages_of_weights_and_metrics_of_classes_as_keras(self) -> None:
        x, y = data()
        targets = keras.utils.to_categorical(y, 4)
        options: dict[str, Any] = {"epochs": 2, "batch_size": BATCH, "shuffle": False, "verbose": 0}

        def make(engine: str) -> Any:
            model = make_model()
            metrics = [keras.metrics.F1Score()] if engine == "keras" else []
            optimizer = keras.optimizers.SGD(0.5, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=3)
            model.compile(optimizer, keras.losses.CategoricalCrossentropy(from_logits=True), metrics=metrics)
            return model

        for engine in ("native", "keras"):
            alone, model = make(engine), make(engine)
            expected = alone.fit(x, targets, **options).history
            callbacks = [Collect()]
            history = lockstep.fit(model, x, targets, workers=2, engine=engine, callbacks=callbacks, **options).history
            with self.subTest(engine):
                self.assert_same(model, alone)
                self.assertEqual(set(history), set(expected))
                for name, values in expected.items():
                    np.testing.assert_allclose(history[name], values, atol=TOLERANCE, rtol=TOLERANCE, err_msg=name)

    def test_a_learning_rate_that_a_callback_sets_outlives_a_worker(self) -> None:
        x, y = data()

        class SetRate(Collect):
            def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
                if epoch == 1:
                    os.kill(test.workers()[-1], signal.SIGKILL)

            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                super().on_epoch_end(epoch, logs)
                self.model.optimizer.learning_rate = 0.0

        test, rate = self, SetRate()
        options: dict[str, Any] = {"epochs": 2, "batch_size": BATCH, "workers": 2, "verbose": 0, "engine": "keras"}
        with contextlib.redirect_stderr(io.StringIO()) as said:
            lockstep.fit(make_model(keras.optimizers.SGD(0.5)), x, y, callbacks=[rate], **options)
        self.assertIn("training goes on from the last backup", said.getvalue())
        np.testing.assert_array_equal(rate.weights[0], rate.weights[1])

    def test_options_that_are_set_between_fits_are_told(self) -> None:
        x, y = data()
        options: dict[str, Any] = {"batch_size": BATCH, "verbose": 0, "engine": "native"}

        def told(model: Any) -> str:
            with contextlib.redirect_stderr(io.StringIO()) as said:
                lockstep.fit(model, x, y, **options)
            return said.getvalue()

        def compile_again(model: Any) -> None:
            model.optimizer.clipnorm = 0.5
            model.compile(keras.optimizers.SGD(0.1, clipnorm=0.5), model.loss, metrics=["accuracy"])

        changes: tuple[tuple[str, Callable[[Any], Any]], ...] = (
            (
                "activation of [a-z_0-9/]+/conv2d[_0-9]*",
                lambda model: setattr(model.layers[0], "activation", keras.activations.tanh),
            ),
            ("clipnorm of the optimizer", lambda model: setattr(model.optimizer, "clipnorm", 0.5)),
            ("", lambda model: setattr(model.optimizer, "learning_rate", 0.01)),
            ("", compile_again),
        )
        for what, change in changes:
            with self.subTest(what):
                model = make_model(keras.optimizers.SGD(0.1))
                self.assertEqual(told(model), "")
                change(model)
                said = told(model)
                if what:
                    self.assertRegex(said, f"{what} has changed since the last fit")
                else:
                    self.assertEqual(said, "")
                self.assertEqual(told(model), "", "it is told once")
        self.assertEqual(told(make_model()), "")

    def test_what_callbacks_change_is_refused(self) -> None:
        x, y = data()

        def set_kernel(model: Any) -> None:
            model.layers[0].kernel.assign(0.5 * model.layers[0].kernel)

        def set_momentum(model: Any) -> None:
            model.optimizer.variables[-1].assign(model.optimizer.variables[-1] + 1)

        def calling(method: str, change: Callable[[Any], None]) -> keras.callbacks.Callback:
            def call(self: keras.callbacks.Callback, number: int, logs: Any = None) -> None:
                change(self.model)

            return type("Changing", (keras.callbacks.Callback,), {method: call})()

        def set_iterations(model: Any) -> None:
            model.optimizer.iterations.assign(7)

        def set_clipnorm(model: Any) -> None:
            model.optimizer.clipnorm = 0.001

        def set_strides(model: Any) -> None:
            model.layers[0].strides = (2, 2)

        def freeze(model: Any) -> None:
            model.layers[0].trainable = False

        for method, change, what in (
            ("on_epoch_begin", set_kernel, "the variable .*conv2d.*/kernel"),
            ("on_train_batch_begin", set_kernel, "the variable .*conv2d.*/kernel"),
            ("on_train_batch_end", set_kernel, "the variable .*conv2d.*/kernel"),
            ("on_epoch_end", set_momentum, "the variable .*momentum"),
            ("on_epoch_begin", set_iterations, "the optimizer's iterations"),
            ("on_train_batch_end", set_iterations, "the optimizer's iterations"),
            ("on_epoch_begin", set_clipnorm, "the optimizer's clipnorm"),
            ("on_epoch_end", set_strides, "the strides of conv2d"),
            ("on_epoch_end", freeze, "trainable of conv2d"),
        ):
            words = f"changed {what}.* on_train_begin"
            model = make_model(keras.optimizers.SGD(0.1, momentum=0.9))
            callbacks = [calling(method, change)]
            with self.subTest(what, method=method), self.assertRaisesRegex(ValueError, words):
                lockstep.fit(model, x, y, epochs=2, batch_size=BATCH, verbose=0, callbacks=callbacks)

    def test_a_callback_that_changes_the_learning_rate_alone_is_followed(self) -> None:
        x, y = data()

        class Halve(keras.callbacks.Callback):  # type: ignore[misc]
            def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
                self.model.optimizer.learning_rate = 0.1 / 2**epoch

        options: dict[str, Any] = {"epochs": 3, "batch_size": BATCH, "shuffle": False, "verbose": 0}
        alone, model = make_model(keras.optimizers.SGD(0.1)), make_model(keras.optimizers.SGD(0.1))
        alone.fit(x, y, callbacks=[Halve()], **options)
        lockstep.fit(model, x, y, engine="native", callbacks=[Halve()], **options)
        self.assert_same(model, alone)


if __name__ == "__main__":
    unittest.main()
