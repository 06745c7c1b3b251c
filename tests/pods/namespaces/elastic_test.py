"""Jobs that continue with fewer workers (--min-workers) and readmit lost ones reach the same losses."""

import random
import time

from pods import Job
from pods_test_case import PodsTest
from support import seed

TOLERANCE = 1e-5  # relative, of the losses: fewer workers sum in another order


class ElasticTest(PodsTest):
    def assert_close(self, job: Job, whole: Job) -> None:
        ours, theirs = job.history(), whole.history()
        told = zip([*ours["epochs"], ours["evaluation"]], [*theirs["epochs"], theirs["evaluation"]], strict=True)
        for mine, other in told:
            self.assertAlmostEqual(mine["loss"], other["loss"], delta=TOLERANCE * other["loss"])

    def test_fewer_workers_continue_and_readmit_a_lost_one(self) -> None:
        command = self.training(15, 60, model="calm")
        whole = self.undisturbed(command)
        job = self.job([*command, "--backup-save-freq", "20"], options=("--min-workers", 2, "--rejoin-timeout", 1))
        job.start_all()
        job.wait_for_backup()
        gone = random.Random(seed()).choice((1, 2))
        since = time.monotonic()
        job.pods[gone].kill()
        shrunk = job.wait_for_line("Lockstep .* 2 workers", [job.chief], since)
        job.wait_for_backup(shrunk)
        back = time.monotonic()
        job.start(gone)
        grown = job.wait_for_line("Lockstep .* 3 workers", [job.chief], back)
        print(f"without worker {gone} after {shrunk - since:.2f} s, with it {grown - back:.2f} s after it came back")
        self.assert_ended(job)
        self.assert_close(job, whole)
