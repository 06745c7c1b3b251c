"""`lockstep.fit` and its like on data in batches, beside Keras' own: generators, PyDataset, tf.data, DataLoader."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import unittest
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

os.environ["KERAS_BACKEND"] = "jax"

import keras
import lockstep
import numpy as np
from fit_support import BATCH, EXAMPLES, TOLERANCE, CollectBatches, FitTest, data, make_model
from lockstep import _stream
from support import BACKENDS, LIMIT_S, PROGRAMS

STEPS = EXAMPLES // BATCH
FLIPPED = 2 / 50  # examples near a boundary, whose class the order of sums decides


class Batches(keras.utils.PyDataset):
    """Batches in another order, of other noise, in each pass."""

    def __init__(self, x: Any, y: Any, batch: int = BATCH, **options: Any) -> None:
        super().__init__(**options)
        self.x, self.y, self.batch = x, y, batch
        self.draw = np.random.default_rng(3)
        self.order = np.arange(len(x))
        self.passes = 0

    @property
    def num_batches(self) -> int:
        return -(-len(self.x) // self.batch)

    def __getitem__(self, index: int) -> Any:
        own = self.order[index * self.batch : (index + 1) * self.batch]
        return self.x[own] + np.float32(0.1 * self.passes), self.y[own]

    def on_epoch_end(self) -> None:
        self.passes += 1
        self.draw.shuffle(self.order)


def generate(x: Any, y: Any, batch: int = BATCH, passes: int = 10**9) -> Iterator[Any]:
    for _ in range(passes):
        for begin in range(0, len(x), batch):
            yield x[begin : begin + batch], y[begin : begin + batch]


def fail_after(batches: int, error: BaseException) -> Iterator[Any]:
    given = generate(*data())
    for _ in range(batches):
        yield next(given)
    raise error


class SourceTest(FitTest):
    def compare(self, make: Callable[[], Any], engine: str, workers: int = 2, **options: Any) -> Any:
        """Fit on a source, and on an equal one with Keras' own ``fit``; options that are callable make theirs."""

        def made() -> dict[str, Any]:
            given = {key: each() if callable(each) else each for key, each in options.items()}
            return {"verbose": 0, "epochs": 3, "shuffle": False} | given

        alone, model = make_model(), make_model()
        alone.fit(*data(4), epochs=0, verbose=0)  # else Keras reads a first batch of the source to build the metrics
        keras.utils.set_random_seed(5)
        expected = alone.fit(make(), **made()).history
        keras.utils.set_random_seed(5)
        history = lockstep.fit(model, make(), workers=workers, engine=engine, **made()).history
        self.assertEqual(history.keys(), expected.keys())
        for name, values in expected.items():
            np.testing.assert_allclose(history[name], values, atol=FLIPPED if "acc" in name else TOLERANCE)
        self.assert_same(model, alone)
        return history

    def check_mistakes(self, engine: str) -> None:
        x, y = data()
        model = make_model()
        of_type = {"epochs": 2, "verbose": 0}

        def batches(*given: Any) -> Iterator[Any]:
            yield from given

        good = (x[:8], y[:8])
        wrong: list[tuple[str, Callable[[str], Any]]] = [
            ("a generator needs steps_per_epoch", lambda engine: lockstep.fit(model, generate(x, y), **of_type)),
            ("batch_size is given", lambda engine: lockstep.fit(
                model, generate(x, y), steps_per_epoch=2, batch_size=8, **of_type)),
            ("y is given", lambda engine: lockstep.fit(model, generate(x, y), y, steps_per_epoch=2, **of_type)),
            ("steps_per_epoch is for data in batches", lambda engine: lockstep.fit(
                model, x, y, steps_per_epoch=2, **of_type)),
            ("steps_per_epoch is 0", lambda engine: lockstep.fit(
                model, generate(x, y), steps_per_epoch=0, **of_type)),
            ("a generator needs validation_steps", lambda engine: lockstep.fit(
                model, x, y, validation_data=generate(x, y), **of_type)),
            ("at least one batch|holds no batches", lambda engine: lockstep.fit(
                model, batches(), steps_per_epoch=2, **of_type)),
            ("ended after 3 of 5 batches; give steps_per_epoch=3", lambda engine: lockstep.fit(
                model, generate(x, y, 40, 1), steps_per_epoch=5, engine=engine, **of_type)),
            ("ended after 1 of 2 batches", lambda engine: lockstep.fit(
                model, generate(x, y, 40, 1), steps_per_epoch=2, engine=engine, **of_type)),
            ("has 3 batches, so pass 2 of steps_per_epoch=2 would have 1", lambda engine: lockstep.fit(
                model, Batches(x[:24], y[:24], 8), steps_per_epoch=2, engine=engine, **of_type)),
            ("the validation data has 3 batches, so pass 1 of validation_steps=4", lambda engine: lockstep.fit(
                model, x, y, validation_data=Batches(x[:24], y[:24], 8), validation_steps=4, engine=engine, **of_type)),
            ("8, 7 examples; give arrays of equal length", lambda engine: lockstep.fit(
                model, batches(good, (x[:8], y[:7])), steps_per_epoch=2, engine=engine, **of_type)),
            (r"batch 2 of the data has .*5, 6, 1.*before it .*6, 6, 1", lambda engine: lockstep.fit(
                model, batches(good, (x[:8, 1:], y[:8])), steps_per_epoch=2, engine=engine, **of_type)),
            ("is a tuple of 4", lambda engine: lockstep.fit(
                model, batches((*good, y, y)), steps_per_epoch=1, engine=engine, **of_type)),
            ("holds no examples", lambda engine: lockstep.fit(
                model, batches(good, (x[:0], y[:0])), steps_per_epoch=2, engine=engine, **of_type)),
            ("needs steps", lambda engine: lockstep.evaluate(model, Endless(), engine=engine)),
        ]  # fmt: skip
        for sentence, call in wrong:
            with self.subTest(sentence), self.assertRaisesRegex(ValueError, sentence):
                call(engine)
        whole = Batches(x[:32], y[:32], 8)  # begins anew in the third epoch
        lockstep.fit(make_model(), whole, steps_per_epoch=2, epochs=3, verbose=0, engine=engine)
        few = Batches(x[:24], y[:24], 8)
        lockstep.fit(make_model(), few, steps_per_epoch=2, epochs=1, verbose=0, engine=engine)
        lockstep.fit(make_model(), x, y, validation_data=few, validation_steps=2, verbose=0, engine=engine)
        short = (x[:1], y[:1])
        sentence = "has 1 example for 2 workers"
        if engine == "native":
            sentence = "8, 1 and 8 examples; the native engine takes batches of equal length"
        with self.assertRaisesRegex(ValueError, sentence):
            lockstep.fit(model, batches(good, short, good), steps_per_epoch=3, engine=engine, workers=2, verbose=0)


class QuickTest(SourceTest):
    def test_a_dataset_that_changes_in_each_epoch_as_keras(self) -> None:
        x, y = data(EXAMPLES + 1)  # the last batch has one example, of which the second worker has none
        test = data(50)
        for engine in ("native", "keras"):
            with self.subTest(engine):
                self.compare(
                    lambda: Batches(x, y), engine,
                    validation_data=lambda: Batches(*test, batch=17), validation_freq=2,
                    class_weight={0: 2.0, 3: 0.5},
                )  # fmt: skip

    def test_a_generator_goes_on_in_the_next_epoch_as_keras(self) -> None:
        x, y = data()
        test = data(50)
        for engine in ("native", "keras"):
            with self.subTest(engine):
                self.compare(
                    lambda: generate(x, y), engine, steps_per_epoch=STEPS - 2,
                    validation_data=lambda: generate(*test, batch=17), validation_steps=2,
                )  # fmt: skip

    def test_batches_of_dicts_weights_and_other_lengths_as_keras(self) -> None:
        x, y = data()
        weights = np.random.default_rng(7).uniform(0, 2, EXAMPLES).astype("float32")

        def made() -> Any:
            keras.utils.set_random_seed(1)
            inputs = {"image": keras.Input((6, 6, 1), name="image"), "number": keras.Input((1,), name="number")}
            flat = keras.layers.Flatten()(inputs["image"])
            model = keras.Model(inputs, keras.layers.Dense(4)(keras.layers.Concatenate()([flat, inputs["number"]])))
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(keras.optimizers.Adam(0.01), loss, weighted_metrics=["accuracy"])
            return model

        def batches(ends: tuple[int, ...]) -> Iterator[Any]:
            while True:
                for begin, end in zip((0, *ends), ends, strict=False):
                    yield {"image": x[begin:end], "number": x[begin:end, 0, 0]}, y[begin:end], weights[begin:end]

        for engine, ends in (("native", (30, 60, 90)), ("keras", (30, 40, 90))):
            with self.subTest(engine):
                alone, model = made(), made()
                options = {"epochs": 2, "steps_per_epoch": 3, "verbose": 0}
                expected = alone.fit(batches(ends), **options).history
                history = lockstep.fit(model, batches(ends), workers=2, engine=engine, **options).history
                np.testing.assert_allclose(history["loss"], expected["loss"], rtol=1e-3)
                self.assert_same(model, alone)

    def test_a_killed_worker_loses_no_batch(self) -> None:
        """With a window that holds few batches, the Keras engine backs up in the middle of an epoch."""
        x, y = data()
        workers = self.workers
        options = {"epochs": 3, "steps_per_epoch": STEPS, "workers": 2, "seed": 3, "verbose": 0}
        for engine in ("native", "keras"):
            with self.subTest(engine), mock.patch.object(_stream, "_WINDOW_BYTES", 2 * BATCH * 37 * 8):
                calm, model = make_model(), make_model()
                expected = lockstep.fit(calm, generate(x, y), engine=engine, **options).history
                steps: list[int] = []

                class Kill(CollectBatches):
                    def on_train_batch_end(self, batch: int, logs: Any = None, steps: list[int] = steps) -> None:
                        steps.append(batch)
                        if len(steps) == STEPS + 3:
                            os.kill(workers()[-1], signal.SIGKILL)

                with contextlib.redirect_stderr(io.StringIO()) as said:
                    history = lockstep.fit(model, generate(x, y), engine=engine, callbacks=[Kill()], **options).history
                self.assertIn("training goes on from the last backup", said.getvalue())
                self.assertEqual(history, expected)
                self.assertEqual(steps, 3 * list(range(STEPS)))
                for own, theirs in zip(model.get_weights(), calm.get_weights(), strict=True):
                    np.testing.assert_array_equal(own, theirs)

    def test_the_exception_of_a_source_reaches_the_user(self) -> None:
        x, y = data()

        class TornError(Exception):
            pass

        for engine in ("native", "keras"):
            with self.subTest(engine):
                alone, model = make_model(), make_model()
                with self.assertRaisesRegex(TornError, "torn"):
                    source = fail_after(STEPS + 2, TornError("torn"))
                    lockstep.fit(model, source, epochs=3, steps_per_epoch=STEPS, workers=2, engine=engine, verbose=0)
                steps = int(model.optimizer.iterations)
                self.assertLessEqual(STEPS, steps)  # the native engine collects an epoch before it trains on it
                self.assertLessEqual(steps, STEPS if engine == "native" else STEPS + 2)
                alone.fit(generate(x, y), steps_per_epoch=steps, verbose=0)
                self.assert_same(model, alone)
                with self.assertRaisesRegex(TornError, "torn"):
                    lockstep.fit(
                        model, x, y, epochs=3, batch_size=BATCH, engine=engine, verbose=0,
                        validation_data=fail_after(4, TornError("torn")), validation_steps=3,
                    )  # fmt: skip

    def test_evaluate_and_predict_on_batches_as_keras(self) -> None:
        x, y = data(50)
        model = make_model()
        expected = model.evaluate(Batches(x, y, 16), verbose=0)
        np.testing.assert_allclose(lockstep.evaluate(model, Batches(x, y, 16), workers=2), expected, atol=1e-5)
        found = lockstep.evaluate(model, generate(x, y, 16), steps=2)
        np.testing.assert_allclose(found, model.evaluate(x[:32], y[:32], verbose=0), atol=1e-5)
        found = lockstep.predict(model, generate(x, y, 16, passes=1))
        np.testing.assert_allclose(found, model.predict(x, verbose=0), atol=1e-5)

    def test_wrong_batches_are_told_with_the_remedy(self) -> None:
        self.check_mistakes("native")

    def test_shuffled_batches_all_come_and_the_last_one_last(self) -> None:
        x, y = data(EXAMPLES + 1)
        keras.utils.set_random_seed(2)
        model = make_model()
        model.compile(keras.optimizers.SGD(0.0), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        expected = model.evaluate(x, y, verbose=0, return_dict=True)["loss"]
        asked: list[int] = []

        class Told(Batches):
            def __getitem__(self, index: int) -> Any:
                asked.append(index)
                own = slice(index * self.batch, (index + 1) * self.batch)
                return self.x[own], self.y[own]

        losses = lockstep.fit(model, Told(x, y), epochs=2, seed=3, verbose=0).history["loss"]
        np.testing.assert_allclose(losses, [expected, expected], rtol=1e-4)
        first, second = asked[: STEPS + 1], asked[STEPS + 1 :]
        for order in (first, second):
            self.assertEqual(sorted(order), list(range(STEPS + 1)))
            self.assertEqual(order[-1], STEPS)
        self.assertNotEqual(first, second)


class Endless(keras.utils.PyDataset):
    num_batches = None

    def __getitem__(self, index: int) -> Any:
        return data(4)


class FullTest(SourceTest):
    def test_wrong_batches_in_the_keras_engine(self) -> None:
        self.check_mistakes("keras")

    def test_tf_data_and_data_loader_as_keras(self) -> None:
        import tensorflow as tf
        import torch

        x, y = data(EXAMPLES + 1)

        def dataset() -> Any:
            made = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(EXAMPLES, seed=2)
            return made.filter(lambda x, y: tf.reduce_sum(x) > -5).batch(BATCH)  # whose number nobody knows

        def loader() -> Any:
            held = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
            generator = torch.Generator().manual_seed(4)
            return torch.utils.data.DataLoader(held, BATCH, shuffle=True, generator=generator)

        for engine in ("native", "keras"):
            for make in (dataset, loader):
                with self.subTest(make.__name__, engine=engine):
                    self.compare(make, engine, validation_data=dataset)

    def test_every_backend_reads_batches(self) -> None:
        for backend in BACKENDS:
            with self.subTest(backend=backend):
                environment = os.environ | {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
                done = subprocess.run(
                    [sys.executable, "-W", "ignore", str(PROGRAMS / "batches.py")],
                    env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False,
                )  # fmt: skip
                self.assertEqual(done.returncode, 0, done.stderr[-4000:])
                self.assertIn("equal", done.stdout)


if __name__ == "__main__":
    unittest.main()
