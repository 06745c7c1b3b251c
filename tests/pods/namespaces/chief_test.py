"""The chief's pod is lost: the others wait for it and resume when it returns."""

import time

import scale
from pods import LOST
from pods_test_case import LONG, PodsTest

GONE_S = 40.0 if scale.full else 2.5


class ChiefTest(PodsTest):
    def test_workers_wait_for_a_lost_chief_and_resume(self) -> None:
        command = self.training(*LONG)
        whole = self.undisturbed(command)
        job = self.job([*command, "--backup-save-freq", "7"], LOCKSTEP_REPORT_INTERVAL="1")
        job.start_all()
        for _ in range(2):
            job.wait_for_backup(job.chief.started)
            since = time.monotonic()
            job.chief.kill()
            self.assertLess(job.wait_for_line(LOST, job.pods[1:], since) - since, 5.0, job.text())
            time.sleep(GONE_S)
            for pod in job.pods[1:]:
                self.assertTrue(pod.running, job.text())
                self.assertIsNotNone(pod.find("still waiting after .* for the chief, worker 0", since), job.text())
                self.assertEqual(pod.trainers(), [], "trainers must not outlive their generation")
            job.start(0)
        self.assert_ended(job)
        self.assertIsNotNone(job.chief.find("Resuming from"), job.text())
        self.assert_same(job, whole)
