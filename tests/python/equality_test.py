"""Two workers train as one does, on every backend, and all workers end with the same bits."""

from __future__ import annotations

import unittest
from typing import Any

import numpy as np
from support import JobTest, run_job

# Cases whose result does not depend on the number of workers.
EQUAL = ("dense", "small_buckets", "words", "tiny_batch", "custom_loop")
TOLERANCE = 2e-3  # of float32 sums in another order, after some steps of Adam


class Equality(JobTest):
    """The cases of programs/cases.py; one process a rank and backend runs all of them."""

    def cases(self, backend: str, workers: int) -> list[dict[str, Any]]:
        """Return the cases' results, by rank."""
        name = f"{backend}-{workers}"
        self.assert_succeeds(run_job(backend, workers, "cases.py", self.folder / name))
        return [self.read_json(f"{name}.{rank}") for rank in range(workers)]

    def check(self, backend: str) -> None:
        one, two = self.cases(backend, 1)[0], self.cases(backend, 2)
        for name in two[0]:
            with self.subTest(backend=backend, case=name):
                self.assertEqual(two[0][name]["digest"], two[1][name]["digest"], "the ranks' weights differ")
                self.assertEqual(two[0][name]["logs"], two[1][name]["logs"], "the ranks' metrics differ")
                if name in EQUAL:
                    np.testing.assert_allclose(two[0][name]["weights"], one[name]["weights"], rtol=TOLERANCE)
                    for key, values in one[name]["logs"].items():
                        # A prediction close to a tie may fall to either side: one of 33 or 101 examples.
                        step = 0.04 if "accuracy" in key else TOLERANCE
                        np.testing.assert_allclose(two[0][name]["logs"][key], values, atol=step, rtol=TOLERANCE)
        # The number and size of buckets, and whether they overlap with backward, change no bit.
        for same in {"small_buckets", "overlap"} & two[0].keys():
            self.assertEqual(two[0][same]["digest"], two[0]["dense"]["digest"], same)
        # Within a host nothing is compressed.
        self.assertEqual(two[0]["bfloat16"]["digest"], two[0]["wide"]["digest"])
        self.assertGreater(len(set(one["dense"]["logs"]["loss"])), 1, "nothing was learned")


class QuickTest(Equality):
    def test_jax(self) -> None:
        self.check("jax")


class FullTest(Equality):
    def test_torch(self) -> None:
        self.check("torch")

    def test_tensorflow(self) -> None:
        self.check("tensorflow")

    def test_two_hosts_with_bfloat16(self) -> None:
        """Gradients that leave a host are rounded, and all ranks still end with the same bits."""
        name = "hosts"
        self.assert_succeeds(run_job("torch", 2, "cases.py", self.folder / name, LOCKSTEP_SIMULATED_HOSTS="0,1"))
        ranks = [self.read_json(f"{name}.{rank}") for rank in range(2)]
        for case in ranks[0]:
            self.assertEqual(ranks[0][case]["digest"], ranks[1][case]["digest"], case)
        self.assertNotEqual(ranks[0]["bfloat16"]["digest"], ranks[0]["wide"]["digest"])


if __name__ == "__main__":
    unittest.main()
