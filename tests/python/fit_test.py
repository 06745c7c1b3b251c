"""`lockstep.fit` and its like beside Keras' own, and what they leave behind when something ends badly.

One file, because Keras and its backend are imported once.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

os.environ["KERAS_BACKEND"] = "jax"

import keras
import lockstep
import numpy as np
from lockstep._start import describe_compilation, owned
from support import BACKENDS, LIMIT_S, JobTest

EXAMPLES, BATCH = 120, 24
TOLERANCE = 2e-4  # of float32 sums in another order, after some steps of Adam


def data(examples: int = EXAMPLES) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(5)
    x = draw.normal(size=(examples, 6, 6, 1)).astype("float32")
    return x, (x.sum((1, 2, 3)) > 0).astype("int64") + 2 * (x[:, 0, 0, 0] > 0)


def make_model(optimizer: Any = None, layers: list[Any] | None = None) -> Any:
    keras.utils.set_random_seed(1)
    between = layers or [keras.layers.Conv2D(4, 3, activation="relu"), keras.layers.Flatten()]
    model = keras.Sequential([keras.Input((6, 6, 1)), *between, keras.layers.Dense(4)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer or keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    return model


def relu(x: Any) -> Any:
    """Not Keras'."""
    return x * 3


def processes_of(folder: Path) -> list[tuple[int, str]]:
    """Return the processes whose command names a file in a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(folder) in command and (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.append((int(entry.name), command))
    return found


def wait_until(condition: Callable[[], bool], seconds: float = 20) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def shared_memory() -> set[str]:
    return {str(path) for path in Path("/dev/shm").iterdir() if not path.is_dir()}


def is_mapped(path: str) -> bool:
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            if path in maps.read_text():
                return True
    return False


class FitTest(JobTest):
    """All jobs' folders lie in one of the test's, which tells its processes from others."""

    def setUp(self) -> None:
        super().setUp()
        before = shared_memory()
        patch = mock.patch.object(tempfile, "tempdir", str(self.folder))
        patch.start()
        self.addCleanup(self.check_nothing_is_left, before)
        self.addCleanup(patch.stop)

    def check_nothing_is_left(self, before: set[str]) -> None:
        self.assertTrue(wait_until(lambda: not processes_of(self.folder)), processes_of(self.folder))
        self.assertTrue(wait_until(lambda: all(map(is_mapped, shared_memory() - before))), shared_memory() - before)

    def workers(self) -> list[int]:
        return [pid for pid, command in processes_of(self.folder) if " launch " not in command]

    def assert_same(self, model: Any, other: Any, tolerance: float = TOLERANCE) -> None:
        variables = [each.numpy() if hasattr(each, "numpy") else np.asarray(each) for each in model.optimizer.variables]
        others = [each.numpy() if hasattr(each, "numpy") else np.asarray(each) for each in other.optimizer.variables]
        self.assertEqual(int(model.optimizer.iterations), int(other.optimizer.iterations))
        for own, theirs in zip(model.get_weights() + variables, other.get_weights() + others, strict=True):
            np.testing.assert_allclose(own, theirs, atol=tolerance, rtol=tolerance)


class Collect(keras.callbacks.Callback):
    """Remembers what it is told, and does something at one place."""

    def __init__(self, do: Callable[[Any, int], None] = lambda model, epoch: None) -> None:
        super().__init__()
        self.calls: list[tuple[str, int]] = []
        self.weights: list[np.ndarray] = []
        self.do = do

    def on_train_begin(self, logs: Any = None) -> None:
        self.calls.append(("train_begin", 0))

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.calls.append(("epoch_begin", epoch))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.calls.append(("epoch_end", epoch))
        self.weights.append(self.model.get_weights()[0])
        self.do(self.model, epoch)

    def on_train_end(self, logs: Any = None) -> None:
        self.calls.append(("train_end", 0))


class CollectBatches(Collect):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.calls.append(("batch", batch))


class QuickTest(FitTest):
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

    def test_weights_of_classes_and_examples_as_keras(self) -> None:
        x, y = data()
        weights = np.random.default_rng(7).uniform(0, 2, EXAMPLES)
        one_hot = keras.utils.to_categorical(y, 4)
        cases: list[tuple[Any, dict[str, Any]]] = [
            (y, {"class_weight": {0: 2.0, 3: 0.25}, "validation_split": 0.2}),
            (y, {"sample_weight": weights, "validation_split": 0.2}),
            (y, {"sample_weight": weights, "validation_data": (x, y, weights)}),
            (one_hot, {"class_weight": {1: 3.0}}),
        ]
        for engine, (targets, given) in itertools.product(("native", "keras"), cases):
            with self.subTest(given=list(given), engine=engine):
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

    def test_steps_of_accumulated_gradients_as_keras(self) -> None:
        x, y = data()
        options = {"batch_size": BATCH, "shuffle": False, "verbose": 0, "epochs": 2}
        alone, model = (make_model(keras.optimizers.Adam(0.01, gradient_accumulation_steps=2)) for _ in range(2))
        alone.fit(x, y, **options)
        lockstep.fit(model, x, y, engine="native", **options)
        self.assert_same(model, alone)

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
        own = make_model(layers=[keras.layers.Flatten(), keras.layers.Dense(4, activation=relu)])
        self.assertIn("activation relu of layer dense", lockstep.check(own).reason)
        with self.assertRaisesRegex(ValueError, "activation relu of layer dense"):
            lockstep.predict(own, x)
        with self.assertRaisesRegex(ValueError, "delta of Huber"):
            lockstep.evaluate(model, x, targets)
        options = {"batch_size": BATCH, "shuffle": False, "verbose": 0, "epochs": 2}
        expected = alone.fit(x, targets, **options).history
        history = lockstep.fit(model, x, targets, **options).history
        np.testing.assert_allclose(history["loss"], expected["loss"], rtol=1e-4)

    def test_layers_frozen_after_compile_need_another(self) -> None:
        x, y = data()
        model = make_model()
        lockstep.fit(model, x, y, batch_size=BATCH, verbose=0)
        model.layers[0].trainable = False
        for call in (lambda: lockstep.fit(model, x, y, batch_size=BATCH, verbose=0), lambda: lockstep.check(model)):
            with self.assertRaisesRegex(ValueError, "compile the model again"):
                call()

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

    def test_a_killed_worker_is_replaced(self) -> None:
        x, y = data()
        dropout = [keras.layers.Flatten(), keras.layers.Dropout(0.3)]
        options = {"epochs": 4, "batch_size": BATCH, "workers": 2, "seed": 3, "verbose": 0}
        calm = make_model(layers=dropout)
        expected = lockstep.fit(calm, x, y, callbacks=[Collect()], **options).history

        def kill(model: Any, epoch: int) -> None:
            if epoch == 1:
                os.kill(self.workers()[-1], signal.SIGKILL)

        model = make_model(layers=[keras.layers.Flatten(), keras.layers.Dropout(0.3)])
        collect = Collect(kill)
        with contextlib.redirect_stderr(io.StringIO()) as said:
            history = lockstep.fit(model, x, y, callbacks=[collect], **options).history
        self.assertEqual(history, expected)
        self.assertEqual([epoch for kind, epoch in collect.calls if kind == "epoch_end"], [0, 1, 2, 3])
        for own, theirs in zip(model.get_weights(), calm.get_weights(), strict=True):
            np.testing.assert_array_equal(own, theirs)
        self.assertRegex(
            said.getvalue(), r"^Lockstep: .*killed by signal 9.*; training goes on from the last backup\n$"
        )

    def test_ctrl_c_stops_at_the_next_step_and_leaves_the_model_usable(self) -> None:
        x, y = data()
        model = make_model()
        before = model.get_weights()[0]
        started = threading.Event()

        def interrupt() -> None:
            started.wait(60)
            time.sleep(0.3)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        start = Collect(lambda model, epoch: started.set() if epoch == 0 else None)
        begin = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            lockstep.fit(model, x, y, epochs=100000, batch_size=BATCH, workers=2, verbose=0, callbacks=[start])
        thread.join()
        self.assertLess(time.monotonic() - begin, 60)
        self.assertFalse((model.get_weights()[0] == before).all())
        self.assertGreater(int(model.optimizer.iterations), EXAMPLES // BATCH)
        model.fit(x, y, verbose=0)

    def test_an_exception_of_a_callback_comes_out(self) -> None:
        x, y = data()
        model = make_model()

        def fail(model: Any, epoch: int) -> None:
            raise LookupError("mine")

        with self.assertRaisesRegex(LookupError, "mine"):
            lockstep.fit(model, x, y, epochs=3, batch_size=BATCH, verbose=0, callbacks=[Collect(fail)])
        self.assertEqual(int(model.optimizer.iterations), EXAMPLES // BATCH)

    def test_wrong_input_is_told_at_once(self) -> None:
        x, y = data()
        model = make_model()
        raw = keras.Sequential([keras.Input((6, 6, 1)), keras.layers.Flatten()])
        other = make_model()
        other.optimizer.build(other.trainable_variables)
        foreign = make_model(other.optimizer)
        excluding = make_model(keras.optimizers.AdamW())
        excluding.optimizer.exclude_from_weight_decay(var_names=["bias"])
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
            ("validation_split is 1", ValueError, lambda: lockstep.fit(model, x, y, validation_split=1)),
            ("pair of arrays", ValueError, lambda: lockstep.fit(model, x, y, validation_data=x)),
            ("both given", ValueError, lambda: lockstep.fit(model, x, y, class_weight={0: 2.0}, sample_weight=x)),
            (
                r"shape \(3,\); give one number for each of its 120",
                ValueError,
                lambda: lockstep.fit(model, x, y, sample_weight=[1, 2, 3]),
            ),
            ("collect its batches", ValueError, lambda: lockstep.fit(model, iter([(x, y)]))),
            ("one input and one output", ValueError, lambda: lockstep.fit(model, [x, x], y, engine="native")),
            ("pair of arrays", ValueError, lambda: lockstep.fit(model, x, y, validation_data=x, engine="keras")),
            ("no array of numbers.*unique", ValueError, lambda: lockstep.fit(model, x, y.astype(str))),
            ("variables of another model", ValueError, lambda: lockstep.fit(foreign, x, y)),
            ("weight decay", ValueError, lambda: lockstep.fit(excluding, x, y)),
            ("engine is 'c'", ValueError, lambda: lockstep.fit(model, x, y, engine="c")),
            ("needs backup_dir", ValueError, lambda: lockstep.fit(model, x, y, resume=True)),
            ("backup_dir=", ValueError, lambda: lockstep.fit(
                model, x, y, callbacks=[keras.callbacks.BackupAndRestore(str(self.folder))])),
            ("ends of epochs", ValueError, lambda: lockstep.fit(
                model, x, y, callbacks=[keras.callbacks.ModelCheckpoint("a.keras", save_freq=3)])),
            ("class 3.*classes 0 to 1|classes 0 to 3", ValueError, lambda: lockstep.fit(model, x, y + 9, verbose=0)),
            ("input 3 of the data is NaN", ValueError, lambda: lockstep.fit(
                model, np.where(np.arange(EXAMPLES)[:, None, None, None] == 3, np.nan, x), y, verbose=0)),
        ]  # fmt: skip
        for sentence, kind, call in wrong:
            with self.subTest(sentence), self.assertRaisesRegex(kind, sentence) as caught:
                call()
            self.assertNotIn("Traceback", str(caught.exception))
        self.assertEqual(int(model.optimizer.iterations), 0)

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

    def test_a_killed_worker_of_the_keras_engine_is_replaced(self) -> None:
        x, y = data()
        options: dict[str, Any] = {"epochs": 3, "batch_size": BATCH, "shuffle": False, "verbose": 0}
        alone = make_model()
        expected = alone.fit(x, y, **options).history
        killed: list[int] = []

        def kill(model: Any, epoch: int) -> None:
            if epoch == 0:
                killed.append(self.workers()[-1])
                os.kill(killed[0], signal.SIGKILL)

        model = make_model()
        collect = CollectBatches(kill)
        with contextlib.redirect_stderr(io.StringIO()) as said:
            history = lockstep.fit(model, x, y, workers=2, engine="keras", callbacks=[collect], **options)
        self.assertEqual(history.epoch, [0, 1, 2])
        self.assertEqual([step for kind, step in collect.calls if kind == "batch"], 3 * list(range(5)))
        for name, values in expected.items():
            np.testing.assert_allclose(history.history[name], values, atol=TOLERANCE, err_msg=name)
        self.assert_same(model, alone)
        self.assertEqual(said.getvalue().count("training goes on from the last backup"), 1, said.getvalue())

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
    def test_any_model_on_any_backend(self) -> None:
        program = Path(__file__).parent / "programs" / "any_model.py"
        for backend in BACKENDS:
            cases = ["layer:1", "vae:2", "layer:2", "lstm:2"]
            if backend != "tensorflow":  # whose graph does not know the shapes of attention's gradients
                cases.append("transformer:2")
            environment = os.environ | {"KERAS_BACKEND": backend, "TMPDIR": str(self.folder)}
            command = [sys.executable, "-W", "ignore", str(program), *cases]
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
            )
            with self.subTest(backend):
                self.assertEqual(done.returncode, 0, done.stderr[-4000:])
                self.assertEqual(re.findall(r"(?m)^equal: (.*)$", done.stdout), cases)

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

    def test_what_ends_with_its_caller(self) -> None:
        """A caller that is killed leaves neither workers nor a folder."""
        program = Path(__file__).parent / "programs" / "endless_fit.py"
        environment = os.environ | {"TMPDIR": str(self.folder)}
        with subprocess.Popen([sys.executable, "-W", "ignore", str(program)], env=environment) as caller:
            self.assertTrue(wait_until(lambda: len(self.workers()) >= 2, 60))
            time.sleep(0.5)
            caller.kill()
        self.assertTrue(wait_until(lambda: not processes_of(self.folder)), processes_of(self.folder))
        self.assertTrue(wait_until(lambda: not list(self.folder.glob("lockstep-*"))), list(self.folder.iterdir()))

    def test_more_workers_than_cores_are_warned_of(self) -> None:
        x, _ = data(40)
        with mock.patch.object(os, "sched_getaffinity", lambda pid: {0}), warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            lockstep.predict(make_model(), x, workers=2)
        self.assertIn("2 workers share 1 core", " ".join(str(each.message) for each in said))

    def test_a_model_made_anew_resumes_with_the_same_bits(self) -> None:
        x, y = data()
        options: dict[str, Any] = {"epochs": 4, "batch_size": BATCH, "verbose": 0}
        calm = make_model()
        expected = lockstep.fit(calm, x, y, seed=7, **options).history

        def fail(model: Any, epoch: int) -> None:
            if epoch == 2:
                raise LookupError("the kernel died")

        backups = self.folder / "backups"
        options["backup_dir"] = backups
        with self.assertRaises(LookupError):
            lockstep.fit(make_model(), x, y, seed=7, callbacks=[Collect(fail)], **options)
        self.assertTrue(backups.exists())
        keras.utils.set_random_seed(99)
        model = keras.models.clone_model(calm)
        model.compile(keras.optimizers.Adam(0.01), calm.loss, metrics=["accuracy"])
        collect = Collect(lambda model, epoch: None)
        history = lockstep.fit(model, x, y, callbacks=[collect], resume=True, **options).history
        self.assertEqual([epoch for kind, epoch in collect.calls if kind == "epoch_end"], [2, 3])
        self.assertEqual(history["loss"], expected["loss"][2:])
        for own, theirs in zip(model.get_weights(), calm.get_weights(), strict=True):
            np.testing.assert_array_equal(own, theirs)
        self.assertFalse(backups.exists())

    def test_a_training_compiled_otherwise_does_not_resume(self) -> None:
        x, y = data()

        def stop(model: Any, epoch: int) -> None:
            raise KeyError("stop")

        with self.assertRaises(KeyError):
            lockstep.fit(make_model(), x, y, epochs=3, backup_dir=self.folder / "kept", callbacks=[Collect(stop)])
        other = make_model(keras.optimizers.SGD(0.5))
        with self.assertRaisesRegex(ValueError, "another loss, optimizer or metrics"):
            lockstep.fit(other, x, y, epochs=3, backup_dir=self.folder / "kept", resume=True)

    def test_another_training_does_not_resume(self) -> None:
        x, y = data()

        def stop(model: Any, epoch: int) -> None:
            raise KeyError("stop")

        def made(activation: str = "relu", rate: float = 0.01, trainable: bool = True) -> keras.Model:
            first = keras.layers.Dense(5, activation=activation, trainable=trainable)
            layers = [keras.layers.Input(x.shape[1:]), keras.layers.Flatten(), first, keras.layers.Dense(4)]
            model = keras.Sequential(layers)
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(keras.optimizers.SGD(rate), loss)
            return model

        class Slower(keras.callbacks.Callback):
            def on_train_begin(self, logs: Any = None) -> None:
                self.model.optimizer.learning_rate = 0.005

        for engine in ("native", "keras"):
            kept = self.folder / engine
            options: dict[str, Any] = {"epochs": 3, "verbose": 0, "engine": engine, "backup_dir": kept}
            with self.assertRaises(KeyError):
                lockstep.fit(made(), x, y, seed=5, callbacks=[Slower(), Collect(stop)], **options)
            for words, model, seed in (
                ("another model", made(activation="tanh"), None),
                ("another model", made(trainable=False), None),
                ("another learning rate", made(rate=0.5), None),
                ("another seed", made(), 6),
            ):
                with self.subTest(words, engine=engine), self.assertRaisesRegex(ValueError, words):
                    lockstep.fit(model, x, y, seed=seed, resume=True, **options)
            with owned(kept), self.assertRaisesRegex(ValueError, "another process trains in"):
                lockstep.fit(made(), x, y, **options)
            lockstep.fit(made(), x, y, callbacks=[Slower()], resume=True, **options)
            self.assertFalse(kept.exists())

    def test_a_compilation_is_the_same_wherever_it_is_made_again(self) -> None:
        def described(optimizer: Any, loss: Any, metric: Any) -> str:
            model = make_model()
            model.compile(optimizer, loss, metrics=[metric])
            return describe_compilation(model)

        # Keras numbers the names of objects: adam, adam_1; auc, auc_1.
        first = described(keras.optimizers.Adam(0.01), "binary_crossentropy", keras.metrics.AUC())
        self.assertEqual(first, described(keras.optimizers.Adam(0.02), "binary_crossentropy", keras.metrics.AUC()))
        for other in (
            described(keras.optimizers.Adam(0.01, beta_1=0.5), "binary_crossentropy", keras.metrics.AUC()),
            described(keras.optimizers.Adam(0.01), "mse", keras.metrics.AUC()),
            described(keras.optimizers.Adam(0.01), "binary_crossentropy", keras.metrics.AUC(curve="PR")),
        ):
            self.assertNotEqual(first, other)

    def test_two_callers_at_once(self) -> None:
        x, y = data()
        models = [make_model(), make_model()]
        options: dict[str, Any] = {"epochs": 2, "batch_size": BATCH, "shuffle": False, "verbose": 0}
        threads = [threading.Thread(target=lockstep.fit, args=(model, x, y), kwargs=options) for model in models]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assert_same(*models, tolerance=0)


if __name__ == "__main__":
    unittest.main()
