"""Random faults while three pods train: every job must finish, with the same bits as an undisturbed one.

For many faults: tests/pods/namespaces/run.py BUILD_DIR random_faults --count 100 [--seed 2] [--results FILE]
Each job is drawn from the seed and its number; jobs already in the results file are skipped."""

import json
import os
import random
import statistics
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import faults
from faults import Fault
from pods import STANDS, Job
from pods_test_case import LONG, PodsTest
from support import count, seed

LAST_STEPS = 400  # without faults: a worker that is lost when others have ended would wait forever
ALL_STEPS = LONG[0] * LONG[1]
FAULTS_A_JOB = 5
NOTICED_S = 5.0
NEXT_STEP_S = 5.0

results_file: Path | None = None


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


class RandomFaultsTest(PodsTest):
    def newest_backup(self, job: Job) -> int:
        """The step of a backup; the last step if the job has ended and no backup is left."""
        return max((int(name.rsplit("-", 1)[1].removesuffix(".h5")) for name in job.backups()), default=ALL_STEPS)

    def disturb(self, job: Job, chance: random.Random) -> list[Fault]:
        inflicted: list[Fault] = []
        mended = job.began
        for _ in range(FAULTS_A_JOB):
            trains = chance.random() < 0.85  # otherwise the fault may also hit while the world forms
            if trains:
                job.wait_for_backup(mended)
            time.sleep(chance.uniform(0.0, 1.0))
            if trains and self.newest_backup(job) > ALL_STEPS - LAST_STEPS:
                break
            inflict = faults.draw(chance)
            fault = Fault(inflict.__name__, chance.randrange(3), trains, time.monotonic() - job.began)
            inflicted.append(fault)
            inflict(job, fault, chance)
            mended = time.monotonic()
            if trains and faults.ends_generation(fault.kind):
                stands = job.wait_for_line(STANDS, [job.chief], job.began + fault.began)
                fault.next_step = job.wait_for_backup(stands) - job.began - fault.began
        return inflicted

    def test_random_faults(self) -> None:
        wanted = count(50)
        done: dict[str, Any] = {"seed": seed(), "jobs": 0, "resumed": 0, "failed": [], "faults": []}
        if results_file and results_file.exists():
            done = json.loads(results_file.read_text())
        whole = self.undisturbed(self.training(*LONG))
        while len(done["faults"]) < wanted:
            number = done["jobs"]
            chance = random.Random(f"{seed()}/{number}")
            job = self.job(self.training(*LONG, "--backup-save-freq", chance.choice((1, 5, 7, "epoch"))),
                           options=("--busy-timeout", faults.BUSY_S))
            job.start_all(chance.sample(range(3), 3))
            with self.subTest(seed=seed(), job=number):
                inflicted: list[Fault] = []
                try:
                    inflicted = self.disturb(job, chance)
                    self.assert_ended(job)
                    self.assert_same(job, whole)
                    for fault in inflicted:
                        limit = faults.PATIENCE_S if fault.busy else NOTICED_S
                        self.assertLessEqual(fault.noticed or 0, limit, f"{fault}{job.text()}")
                        self.assertEqual(fault.blamed, "", f"{fault}{job.text()}")
                except AssertionError:
                    done["failed"].append(number)
                    raise
                finally:
                    job.end()
                    done["jobs"] += 1
                    done["resumed"] += job.chief.find("Resuming from") is not None
                    done["faults"] += [asdict(fault) | {"job": number} for fault in inflicted]
                    if results_file:
                        results_file.write_text(json.dumps(done, indent=1) + "\n")
        self.judge(done)

    def judge(self, done: dict[str, Any]) -> None:
        happened: list[dict[str, Any]] = done["faults"]
        noticed = [fault["noticed"] for fault in happened if fault["noticed"] is not None and not fault["busy"]]
        steps = [fault["next_step"] - fault["mended"] for fault in happened if fault["next_step"] is not None]
        print(f"{len(happened)} faults in {done['jobs']} jobs, seed {done['seed']}; {len(done['failed'])} jobs failed, "
              f"{done['resumed']} resumed from a backup")
        if noticed:
            print(f"noticed by all workers after {statistics.median(noticed):.2f} s (maximum {max(noticed):.2f} s); the "
                  f"next step {statistics.median(steps):.2f} s after the pod was back (or the fault), 9 of 10 within "
                  f"{percentile(steps, 0.9):.2f} s")
            # On a busy machine every process waits for a core.
            self.assertLess(statistics.median(steps), NEXT_STEP_S * max(1.0, os.getloadavg()[1] / (os.cpu_count() or 1)))
        self.assertGreater(done["resumed"], 0, "no run resumed from a backup, so nothing was tested")
