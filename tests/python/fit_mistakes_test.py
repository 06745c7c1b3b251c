"""What `lockstep.fit` and its like refuse before anything starts, and the sentence that says so."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import unittest
import warnings
from collections.abc import Callable
from typing import Any
from unittest import mock

os.environ["KERAS_BACKEND"] = "jax"

import keras
import lockstep
import numpy as np
from fit_support import BATCH, EXAMPLES, FitTest, data, make_model
from lockstep._job import error_of


class QuickTest(FitTest):
    def test_what_keras_file_does_not_hold_is_not_lost(self) -> None:
        x, y = data()
        targets = keras.utils.to_categorical(y, 4)
        alone, model = make_model(), make_model()
        for each in (alone, model):
            each.compile("sgd", keras.losses.Huber(delta=0.1))
        self.assertIn("delta of Huber", lockstep.check(model).reason)
        by_metric = make_model()
        by_metric.compile("sgd", "mse", metrics=[keras.metrics.CosineSimilarity(axis=0)])
        self.assertIn("axis of CosineSimilarity", lockstep.check(by_metric).reason)
        custom = make_model()
        custom.compile(keras.optimizers.Adafactor(), "mse")
        self.assertEqual(lockstep.check(custom).engine, "keras")
        self.assertIn("Adafactor", lockstep.check(custom).reason)
        with self.assertRaisesRegex(ValueError, "delta of Huber"):
            lockstep.evaluate(model, x, targets, engine="native")
        options = {"batch_size": BATCH, "shuffle": False, "verbose": 0, "epochs": 2}
        expected = alone.fit(x, targets, **options).history
        history = lockstep.fit(model, x, targets, **options).history
        np.testing.assert_allclose(history["loss"], expected["loss"], rtol=1e-4)

    def assert_trains_as_keras(self, compile_model: Callable[[keras.Model], None], lost: str) -> None:
        """One epoch of one-hot targets, which the native engine leaves to Keras because the file lacks `lost`."""
        x, y = data()
        targets = keras.utils.to_categorical(y, 4)
        alone, model = make_model(), make_model()
        compile_model(alone)
        compile_model(model)
        self.assertIn(lost, lockstep.check(model).reason)
        options = {"batch_size": BATCH, "shuffle": False, "verbose": 0}
        expected = alone.fit(x, targets, **options).history
        history = lockstep.fit(model, x, targets, **options).history
        for name, values in expected.items():
            np.testing.assert_allclose(history[name], values, rtol=1e-4, err_msg=name)

    def test_options_that_are_set_on_a_made_loss_change_nothing_as_in_keras(self) -> None:
        def compile_model(model: keras.Model) -> None:
            loss = keras.losses.CategoricalCrossentropy(from_logits=True)
            loss.label_smoothing = 0.5
            metric = keras.metrics.TopKCategoricalAccuracy(2)
            metric.k = 4
            model.compile("sgd", loss, metrics=[metric])

        self.assert_trains_as_keras(compile_model, "label_smoothing of CategoricalCrossentropy")

    def test_thresholds_that_are_set_on_a_made_precision_count_as_in_keras(self) -> None:
        def compile_model(model: keras.Model) -> None:
            metric = keras.metrics.Precision(name="precision")
            metric.thresholds = [0.3]
            model.compile("sgd", keras.losses.CategoricalCrossentropy(from_logits=True), metrics=[metric])

        self.assert_trains_as_keras(compile_model, "thresholds of Precision")

    def test_a_metric_in_two_places_has_one_state_as_in_keras(self) -> None:
        def compile_model(model: keras.Model) -> None:
            metric = keras.metrics.MeanAbsoluteError(name="error")
            model.compile("sgd", "mse", metrics=[metric], weighted_metrics=[metric])

        self.assert_trains_as_keras(compile_model, "the metric error is one object in two places")

    def test_metrics_that_keras_numbers_are_left_to_it(self) -> None:
        def compile_model(model: keras.Model) -> None:
            plain = [keras.metrics.MeanAbsoluteError(name="a"), keras.metrics.MeanSquaredError(name="weighted_a")]
            model.compile("sgd", "mse", metrics=plain, weighted_metrics=[keras.metrics.MeanSquaredError(name="a")])

        self.assert_trains_as_keras(compile_model, "the metric weighted_a is given twice")

    def test_losses_and_metrics_that_have_trained_are_as_new_ones(self) -> None:
        x, y = data()
        targets = keras.utils.to_categorical(y, 4)
        model = make_model()
        loss = keras.losses.CategoricalCrossentropy(from_logits=True)
        metrics = [keras.metrics.Precision(), keras.metrics.AUC(), keras.metrics.F1Score("macro"), "accuracy"]
        model.compile("sgd", loss, metrics=metrics)
        model.fit(x, targets, verbose=0)
        self.assertEqual(lockstep.check(model).engine, "native", lockstep.check(model).reason)

    def test_an_optimizer_that_replaces_the_compiled_one_trains(self) -> None:
        x, y = data()
        options: dict[str, Any] = {"batch_size": BATCH, "shuffle": False, "verbose": 0}
        for given in (keras.optimizers.SGD(0.1), "sgd"):
            alone, model = make_model(), make_model()
            for each in (alone, model):
                each.compile(given, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
                each.optimizer = keras.optimizers.SGD(0.1, clipnorm=0.01)
            expected = alone.fit(x, y, epochs=2, **options).history
            for engine in ("native", "keras") if given == "sgd" else ("native",):
                with self.subTest(given=str(given), engine=engine):
                    trained = keras.models.clone_model(model)
                    trained.set_weights(model.get_weights())
                    trained.compile(given, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
                    trained.optimizer = keras.optimizers.SGD(0.1, clipnorm=0.01)
                    history = lockstep.fit(trained, x, y, epochs=2, engine=engine, **options).history
                    np.testing.assert_allclose(history["loss"], expected["loss"], rtol=1e-4)
                    self.assert_same(trained, alone)

    def test_an_optimizer_of_variables_in_another_order_is_refused(self) -> None:
        x, y = data()
        model = make_model(keras.optimizers.Adam())
        model.optimizer.build(model.trainable_variables[::-1])
        with self.assertRaisesRegex(ValueError, "in another order"):
            lockstep.fit(model, x, y, batch_size=BATCH, verbose=0)

    def test_layers_frozen_after_compile_need_another(self) -> None:
        x, y = data()
        model = make_model()
        lockstep.fit(model, x, y, batch_size=BATCH, verbose=0)
        model.layers[0].trainable = False
        for call in (lambda: lockstep.fit(model, x, y, batch_size=BATCH, verbose=0), lambda: lockstep.check(model)):
            with self.assertRaisesRegex(ValueError, "compile the model again"):
                call()

    def test_inference_of_unknown_layers_names_them(self) -> None:
        x, y = data()
        model = keras.Sequential([keras.Input((6, 6, 1)), keras.layers.Reshape((6, 6)), keras.layers.GRU(3)])
        model.compile("sgd", "sparse_categorical_crossentropy")
        with self.assertRaisesRegex(ValueError, r"does not evaluate .*\(GRU\).*; use engine='auto'(\n|$)"):
            lockstep.evaluate(model, x, y, engine="native")
        with self.assertRaisesRegex(ValueError, r"does not predict .*\(GRU\).*; use engine='auto'(\n|$)"):
            lockstep.predict(model, x, engine="native")

    def test_wrong_input_is_told_at_once(self) -> None:
        x, y = data()
        model = make_model()
        raw = keras.Sequential([keras.Input((6, 6, 1)), keras.layers.Flatten()])
        other = make_model()
        other.optimizer.build(other.trainable_variables)
        foreign = make_model(other.optimizer)
        excluding = make_model(keras.optimizers.AdamW())
        excluding.optimizer.exclude_from_weight_decay(var_names=["bias"])
        summed, ignoring, adding, named = make_model(), make_model(), make_model(), make_model()
        named.compile("sgd", {"out": "mse"})
        summed.compile("sgd", keras.losses.SparseCategoricalCrossentropy(reduction="sum"))
        ignoring.compile("sgd", keras.losses.SparseCategoricalCrossentropy(ignore_class=-1))
        adding.compile("sgd", lambda true, outputs: keras.ops.sum((outputs - true[:, None]) ** 2))
        wrong: list[tuple[str, type[Exception], Callable[[], Any]]] = [
            ("not compiled", ValueError, lambda: lockstep.fit(raw, x, y)),
            ("give a keras.Model", ValueError, lambda: lockstep.fit("model", x, y)),
            ("a dict from class to factor", ValueError, lambda: lockstep.fit(model, x, y, class_weight=[1, 2])),
            ("the class 0.5", ValueError, lambda: lockstep.fit(model, x, y, class_weight={0.5: 1.0})),
            ("is nan; it must be a finite", ValueError, lambda: lockstep.fit(model, x, y, class_weight={0: np.nan})),
            ("y is missing", ValueError, lambda: lockstep.fit(model, x)),
            ("119 examples, y has 120", ValueError, lambda: lockstep.fit(model, x[1:], y)),
            ("workers is 0", ValueError, lambda: lockstep.fit(model, x, y, workers=0)),
            ("batch_size is 2.5", ValueError, lambda: lockstep.fit(model, x, y, batch_size=2.5)),
            ("initial_epoch is -1", ValueError, lambda: lockstep.fit(model, x, y, initial_epoch=-1)),
            ("validation_freq is \\[2\\]", ValueError, lambda: lockstep.fit(model, x, y, validation_freq=[2])),
            ("validation_split is 1", ValueError, lambda: lockstep.fit(model, x, y, validation_split=1)),
            ("pair of arrays", ValueError, lambda: lockstep.fit(model, x, y, validation_data=x)),
            ("both given", ValueError, lambda: lockstep.fit(model, x, y, class_weight={0: 2.0}, sample_weight=x)),
            (
                r"shape \(3,\); give one number for each of its 120",
                ValueError,
                lambda: lockstep.fit(model, x, y, sample_weight=[1, 2, 3]),
            ),
            ("or data in batches", ValueError, lambda: lockstep.fit(model, iter([(x, y)]))),
            ("has 1 input.*has 2 arrays", ValueError, lambda: lockstep.fit(model, [x, x], y, verbose=0)),
            ("has 1 output.*has 2 arrays", ValueError, lambda: lockstep.fit(model, x, [y, y], verbose=0)),
            ("pair of arrays", ValueError, lambda: lockstep.fit(model, x, y, validation_data=x, engine="keras")),
            ("no array of numbers.*classes.index", ValueError, lambda: lockstep.fit(model, x, y.astype(str))),
            ("no array of numbers.*classes.index", ValueError, lambda: lockstep.fit(model, x, y.astype(object))),
            ("no array of numbers.*astype", ValueError, lambda: lockstep.fit(model, x.astype(str), y)),
            ("is a masked array", ValueError, lambda: lockstep.fit(model, np.ma.masked_array(x, x > 0.5), y)),
            ("loss is a dict", ValueError, lambda: lockstep.fit(named, x, y)),
            ("variables of another model", ValueError, lambda: lockstep.fit(foreign, x, y)),
            ("weight decay", ValueError, lambda: lockstep.fit(excluding, x, y)),
            ("reduction='sum'", ValueError, lambda: lockstep.fit(summed, x, y, engine="keras", workers=2)),
            ("of 64 examples is .* return a value for each example", ValueError,
             lambda: lockstep.fit(adding, x, y.astype("float32"), engine="keras", workers=2)),
            ("cuts whole numbers to 32 bits", ValueError, lambda: lockstep.fit(model, x, y + 2**33, engine="native")),
            ("of 64 examples is", ValueError, lambda: lockstep.evaluate(adding, x, y, engine="keras", workers=2)),
            ("ignore_class=-1", ValueError, lambda: lockstep.fit(ignoring, x, y, engine="keras", workers=2)),
            ("backup_dir is empty", ValueError, lambda: lockstep.fit(model, x, y, backup_dir="")),
            ("seed is -1", ValueError, lambda: lockstep.fit(model, x, y, seed=-1)),
            ("seed is 2147483648", ValueError, lambda: lockstep.fit(model, x, y, seed=2**31)),
            ("engine is 'c'", ValueError, lambda: lockstep.fit(model, x, y, engine="c")),
            ("needs backup_dir", ValueError, lambda: lockstep.fit(model, x, y, resume=True)),
            ("backup_dir=", ValueError, lambda: lockstep.fit(
                model, x, y, callbacks=[keras.callbacks.BackupAndRestore(str(self.folder))])),
            ("ends of epochs", ValueError, lambda: lockstep.fit(
                model, x, y, callbacks=[keras.callbacks.ModelCheckpoint("a.keras", save_freq=3)])),
            ("class 3.*classes 0 to 1|classes 0 to 3", ValueError, lambda: lockstep.fit(model, x, y + 9, verbose=0)),
            ("arrays of several shapes", ValueError, lambda: lockstep.fit(
                model, np.array([np.zeros((8, 8, 1)), np.zeros((7, 8, 1))], dtype=object), y[:2])),
            (r"numpy\.stack", ValueError, lambda: lockstep.fit(
                model, [np.zeros((8, 8, 1)), np.zeros((7, 8, 1))], y[:2])),
            (r"the input of example 3 of the data is NaN at \(0, 0, 0\)", ValueError, lambda: lockstep.fit(
                model, np.where(np.arange(EXAMPLES)[:, None, None, None] == 3, np.nan, x), y, verbose=0)),
        ]  # fmt: skip
        for sentence, kind, call in wrong:
            with self.subTest(sentence), self.assertRaisesRegex(kind, sentence) as caught:
                call()
            self.assertNotIn("Traceback", str(caught.exception))
        self.assertEqual(int(model.optimizer.iterations), 0)

    def test_a_caller_that_ignores_its_children_is_told(self) -> None:
        before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        self.addCleanup(signal.signal, signal.SIGCHLD, before)
        with self.assertRaisesRegex(ValueError, "ignores SIGCHLD"):
            lockstep.check(make_model())

    def test_a_handler_that_takes_the_codes_of_all_children(self) -> None:
        def take_all(number: int, frame: Any) -> None:
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0] != 0:
                    pass

        before = signal.signal(signal.SIGCHLD, take_all)
        self.addCleanup(signal.signal, signal.SIGCHLD, before)
        own = keras.Sequential([keras.Input((4,)), keras.layers.Lambda(lambda x: x), keras.layers.Dense(1)])
        own.compile("sgd", "mse")
        self.assertEqual(lockstep.check(own).engine, "keras")
        x, y = data()
        x[0, 0] = np.nan
        with self.assertRaisesRegex(lockstep.DataError, "NaN"):
            lockstep.fit(make_model(), x, y, verbose=0)

    def test_numbers_of_numpy_are_taken(self) -> None:
        x, y = data()
        model = make_model()
        lockstep.fit(model, x, y, validation_split=np.float32(0.25), batch_size=np.int64(BATCH), epochs=1, verbose=0,
                     backup_dir=self.folder / "backup")  # fmt: skip
        self.assertEqual(len(model.history.epoch), 1)

    def test_messages_of_workers_name_the_arguments_of_python(self) -> None:
        log = (
            "lockstep: error: it is longer: --epochs is 2 now; give more epochs, or start over with --resume never\nend"
        )
        told = "it is longer: epochs is 2 now; give more epochs, or name another backup_dir, or remove it"
        self.assertEqual(str(error_of(64, log, "")), told)
        self.assertEqual(str(error_of(64, log, "L")), f"{told}\nThe last lines of the workers' log, L:\n  end")
        for of_command, of_python in (
            ("a smaller --learning-rate may help", "a smaller learning_rate may help"),
            (
                "--global-batch-size is 0 but must be at least 1; see lockstep train --help",
                "batch_size is 0 but must be at least 1",
            ),
            ("--validation-split is 2", "validation_split is 2"),
        ):
            self.assertEqual(str(error_of(64, f"lockstep: error: {of_command}", "")), of_python)

    def test_check_names_what_the_native_engine_does_not_know(self) -> None:
        self.assertEqual(lockstep.check(make_model()).engine, "native")

        @keras.saving.register_keras_serializable("mine")
        class Twice(keras.layers.Layer):
            def call(self, x: Any) -> Any:
                return 2 * x

        answer = lockstep.check(make_model(layers=[keras.layers.Flatten(), Twice()]))
        self.assertEqual(answer.engine, "keras")
        self.assertIn("Twice", answer.reason)
        x, y = data()
        with self.assertRaisesRegex(ValueError, "Twice"):
            lockstep.fit(make_model(layers=[keras.layers.Flatten(), Twice()]), x, y, engine="native")

    def test_check_names_what_keras_computes_otherwise(self) -> None:
        """A decay of nothing, a schedule of whole numbers, a rate that is no number, and a number that is null."""
        rules = keras.optimizers
        undecayed = rules.AdamW()
        undecayed.weight_decay = None
        cases: list[tuple[str, Any, Any]] = [
            ("weight_decay = null", undecayed, None),
            ("whole number 1", rules.SGD(rules.schedules.CosineDecay(1, 5)), None),
            ("NaN as learning_rate", rules.SGD(float("nan")), None),
            ("alpha = null", rules.SGD(), keras.losses.CategoricalFocalCrossentropy(alpha=None)),
        ]
        for reason, optimizer, loss in cases:
            model = make_model(optimizer)
            if loss is not None:
                model.compile(optimizer, loss)
            with self.subTest(reason):
                self.assertRegex(str(lockstep.check(model)), f"^keras engine: .*{reason}")

    def test_a_class_that_workers_cannot_import_needs_cloudpickle(self) -> None:
        class Twice(keras.layers.Layer):
            def call(self, x: Any) -> Any:
                return 2 * x

        x, y = data()
        model = make_model(layers=[keras.layers.Flatten(), Twice()])
        self.assertTrue(callable(lockstep.fit))  # loaded here: the patch unloads what is loaded within it
        with mock.patch.dict(sys.modules, {"cloudpickle": None}), self.assertRaisesRegex(ValueError, "pip install"):
            lockstep.fit(model, x, y, engine="keras", verbose=0)


class FullTest(FitTest):
    def test_more_workers_than_cores_are_warned_of(self) -> None:
        x, _ = data(40)
        with mock.patch.object(os, "sched_getaffinity", lambda pid: {0}), warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            lockstep.predict(make_model(), x, workers=2)
        self.assertIn("2 workers share 1 core", " ".join(str(each.message) for each in said))


if __name__ == "__main__":
    unittest.main()
