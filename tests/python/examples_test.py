"""Ten of Keras' examples, with the changed lines of docs/keras-examples.md, have the losses of one Keras process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import unittest

import numpy as np
from programs.example import EXAMPLES, changed_lines, diffs, with_lockstep
from support import BACKENDS, LIMIT_S, PROGRAMS, JobTest, run_job

NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))
OWN_LOOP = "gan"  # runs under lockstep launch
NOT_ON = {"jax": [OWN_LOOP]}


class ExamplesTest(JobTest):
    def compare(self, backend: str, names: list[str]) -> None:
        environment = os.environ | {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3", "TMPDIR": str(self.folder)}
        done = subprocess.run(
            [sys.executable, "-W", "ignore", str(PROGRAMS / "example.py"), "compare", *names],
            env=environment, capture_output=True, text=True, timeout=2 * LIMIT_S, check=False,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr[-4000:])
        expected = [f"{name} {workers}" for name in names for workers in (1, 2)]
        self.assertEqual(re.findall(r"(?m)^equal: (.*)$", done.stdout), expected)


class QuickTest(ExamplesTest):
    def test_every_example_has_a_diff_of_at_most_three_lines_that_applies(self) -> None:
        self.assertEqual(sorted(diffs()), NAMES)
        self.assertEqual(len(NAMES), 10)
        for name, diff in diffs().items():
            with self.subTest(name):
                self.assertLessEqual(changed_lines(diff), 3)
                compile(with_lockstep(name), name, "exec")

    def test_an_example_on_jax(self) -> None:
        self.compare("jax", ["siamese"])


class FullTest(ExamplesTest):
    def test_examples_on_every_backend(self) -> None:
        for backend in BACKENDS:
            with self.subTest(backend):
                left_out = [OWN_LOOP, *NOT_ON.get(backend, [])]
                self.compare(backend, [name for name in NAMES if name not in left_out])

    def test_a_loop_of_its_own(self) -> None:
        for backend in BACKENDS:
            if OWN_LOOP in NOT_ON.get(backend, []):
                continue
            losses = {}
            for form, workers in (("keras", 1), ("lockstep", 1), ("lockstep", 2)):
                result = f"{backend}-{form}-{workers}"
                self.assert_succeeds(
                    run_job(backend, workers, "example.py", "write", OWN_LOOP, form, self.folder / result)
                )
                ranks = [self.read_json(f"{result}.{rank}") for rank in range(workers)]
                losses[form, workers] = np.mean(ranks, 0)
            for workers in (1, 2):
                with self.subTest(backend, workers=workers):
                    np.testing.assert_allclose(losses["lockstep", workers], losses["keras", 1], rtol=1e-3, atol=1e-3)


if __name__ == "__main__":
    unittest.main()
