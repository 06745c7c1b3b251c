"""Workers that are killed, stopped or fail during training: all workers exit soon, with a reason."""

import os
import signal
import time
from pathlib import Path

from support import DATA, TEMPORARY, Ended, ProgramTest, Running, eventually

END_LIMIT_S = 10.0


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class PeersTest(ProgramTest):
    default_program = "keras_mnist"

    def train_endlessly(self, workers: int, **environment: str) -> tuple[Running, dict[int, int]]:
        running = self.start("--epochs", 1000000, "--steps-per-epoch", 2, "--global-batch-size", 16, "--resume", "never",
                             workers=workers, **environment)
        running.wait_for_output("Epoch 2/")
        ranks = running.ranks()
        self.assertEqual(sorted(ranks), list(range(workers)))
        return running, ranks

    def assert_all_end(self, running: Running, ranks: dict[int, int], limit: float) -> Ended:
        began = time.monotonic()
        ended = running.end()
        self.assertLess(time.monotonic() - began, limit, str(ended))
        self.assertTrue(eventually(lambda: not any(map(is_running, ranks.values()))), "workers outlive mpirun")
        return ended

    def test_a_killed_worker_ends_all(self) -> None:
        for workers, victim in ((2, 1), (3, 0)):
            with self.subTest(workers=workers, victim=victim), self.earlier_model_kept():
                running, ranks = self.train_endlessly(workers)
                os.kill(ranks[victim], signal.SIGKILL)
                self.assertNotEqual(self.assert_all_end(running, ranks, END_LIMIT_S).code, 0)

    def test_a_stopped_worker_is_named(self) -> None:
        for workers, victim in ((2, 0), (3, 1)):
            with self.subTest(workers=workers, victim=victim), self.earlier_model_kept():
                running, ranks = self.train_endlessly(workers, LOCKSTEP_COLLECTIVE_TIMEOUT="3")
                os.kill(ranks[victim], signal.SIGSTOP)
                ended = self.assert_all_end(running, ranks, 3 + END_LIMIT_S)
                self.assertEqual(ended.code, TEMPORARY, str(ended))
                self.assertGreaterEqual(len(ended.errors), 1, str(ended))
                for line in ended.errors:
                    self.assertIn(f" s waiting for rank {victim} ", line)
                    self.assertIn("LOCKSTEP_COLLECTIVE_TIMEOUT", line)

    def test_sigterm_ends_all_workers(self) -> None:
        with self.earlier_model_kept():
            running, ranks = self.train_endlessly(2)
            running.process.terminate()
            self.assertNotEqual(self.assert_all_end(running, ranks, END_LIMIT_S).code, 0)

    def test_a_nan_loss_ends_all_workers(self) -> None:
        for workers in (1, 2, 3):
            with self.subTest(workers=workers), self.earlier_model_kept():
                options = ("--learning-rate", "1e30", "--epochs", 2, "--steps-per-epoch", 5, "--resume", "never")
                ended = self.run_program(*options, workers=workers)
                self.assert_fails(ended, DATA, "loss", "NaN", "epoch 1, step 2", "--learning-rate")
