"""Killed workers come back and training ends as if nothing had happened; mistakes end the job and say what is wrong."""

from __future__ import annotations

import json
import random
import unittest
from pathlib import Path
from typing import Any

import numpy as np
from support import INTERNAL, TEMPORARY, USAGE, JobTest, directory_of_another_job, draw_kills, run_job, train_with_kills


class Faults(JobTest):
    def history(self, backend: str, kills: list[list[int]]) -> Any:
        training = train_with_kills(backend, self.folder / f"{backend}-{len(kills)}", kills)
        self.assertEqual(training.problems, [], training.ended.errors[-4000:])
        return training.history

    def check(self, backend: str, kills: list[list[int]]) -> None:
        undisturbed = self.history(backend, [])
        self.assertEqual(undisturbed["epochs"], [0, 1, 2])
        self.assertEqual(self.history(backend, kills), undisturbed, f"kills {kills}")


class QuickTest(Faults):
    def test_jax_in_the_middle_of_an_epoch(self) -> None:
        self.check("jax", [[1, 17]])


class FullTest(Faults):
    def test_random_kills(self) -> None:
        """Kill a random rank at a random step of each of three generations, the chief at least once."""
        for seed, backend in enumerate(("jax",)):  # docs/python.md says what the others lack
            kills = draw_kills(random.Random(seed), 3)
            kills[0][0] = 0
            with self.subTest(backend=backend, kills=kills):
                self.check(backend, kills)

    def test_another_training_does_not_go_on(self) -> None:
        def run(kills: str, **changes: Any) -> Any:
            options = ("--max-restarts", "0")
            return run_job("jax", 1, "resumable.py", self.folder, kills, json.dumps(changes), options=options)

        run("[[0, 17]]")
        cases: list[tuple[str, dict[str, Any]]] = [
            ("another learning rate: 0.01 then, 0.0001 now", {"rate": 0.0001}),
            ("another loss, optimizer or metrics: beta_1 0.9 then, 0.5 now", {"beta_1": 0.5}),
            ("another model: units 16 then, 8 now", {"units": 8}),
            ("another batch_size: 8 then, 48 now", {"batch_size": 48}),
            ("another seed: 4 then, 5 now", {"seed": 5}),
            ("other data: examples 96 then, 80 now", {"examples": 80}),
            ("other data: other values in x; give what it began with", {"shift": 1}),
        ]
        for words, changes in cases:
            with self.subTest(words):
                ended = run("[]", **changes)
                self.assertEqual(ended.code, USAGE, ended.errors[-3000:])
                self.assertIn(f"{self.folder / 'backup'} holds the backup of a training with {words}", ended.errors)
        ended = run("[]", epochs=1)
        self.assertEqual(ended.code, USAGE, ended.errors[-3000:])
        self.assertIn("was taken after 1 epochs, but epochs is 1 now; give more epochs", ended.errors)
        self.assertIn("training goes on from the backup", self.assert_succeeds(run("[]")).errors)
        self.assertEqual(self.read_json("history.json")["epochs"], [0, 1, 2])


class MistakesTest(JobTest):
    """One exception with the remedy, and a job that ends."""

    def refused(self, code: int, *what: str, mistake: str, workers: int = 2) -> None:
        ended = run_job("jax", workers, "mistakes.py", mistake, options=("--max-restarts", "0"))
        self.assertEqual(ended.code, code, ended.errors[-3000:])
        for text in what:
            self.assertIn(text, ended.errors)

    def test_no_init(self) -> None:
        self.refused(INTERNAL, "call lockstep.init() before", mistake="no_init", workers=1)

    def test_an_optimizer_that_is_not_distributed(self) -> None:
        self.refused(USAGE, "lockstep.DistributedOptimizer", mistake="not_distributed")

    def test_weights_that_nobody_broadcast_are_told_of(self) -> None:
        """Each worker would train a model of its own."""
        warning = "Lockstep: warning: each worker begins with weights of its own"
        self.refused(0, warning, mistake="own_weights")
        ended = self.assert_succeeds(run_job("jax", 2, "mistakes.py", "broadcast_weights"))
        self.assertNotIn(warning, ended.errors)

    def test_a_rank_raises(self) -> None:
        self.refused(USAGE, "a column that is not there", "exit code 64", mistake="rank_raises")

    def test_ranks_disagree(self) -> None:
        what = ("rank 0 waits in a barrier, rank 1 gathers objects", "the same order")
        self.refused(USAGE, *what, mistake="disagree")

    def test_another_program_trains_in_the_directory(self) -> None:
        with directory_of_another_job(self.folder / "backup"):
            ended = run_job("jax", 2, "resumable.py", self.folder, "[]", options=("--max-restarts", "0"))
        self.assertEqual(ended.code, USAGE, ended.errors[-3000:])
        self.assertIn(f"{self.folder / 'backup'} belongs to job other (a test on ", ended.errors)
        self.assertFalse((self.folder / "history.json").exists())

    def check_finite_backup(self, folder: Path) -> None:
        with np.load(folder / "backup" / "backup.npz") as arrays:
            floats = [array for array in arrays.values() if array.dtype.kind == "f"]
        self.assertTrue(all(np.isfinite(array).all() for array in floats))

    def test_nan_and_infinity_are_not_backed_up(self) -> None:
        options = ("--max-restarts", "0")
        told = "the model holds NaN or infinity, so the backup in"
        # The first overflows before it is backed up, the second as soon as epoch 2 begins.
        for changes, has_backup in (({"shift": 3e38}, False), ({"rates": [0.01, 3e38]}, True)):
            with self.subTest(changes):
                folder = self.folder / next(iter(changes))
                folder.mkdir()
                ended = run_job("jax", 1, "resumable.py", folder, "[[0, 30]]", json.dumps(changes), options=options)
                self.assertNotEqual(ended.code, 0, ended.errors[-3000:])
                self.assertEqual(ended.errors.count(told), 1, ended.errors[-3000:])
                self.assertEqual((folder / "backup" / "backup.npz").exists(), has_backup)
                if has_backup:
                    self.check_finite_backup(folder)

    def test_the_last_finite_backup_stays_at_the_end(self) -> None:
        ended = run_job("jax", 1, "resumable.py", self.folder, "[]", json.dumps({"rates": [0.01, 3e38]}))
        self.assert_succeeds(ended)
        self.check_finite_backup(self.folder)

    def test_an_earlier_process_of_the_job_still_trains_in_the_directory(self) -> None:
        options = ("--max-restarts", "0", "--job-id", "mine")
        with directory_of_another_job(self.folder / "backup", "mine"):
            ended = run_job("jax", 2, "resumable.py", self.folder, "[]", options=options)
        self.assertEqual(ended.code, TEMPORARY, ended.errors[-3000:])
        self.assertIn(f"{self.folder / 'backup'} belongs to job mine (a test on ", ended.errors)

    def test_other_data_on_a_rank(self) -> None:
        self.assert_succeeds(run_job("jax", 2, "shards.py"))

    def test_a_rank_ends_early(self) -> None:
        self.refused(USAGE, "rank 0 all-reduces 3 numbers of 64 bits, rank 1", mistake="ends_early")


if __name__ == "__main__":
    unittest.main()
