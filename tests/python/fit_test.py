"""`lockstep.fit` and its like beside Keras' own: weights, histories, callbacks, and all backends."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

os.environ["KERAS_BACKEND"] = "jax"

import keras
import lockstep
import numpy as np
from fit_support import BATCH, EXAMPLES, TOLERANCE, Collect, CollectBatches, FitTest, data, make_model
from lockstep._engine_choice import beyond_native
from support import BACKENDS, LIMIT_S


class WeightsTest(FitTest):
    def assert_weighted_as_keras(self, engine: str, *chosen: int) -> None:
        """Trains with weights of classes or examples, in some of four cases."""
        x, y = data()
        weights = np.random.default_rng(7).uniform(0, 2, EXAMPLES)
        one_hot = keras.utils.to_categorical(y, 4)
        cases: list[tuple[Any, dict[str, Any]]] = [
            (y, {"class_weight": {0: 2.0, 3: 0.25}, "validation_split": 0.2}),
            (y, {"sample_weight": weights, "validation_split": 0.2}),
            (y, {"sample_weight": weights, "validation_data": (x, y, weights)}),
            (one_hot, {"class_weight": {1: 3.0}}),
        ]
        for targets, given in (cases[index] for index in chosen):
            with self.subTest(given=list(given)):
                alone, model = make_model(), make_model()
                if targets is one_hot:
                    for each in (alone, model):
                        loss = keras.losses.CategoricalCrossentropy(from_logits=True)
                        each.compile("sgd", loss, metrics=["accuracy"])
                options = {"batch_size": BATCH, "shuffle": False, "verbose": 0, "epochs": 2}
                expected = alone.fit(x, targets, **options, **given).history
                history = lockstep.fit(model, x, targets, workers=2, engine=engine, **options, **given).history
                self.assertEqual(history.keys(), expected.keys())
                for key, values in expected.items():
                    np.testing.assert_allclose(history[key], values, rtol=1e-3, atol=1e-5)
                self.assert_same(model, alone)


class QuickTest(WeightsTest):
    def test_two_epochs_natively_then_one_in_keras_equal_three_in_keras(self) -> None:
        x, y = data()
        validation = data(40)
        options = {"batch_size": BATCH, "shuffle": False, "validation_data": validation, "verbose": 0}
        alone = make_model()
        expected = alone.fit(x, y, epochs=3, **options).history
        for workers in (1, 2):
            model = make_model()
            before = [id(variable) for variable in model.trainable_variables]
            history = lockstep.fit(model, x, y, epochs=2, workers=workers, engine="native", **options)
            self.assertIsInstance(history, keras.callbacks.History)
            self.assertEqual(history.epoch, [0, 1])
            last = model.fit(x, y, epochs=1, **options).history
            self.assertEqual([id(variable) for variable in model.trainable_variables], before)
            self.assert_same(model, alone)
            self.assertEqual(set(history.history), set(expected))
            for name, values in expected.items():
                np.testing.assert_allclose(history.history[name] + last[name], values, atol=TOLERANCE, err_msg=name)

    def test_a_crossentropy_that_tensorflow_computes_differently_is_left_to_it(self) -> None:
        sparse, binary = "sparse_categorical_crossentropy", "binary_crossentropy"
        of_logits = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        binary_of_logits = keras.losses.BinaryCrossentropy(from_logits=True)
        measured = keras.metrics.SparseCategoricalCrossentropy
        for last, loss, metric, on_tensorflow in (
            (None, sparse, None, "native"),
            ("relu", sparse, None, "native"),
            (None, of_logits, None, "native"),
            ("softmax", sparse, None, "native"),
            ("softmax", of_logits, None, "native"),
            ("sigmoid", sparse, None, "keras"),
            ("sigmoid", binary, None, "native"),
            ("sigmoid", binary_of_logits, None, "native"),
            ("softmax", binary, None, "keras"),
            ("softmax", "binary_focal_crossentropy", None, "keras"),
            ("sigmoid", "binary_focal_crossentropy", None, "keras"),
            ("softmax", sparse, measured(), "keras"),
            (None, of_logits, measured(), "native"),
            (None, of_logits, measured(from_logits=True), "native"),
            ("softmax", sparse, measured(from_logits=True), "keras"),
            ("sigmoid", "mse", None, "native"),
        ):
            with self.subTest(last=last, loss=loss, metric=metric):
                model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4, last)])
                model.compile("sgd", loss, metrics=None if metric is None else [metric])
                self.assertEqual(lockstep.check(model).engine, "native")
                with mock.patch.object(keras.backend, "backend", return_value="tensorflow"):
                    found = lockstep.check(model)
                self.assertEqual(found.engine, on_tensorflow, found.reason)
                if on_tensorflow == "keras":
                    self.assertIn("from_logits=True", found.reason)

    def test_an_embedding_that_tensorflow_trains_differently_is_left_to_it(self) -> None:
        for optimizer, trainable, on_tensorflow in (
            (keras.optimizers.Adam(), True, "keras"),
            (keras.optimizers.Adam(), False, "native"),
            (keras.optimizers.Adam(gradient_accumulation_steps=2), True, "native"),
            (keras.optimizers.SGD(momentum=0.9), True, "native"),
            (keras.optimizers.SGD(clipnorm=1.0), True, "keras"),
        ):
            rows = keras.layers.Embedding(5, 3, trainable=trainable)
            nested = keras.Sequential([keras.Input((6,), dtype="int32"), rows, keras.layers.Flatten()])
            model = keras.Sequential([keras.Input((6,), dtype="int32"), nested, keras.layers.Dense(2)])
            model.compile(optimizer, "mse")
            self.assertEqual(lockstep.check(model).engine, "native")
            with mock.patch.object(keras.backend, "backend", return_value="tensorflow"):
                found = lockstep.check(model)
            self.assertEqual(found.engine, on_tensorflow, found.reason)

    def test_targets_whose_sum_tensorflow_takes_for_1_are_left_to_it(self) -> None:
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4, "softmax")])
        for loss, targets, on_tensorflow in (
            ("categorical_crossentropy", np.eye(4), "native"),
            ("categorical_crossentropy", np.full((4, 4), 0.25, np.float32), "native"),
            ("categorical_crossentropy", np.ones((4, 4)), "keras"),
            ("mse", np.ones((4, 4)), "native"),
        ):
            model.compile("sgd", loss)
            problem = beyond_native(model, targets, None, None)
            self.assertIsNone(problem)
            with mock.patch.object(keras.backend, "backend", return_value="tensorflow"):
                problem = beyond_native(model, targets, None, None)
            self.assertEqual("native" if problem is None else "keras", on_tensorflow, problem)

    def test_weights_of_classes_and_examples_as_keras(self) -> None:
        self.assert_weighted_as_keras("native", 0, 1, 2, 3)
        self.assert_weighted_as_keras("keras", 2)

    def test_steps_of_accumulated_gradients_as_keras(self) -> None:
        x, y = data()
        options = {"batch_size": BATCH, "shuffle": False, "verbose": 0, "epochs": 2}
        alone, model = (make_model(keras.optimizers.Adam(0.01, gradient_accumulation_steps=2)) for _ in range(2))
        alone.fit(x, y, **options)
        lockstep.fit(model, x, y, engine="native", **options)
        self.assert_same(model, alone)

    def test_several_inputs_as_keras(self) -> None:
        x, y = data()
        numbers = np.random.default_rng(3).normal(size=(EXAMPLES, 5)).astype("float32")
        levels = np.random.default_rng(4).integers(0, 256, (EXAMPLES, 2)).astype("uint8")

        def made() -> Any:
            keras.utils.set_random_seed(1)
            image, number, level = (keras.Input(shape, name=name) for name, shape in
                                    (("image", (6, 6, 1)), ("number", (5,)), ("level", (2,))))  # fmt: skip
            seen = keras.layers.Flatten()(keras.layers.Conv2D(3, 3, activation="relu")(image))
            scaled = keras.layers.Rescaling(1 / 255)(level)
            together = keras.layers.Concatenate()([seen, keras.layers.Dense(4, activation="tanh")(number), scaled])
            model = keras.Model([image, number, level], keras.layers.Dense(4)(together))
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
            return model

        self.assertEqual(lockstep.check(made()).engine, "native")
        options = {"batch_size": BATCH, "shuffle": False, "verbose": 0, "epochs": 2}
        lists = [x, numbers, levels]
        by_name = {"level": levels, "image": x, "number": numbers}
        alone = made()
        expected = alone.fit(lists, y, validation_data=(lists, y), **options).history
        for given, other in ((lists, tuple(lists)), (tuple(lists), by_name), (by_name, by_name)):
            model = made()
            history = lockstep.fit(model, given, y, validation_data=(other, y), workers=2, engine="native", **options)
            self.assert_same(model, alone)
            for name, values in expected.items():
                np.testing.assert_allclose(history.history[name], values, atol=TOLERANCE, err_msg=name)
            np.testing.assert_allclose(
                lockstep.predict(model, given), alone.predict(lists, verbose=0), rtol=1e-3, atol=1e-4
            )
            np.testing.assert_allclose(
                lockstep.evaluate(model, other, y), alone.evaluate(lists, y, verbose=0), rtol=1e-3, atol=1e-4
            )
        wrong = {name: array for name, array in by_name.items() if name != "level"}
        with self.assertRaisesRegex(ValueError, "no array for the model's input 'level'.*'image' and 'number'"):
            lockstep.fit(made(), wrong, y, verbose=0)
        with self.assertRaisesRegex(ValueError, "an array 'colour', but the model's inputs are 'image', "):
            lockstep.fit(made(), {**by_name, "colour": x}, y, verbose=0)
        with self.assertRaisesRegex(ValueError, r"have \[120, 119, 120\] examples"):
            lockstep.fit(made(), [x, numbers[1:], levels], y, verbose=0)

    def test_several_outputs_as_keras(self) -> None:
        x, y = data()
        place = np.random.default_rng(3).normal(size=(EXAMPLES, 2)).astype("float32")

        def made(**compiled: Any) -> Any:
            keras.utils.set_random_seed(1)
            image = keras.Input((6, 6, 1))
            hidden = keras.layers.Dense(8, activation="tanh")(keras.layers.Flatten()(image))
            kind = keras.layers.Dense(4, name="kind")(hidden)
            model = keras.Model(image, [kind, keras.layers.Dense(2, name="place")(hidden)])
            model.compile(keras.optimizers.Adam(0.01), **compiled)
            return model

        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        lists = {"loss": [loss, "mse"], "metrics": [["accuracy"], ["mae"]], "loss_weights": [1.0, 0.5]}
        dicts = {"loss": {"kind": loss, "place": "mse"}, "metrics": {"place": ["mae"]}}
        weights = np.random.default_rng(7).uniform(0, 2, EXAMPLES)
        options = {"batch_size": BATCH, "shuffle": False, "verbose": 0, "epochs": 2}
        for compiled, given, more in (
            (lists, [y, place], {"validation_split": 0.2}),
            (dicts, {"place": place, "kind": y}, {"sample_weight": weights}),
        ):
            alone, model = made(**compiled), made(**compiled)
            self.assertEqual(lockstep.check(model).engine, "native")
            expected = alone.fit(x, [y, place], **options, **more).history
            history = lockstep.fit(model, x, given, workers=2, engine="native", **options, **more).history
            self.assertEqual(set(history), set(expected))
            for name, values in expected.items():
                np.testing.assert_allclose(history[name], values, rtol=1e-3, atol=1e-4, err_msg=name)
            self.assert_same(model, alone)
            found = lockstep.predict(model, x)
            for ours, theirs in zip(found, alone.predict(x, verbose=0), strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)
            np.testing.assert_allclose(
                lockstep.evaluate(model, x, given), alone.evaluate(x, [y, place], verbose=0), rtol=1e-3, atol=1e-4
            )
        with self.assertRaisesRegex(ValueError, "no array for the model's output 'place'"):
            lockstep.fit(made(**lists), x, {"kind": y}, verbose=0)

    def test_variables_of_other_jobs_change_nothing(self) -> None:
        x, y = data()
        model, same = make_model(), make_model()
        options: dict[str, Any] = {"batch_size": BATCH, "shuffle": False, "verbose": 0}
        lockstep.fit(model, x, y, **options)
        task = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}
        given = {
            "CLUSTER_CONFIG": json.dumps(task), "LOCKSTEP_CONTROL_FD": "", "LOCKSTEP_INITIAL_WEIGHTS": "none.h5",
            "LOCKSTEP_LEARNING_RATE": "9", "LOCKSTEP_MODEL_DIR": str(self.folder / "models"), "LOCKSTEP_MPI_PORTS": "1",
            "LOCKSTEP_PRECISION": "mixed_bfloat16", "LOCKSTEP_STEPS_PER_EPOCH": "1", "LOCKSTEP_WORKERS": "2",
            "MODEL_DIR": str(self.folder / "models"), "TF_CONFIG": json.dumps(task),
        }  # fmt: skip
        with mock.patch.dict(os.environ, given):
            lockstep.fit(same, x, y, **options)
            np.testing.assert_allclose(lockstep.predict(same, x), same.predict(x, verbose=0), atol=1e-5)
        self.assert_same(model, same, tolerance=0)
        self.assertFalse((self.folder / "models").exists())

    def test_callbacks_run_here_once_and_in_order(self) -> None:
        x, y = data()
        collect = CollectBatches()
        model = make_model()
        lockstep.fit(model, x, y, epochs=2, batch_size=40, verbose=0, callbacks=[collect])
        epoch = [("batch", 0), ("batch", 1), ("batch", 2)]
        calls = [("train_begin", 0)]
        for number in range(2):
            calls += [("epoch_begin", number), *epoch, ("epoch_end", number)]
        self.assertEqual(collect.calls, [*calls, ("train_end", 0)])
        self.assertTrue((collect.weights[0] != collect.weights[1]).any())
        np.testing.assert_array_equal(collect.weights[1], model.get_weights()[0])


class FullTest(WeightsTest):
    def run_on(self, backend: str, program: str, *arguments: str) -> str:
        """Return what a program prints, with Keras on a backend, after it has ended with 0."""
        environment = os.environ | {"KERAS_BACKEND": backend, "TMPDIR": str(self.folder)}
        command = [sys.executable, "-W", "ignore", str(Path(__file__).parent / "programs" / program), *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr[-4000:])
        return done.stdout

    def test_weights_of_classes_and_examples_in_the_keras_engine(self) -> None:
        self.assert_weighted_as_keras("keras", 0, 1, 3)

    def test_any_model_on_any_backend(self) -> None:
        for backend in BACKENDS:
            cases = ["layer:1", "vae:2", "layer:2", "lstm:2", "transformer:2"]
            with self.subTest(backend):
                printed = self.run_on(backend, "any_model.py", *cases)
                self.assertEqual(re.findall(r"(?m)^equal: (.*)$", printed), cases)

    def test_crossentropies_after_any_activation_as_the_backend(self) -> None:
        for backend, native in (("jax", 141), ("tensorflow", 48)):
            with self.subTest(backend):
                printed = self.run_on(backend, "crossentropies.py")
                self.assertEqual(len(re.findall(r"(?m)^native: ", printed)), native, printed)

    def test_synchronized_normalizations_see_the_whole_batch(self) -> None:
        printed = self.run_on("tensorflow", "synchronized.py")
        self.assertRegex(printed, "refused: the layer '.*' has synchronized=True, which takes the native engine")

    def test_embeddings_of_repeated_rows_as_the_backend(self) -> None:
        for backend, native in (("jax", 12), ("tensorflow", 3)):
            with self.subTest(backend):
                printed = self.run_on(backend, "embeddings.py")
                self.assertEqual(len(re.findall(r"(?m)^native: ", printed)), native, printed)

    def test_callbacks_steer_the_keras_engine(self) -> None:
        x, y = data()
        model = make_model(keras.optimizers.SGD(0.5))
        stop = Collect(lambda model, epoch: setattr(model, "stop_training", epoch == 1))
        rate = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 10 if epoch else rate)
        options: dict[str, Any] = {"epochs": 5, "batch_size": BATCH, "verbose": 0, "engine": "keras"}
        history = lockstep.fit(model, x, y, callbacks=[rate, stop], **options)
        self.assertEqual(history.epoch, [0, 1])
        np.testing.assert_allclose(history.history["learning_rate"], [0.5, 0.05], rtol=1e-6)

        def interrupt(model: Any, epoch: int) -> None:
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            lockstep.fit(model, x, y, callbacks=[Collect(interrupt)], **options)
        self.assertEqual(int(model.optimizer.iterations), 3 * EXAMPLES // BATCH)

    def test_epochs_begin_and_validate_as_in_keras(self) -> None:
        x, y = data()
        given = {"batch_size": BATCH, "shuffle": False, "verbose": 0, "epochs": 5, "initial_epoch": 2}
        given |= {"validation_split": 0.2, "validation_freq": 2}
        alone = make_model()
        expected = alone.fit(x, y, **given)
        self.assertEqual(len(expected.history["val_loss"]), 1)
        for engine in ("native", "keras"):
            with self.subTest(engine):
                model, seen = make_model(), Collect(lambda model, epoch: None)
                history = lockstep.fit(model, x, y, workers=2, engine=engine, callbacks=[seen], **given)
                self.assertEqual(history.epoch, expected.epoch)
                self.assertEqual([epoch for kind, epoch in seen.calls if kind == "epoch_begin"], [2, 3, 4])
                self.assertEqual(history.history.keys(), expected.history.keys())
                for name, values in expected.history.items():
                    np.testing.assert_allclose(history.history[name], values, atol=TOLERANCE, err_msg=name)
                self.assert_same(model, alone)
                nothing = lockstep.fit(model, x, y, engine=engine, **{**given, "epochs": 2})
                self.assertEqual(nothing.epoch, [])
        self.assert_same(model, alone)

    def test_evaluate_and_predict_as_keras(self) -> None:
        x, y = data(50)
        model = make_model()
        np.testing.assert_allclose(lockstep.evaluate(model, x, y), model.evaluate(x, y, verbose=0), atol=1e-5)
        self.assertEqual(set(lockstep.evaluate(model, x, y, return_dict=True)), {"loss", "accuracy"})
        lockstep.evaluate(model, x, y, batch_size=2**31 - 1)  # more than there is memory for
        model.compile("sgd", "mse", metrics=[keras.metrics.MeanSquaredError(), "mae"], weighted_metrics=["mae"])
        targets = keras.utils.to_categorical(y, 4)
        expected = model.evaluate(x, targets, verbose=0)
        np.testing.assert_allclose(lockstep.evaluate(model, x, targets), expected, rtol=1e-4)
        weights = np.linspace(0, 3, len(x))
        expected = model.evaluate(x, targets, sample_weight=weights, verbose=0)
        found = lockstep.evaluate(model, x, targets, sample_weight=weights, workers=2)
        np.testing.assert_allclose(found, expected, rtol=1e-4)
        predicted = lockstep.predict(model, x, workers=2, batch_size=16)
        np.testing.assert_allclose(predicted, model.predict(x, verbose=0), atol=1e-5)

    def test_bytes_are_used_as_keras_does(self) -> None:
        draw = np.random.default_rng(2)
        x = draw.integers(0, 256, size=(40, 6, 6, 1)).astype("uint8")
        model = make_model()
        np.testing.assert_allclose(lockstep.predict(model, x), model.predict(x, verbose=0), rtol=1e-4, atol=1e-3)

    def test_callbacks_change_the_learning_rate_and_stop(self) -> None:
        x, y = data()

        def schedule(epoch: int, rate: float) -> float:
            return rate / 10 if epoch else rate

        options = {"batch_size": BATCH, "shuffle": False, "verbose": 0}
        models = []
        for fit in (lockstep.fit, keras.Model.fit):
            model = make_model(keras.optimizers.SGD(0.5))
            stop = Collect(lambda model, epoch: setattr(model, "stop_training", epoch == 1))
            callbacks = [keras.callbacks.LearningRateScheduler(schedule), stop]
            history = fit(model, x, y, epochs=5, callbacks=callbacks, **options)
            self.assertEqual(history.epoch, [0, 1])
            np.testing.assert_allclose(history.history["learning_rate"], [0.5, 0.05], rtol=1e-6)
            models.append(model)
        self.assert_same(*models)

    def test_what_callbacks_change_at_the_start_reaches_the_workers(self) -> None:
        x, y = data()

        class Freeze(keras.callbacks.Callback):
            def on_train_begin(self, logs: Any = None) -> None:
                self.model.optimizer.learning_rate = 0.0

        model = make_model(keras.optimizers.SGD(0.5))
        before = model.get_weights()
        lockstep.fit(model, x, y, batch_size=BATCH, verbose=0, callbacks=[Freeze()])
        for own, start in zip(model.get_weights(), before, strict=True):
            np.testing.assert_array_equal(own, start)

    def test_restored_best_weights_stay(self) -> None:
        x, y = data()
        model = make_model(keras.optimizers.SGD(5.0))
        collect = Collect()
        early = keras.callbacks.EarlyStopping("loss", patience=1, restore_best_weights=True)
        history = lockstep.fit(model, x, y, epochs=9, batch_size=BATCH, verbose=0, callbacks=[collect, early])
        best = int(np.argmin(history.history["loss"]))
        self.assertLess(best, len(collect.weights) - 1, "the loss never rose")
        np.testing.assert_array_equal(model.get_weights()[0], collect.weights[best])


if __name__ == "__main__":
    unittest.main()
