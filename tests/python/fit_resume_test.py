"""`lockstep.fit` with a backup_dir: which trainings go on, with the same bits, and which are refused."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import time
import unittest
import warnings
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import keras
import lockstep
import numpy as np
from fit_support import BATCH, Collect, FitTest, data, make_model
from lockstep._start import Owned, describe_compilation, owned
from support import directory_of_another_job


class FullTest(FitTest):
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
        self.assertEqual(history, expected)
        for own, theirs in zip(model.get_weights(), calm.get_weights(), strict=True):
            np.testing.assert_array_equal(own, theirs)
        self.assertFalse(backups.exists())

    def test_backups_stay_until_callbacks_have_ended(self) -> None:
        class Ends(Collect):
            fails = True

            def on_train_end(self, logs: Any = None) -> None:
                super().on_train_end(logs)
                if self.fails:
                    raise LookupError("the process dies")

        x, y = data()
        for engine in ("native", "keras"):
            backups = self.folder / engine
            options: dict[str, Any] = {"epochs": 2, "verbose": 0, "engine": engine, "backup_dir": backups}
            done, model, again = make_model(), make_model(), Ends()
            with self.subTest(engine):
                with self.assertRaises(LookupError):
                    lockstep.fit(done, x, y, seed=7, callbacks=[Ends()], **options)
                again.fails = False
                history = lockstep.fit(model, x, y, callbacks=[again], resume=True, **options)
                self.assertEqual(again.calls, [("train_begin", 0), ("train_end", 0)])
                self.assertEqual((history.epoch, history.history), ([0, 1], done.history.history))
                self.assert_same(model, done, tolerance=0)
                self.assertFalse(backups.exists())

    def test_the_last_finite_backup_of_a_training_that_diverges_stays(self) -> None:
        def diverge(model: Any, epoch: int) -> None:
            model.optimizer.learning_rate = 3e38

        x, y = data()
        backups = self.folder / "backups"
        model = make_model()
        told = io.StringIO()
        with contextlib.redirect_stderr(told):
            lockstep.fit(
                model, x, y, epochs=2, verbose=0, engine="keras", backup_dir=backups, callbacks=[Collect(diverge)],
            )  # fmt: skip
        self.assertFalse(all(np.isfinite(array).all() for array in model.get_weights()))
        self.assertIn(f"the backup before them stays in {backups}", told.getvalue())
        with np.load(backups / "backup.npz") as arrays:
            floats = [array for array in arrays.values() if array.dtype.kind == "f"]
        self.assertTrue(all(np.isfinite(array).all() for array in floats))

    def test_a_training_compiled_otherwise_does_not_resume(self) -> None:
        x, y = data()

        def stop(model: Any, epoch: int) -> None:
            if epoch == 1:  # natively the epoch that is interrupted is not backed up
                raise KeyError("stop")

        with self.assertRaises(KeyError):
            lockstep.fit(make_model(), x, y, epochs=3, backup_dir=self.folder / "kept", callbacks=[Collect(stop)])
        other = make_model(keras.optimizers.SGD(0.5))
        with self.assertRaisesRegex(ValueError, "another loss, optimizer or metrics"):
            lockstep.fit(other, x, y, epochs=3, backup_dir=self.folder / "kept", resume=True)

    def test_another_training_does_not_resume(self) -> None:
        x, y = data()

        def stop(model: Any, epoch: int) -> None:
            if epoch == 1:
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
            cases: list[tuple[str, Any, dict[str, Any]]] = [
                ("another model", made(activation="tanh"), {}),
                ("another model", made(trainable=False), {}),
                ("another learning rate", made(rate=0.5), {}),
                ("another seed", made(), {"seed": 6}),
                ("other data", made(), {"x": x + 1}),
                ("other data", made(), {"sample_weight": np.ones(len(x))}),
                ("another batch_size", made(), {"batch_size": 7}),
                ("another shuffle", made(), {"shuffle": False}),
                ("another class_weight", made(), {"class_weight": {0: 2.0}}),
                ("another validation_split", made(), {"validation_split": 0.5}),
                ("another engine", made(), {"engine": "keras" if engine == "native" else "native"}),
                ("not completed; go on with it by resume=True, name another", made(), {"resume": False}),
            ]
            if engine == "keras":  # natively the epoch that was interrupted is not backed up
                cases.append(("after 2 epochs, but epochs is 1 now", made(), {"epochs": 1}))
            for words, model, changed in cases:
                given = {"x": x, "y": y, "resume": True} | options | changed
                with self.subTest(words, engine=engine), self.assertRaisesRegex(ValueError, words):
                    lockstep.fit(model, **given)
            with owned(kept), self.assertRaisesRegex(ValueError, "another thread trains in"):
                lockstep.fit(made(), x, y, **options)
            with directory_of_another_job(kept), self.assertRaisesRegex(ConnectionError, "still running; wait for it"):
                lockstep.fit(made(), x, y, resume=True, **options)
            lockstep.fit(made(), x, y, callbacks=[Slower(), Collect()], resume=True, **options)
            self.assertFalse(kept.exists())

    def test_a_job_that_takes_the_directory_at_the_end_keeps_its_files(self) -> None:
        (self.folder / "backup.npz").touch()
        (self.folder / "fit-1-step-0000000005.h5").touch()
        with owned(self.folder) as held:
            pass
        with directory_of_another_job(self.folder):
            held.forget()
        self.assertTrue((self.folder / "backup.npz").exists())
        held.forget()
        self.assertFalse(self.folder.exists())
        self.folder.mkdir()  # for tearDown

    def test_a_link_that_leads_elsewhere_at_the_end_is_left_alone(self) -> None:
        mine, other, latest = (self.folder / name for name in ("mine", "other", "latest"))
        for directory in (mine, other):
            directory.mkdir()
            (directory / "backup.npz").touch()
        latest.symlink_to(mine)
        with owned(latest) as held:
            pass
        latest.unlink()
        latest.symlink_to(other)
        held.forget()
        self.assertTrue((other / "backup.npz").exists())

    def test_a_training_in_a_copy_by_hard_links_leaves_the_original(self) -> None:
        original, copied = self.folder / "original", self.folder / "copy"
        for directory in (original, copied):
            directory.mkdir()
        model = self.folder / "model.keras"
        model.write_text("the original's")
        Owned(original).keep({"seed": 1}, model)
        before = {path.name: path.read_bytes() for path in original.iterdir()}
        for name in before:
            os.link(original / name, copied / name)
        model.write_text("the copy's")
        Owned(copied).keep({"seed": 2}, model)
        self.assertEqual({path.name: path.read_bytes() for path in original.iterdir()}, before)
        self.assertEqual(before.keys(), {path.name for path in copied.iterdir()})

    def test_no_forked_process_keeps_the_job_alive(self) -> None:
        x, y = data()
        children: list[int] = []

        def fork(model: Any, epoch: int) -> None:
            child = os.fork()
            if child == 0:
                time.sleep(60)
                os._exit(0)
            children.append(child)

        begin = time.monotonic()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # JAX has threads
            lockstep.fit(make_model(), x, y, verbose=0, backup_dir=self.folder / "kept", callbacks=[Collect(fork)])
        try:
            for opened in Path(f"/proc/{children[0]}/fd").iterdir():
                self.assertNotIn(".lockstep.lock", str(opened.readlink()))
        finally:
            os.kill(children[0], signal.SIGKILL)
            os.waitpid(children[0], 0)
        self.assertLess(time.monotonic() - begin, 60)

    def test_a_forked_process_that_fails_leaves_the_job_alone(self) -> None:
        x, y = data()
        caller = os.getpid()
        read, write = os.pipe()

        def fork(model: Any, epoch: int) -> None:
            child = os.fork()
            if child == 0:
                raise LookupError("the child fails")
            os.waitpid(child, 0)

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # JAX has threads
                lockstep.fit(make_model(), x, y, epochs=2, verbose=0, callbacks=[Collect(fork)])
        except BaseException as error:
            if os.getpid() == caller:
                raise
            os.write(write, f"{error}.".encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as told:
            self.assertEqual(told.read(), "the child fails.the child fails.")

    def test_a_loss_is_known_by_its_code(self) -> None:
        def described(factor: float) -> str:
            names: dict[str, Any] = {}
            exec(f"def own(y_true, y_pred): return {factor} * (y_true - y_pred) ** 2", names)
            model = make_model()
            model.compile("sgd", names["own"])
            return describe_compilation(model)

        self.assertEqual(described(2.0), described(2.0))
        self.assertNotEqual(described(2.0), described(3.0))

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


if __name__ == "__main__":
    unittest.main()
