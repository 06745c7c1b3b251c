"""Pods that receive SIGTERM (as on a drained node): all ranks save after the step, the pod exits with 75, the others
wait for it, and no step is repeated."""

import signal
import time

from pods import STANDS, Job
from pods_test_case import PodsTest
from support import TEMPORARY

GRACE_S = 10.0  # a third of Kubernetes' default grace period
EPOCHS, STEPS = 2, 600  # no backup is due before the end of an epoch


class LeaveTest(PodsTest):
    def wait_until_it_trains(self, job: Job) -> None:
        job.wait_for_line("^Epoch ", [job.chief], job.chief.started)
        time.sleep(0.3)

    def assert_left(self, job: Job, terminated: list[int]) -> None:
        """Asserts that these pods left in time and that a backup from the middle of an epoch exists."""
        since = time.monotonic()
        for number in terminated:
            job.pods[number].signal(signal.SIGTERM)
        for number in terminated:
            process = job.pods[number].process
            assert process is not None
            self.assertEqual(process.wait(GRACE_S), TEMPORARY, job.text())
        print(f"workers {terminated} left {time.monotonic() - since:.2f} s after SIGTERM")
        saved = max(int(name.rsplit("-", 1)[1].removesuffix(".h5")) for name in job.backups())
        self.assertNotEqual(saved % STEPS, 0, job.text())

    def test_workers_leave_one_by_one(self) -> None:
        command = self.training(EPOCHS, STEPS)
        whole = self.undisturbed(command)
        job = self.job([*command, "--backup-save-freq", "epoch"])
        job.start_all()
        for number in (1, 0):
            self.wait_until_it_trains(job)
            self.assert_left(job, [number])
            since = time.monotonic()
            self.assertEqual([pod.running for pod in job.pods], [pod.number != number for pod in job.pods], job.text())
            job.start(number)
            job.wait_for_line(STANDS, [job.chief], since)
            job.wait_for_line(r"Resuming from .*: after step \d+ of epoch", [job.chief], since)
        self.assert_ended(job)
        self.assert_same(job, whole)

    def test_all_workers_leave_at_once(self) -> None:
        self.check_simultaneous_leave("data")

    def test_all_workers_leave_at_once_with_tensor_parallelism(self) -> None:
        self.check_simultaneous_leave("tensor")

    def check_simultaneous_leave(self, parallelism: str) -> None:
        command = self.training(EPOCHS, STEPS, "--parallelism", parallelism)
        job = self.job([*command, "--backup-save-freq", "epoch"])
        job.start_all()
        self.wait_until_it_trains(job)
        self.assert_left(job, [0, 1, 2])
        job.start_all()
        job.wait_for_line(r"Resuming from .*: after step \d+ of epoch", [job.chief])
        self.assert_ended(job)
        self.assert_same(job, self.undisturbed(command))
