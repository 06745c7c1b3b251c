"""`lockstep.fit` when a worker, its caller or a callback ends badly: what goes on, and what is left behind."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import signal
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import keras
import lockstep
import numpy as np
from fit_support import (
    BATCH,
    EXAMPLES,
    TOLERANCE,
    Collect,
    CollectBatches,
    FitTest,
    data,
    make_model,
    processes_of,
    wait_until,
)


class QuickTest(FitTest):
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
            history = lockstep.fit(model, x, y, callbacks=[collect], **options)
        self.assertEqual(history.history, expected)
        self.assertEqual([epoch for kind, epoch in collect.calls if kind == "epoch_end"], [0, 1, 2, 3])
        for own, theirs in zip(model.get_weights(), calm.get_weights(), strict=True):
            np.testing.assert_array_equal(own, theirs)
        self.assertRegex(
            said.getvalue(), r"^Lockstep: .*killed by signal 9.*; training goes on from the last backup\n$"
        )
        page = history.page()
        self.assertIn("4 epochs, 2 workers</h1>", page)
        self.assertRegex(page, r"(?s)Workers over time.*killed by signal 9")
        self.assertRegex(page, r"(?s)Where a step.*backward")

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

    def test_ctrl_c_in_the_garbage_collector_is_not_lost(self) -> None:
        """Python drops exceptions of the collector's callbacks; JAX has one."""
        x, y = data()
        model = make_model()
        hook = sys.unraisablehook

        def interrupt(phase: str, _: dict[str, int]) -> None:
            gc.callbacks.remove(interrupt)
            os.kill(os.getpid(), signal.SIGINT)

        def collect(model: Any, epoch: int) -> None:
            if epoch == 1:
                gc.callbacks.append(interrupt)
                gc.collect()

        with self.assertRaises(KeyboardInterrupt):
            lockstep.fit(
                model, x, y, epochs=100000, batch_size=BATCH, workers=2, verbose=0, callbacks=[Collect(collect)]
            )
        self.assertGreater(int(model.optimizer.iterations), EXAMPLES // BATCH)
        self.assertIs(sys.unraisablehook, hook)

    def test_an_exception_of_a_callback_comes_out(self) -> None:
        x, y = data()
        model = make_model()

        def fail(model: Any, epoch: int) -> None:
            raise LookupError("mine")

        with self.assertRaisesRegex(LookupError, "mine"):
            lockstep.fit(model, x, y, epochs=3, batch_size=BATCH, verbose=0, callbacks=[Collect(fail)])
        self.assertEqual(int(model.optimizer.iterations), EXAMPLES // BATCH)

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
        shown = history._repr_html_()  # as a notebook calls it
        self.assertTrue(shown.startswith('<iframe srcdoc="&lt;!DOCTYPE html&gt;'))
        self.assertEqual(shown.count('"'), 4)
        self.assertIn("3 epochs, 2 workers", shown)
        self.assertIn("killed by signal 9", shown)


class FullTest(FitTest):
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
