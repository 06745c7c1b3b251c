"""Programs that know nothing of Lockstep run under its launcher unchanged, and are restarted."""

from __future__ import annotations

import unittest

from support import JobTest, run_job


class FullTest(JobTest):
    def test_distributed_data_parallel(self) -> None:
        ended = self.assert_succeeds(run_job("torch", 2, "ddp.py", self.folder / "marker"))
        self.assertIn("generation 1 ended", ended.errors)
        self.assertIn("trained 2 fresh port: True", ended.output)

    def test_keras_distribution(self) -> None:
        ended = self.assert_succeeds(run_job("jax", 2, "keras_distribution.py"))
        for process in range(2):
            self.assertIn(f"process {process} of 2 True", ended.output)


if __name__ == "__main__":
    unittest.main()
