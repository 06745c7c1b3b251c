"""Waiting threads: a program of several threads bounds how long they spin. libgomp reads that when it is loaded."""

import os
import signal
from pathlib import Path

from support import ProgramTest

LONG = ("--epochs", 100000, "--steps-per-epoch", 100, "--backup-save-freq", "never")


class WaitingTest(ProgramTest):
    default_program = "keras_mnist"

    def spin_count(self, **environment: str) -> str | None:
        """GOMP_SPINCOUNT with which the process was started, or started again by itself."""
        running = self.start(*LONG, **environment)
        running.wait_for_output("Lockstep ")
        variables = Path(f"/proc/{running.process.pid}/environ").read_text().split("\0")
        os.killpg(running.process.pid, signal.SIGKILL)
        running.end()
        found = [variable.split("=")[1] for variable in variables if variable.startswith("GOMP_SPINCOUNT=")]
        return found[0] if found else None

    def test_several_threads_spin_briefly(self) -> None:
        self.assertEqual(self.spin_count(OMP_NUM_THREADS="2"), "1000")

    def test_one_thread_needs_no_bound(self) -> None:
        self.assertIsNone(self.spin_count(OMP_NUM_THREADS="1"))

    def test_the_users_choice_wins(self) -> None:
        self.assertEqual(self.spin_count(OMP_NUM_THREADS="2", GOMP_SPINCOUNT="7"), "7")
        self.assertIsNone(self.spin_count(OMP_NUM_THREADS="2", OMP_WAIT_POLICY="active"))
