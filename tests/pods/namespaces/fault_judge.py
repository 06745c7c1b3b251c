"""Judges a job that had a fault: it ends with the undisturbed job's bits, at once or after it has started again."""

import subprocess
import sys
import time
from pathlib import Path

from matrix import STEPS, Moment
from pods import Hang, Job
from pods_test_case import PodsTest
from support import IO, TEMPORARY, program

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "faults"))
import check_history  # noqa: E402

LIMIT_S = 900.0  # of a job with a fault, on a machine that has much else to do
TOLERANCE = 1e-4  # relative, of losses where other numbers of workers sum in another order


class FaultJudge(PodsTest):
    leaving: int | None = None  # the worker that was told to leave and has not come back

    def model_of(self, moment: Moment) -> str:
        return "calm" if moment.elastic else "stateful"

    def restart_pods(self, job: Job) -> None:
        """As Kubernetes does: pods that were killed, or left, start again."""
        for pod in job.pods:
            if pod.process is not None and not pod.running and (pod.code() or 0) < 0:
                job.start(pod.number)
        if self.leaving is not None and job.pods[self.leaving].code() == TEMPORARY:
            job.start(self.leaving)
            self.leaving = None

    def wait_for_end(self, job: Job) -> list[int | None]:
        deadline = time.monotonic() + LIMIT_S
        while any(pod.running or (pod.code() or 0) < 0 for pod in job.pods if pod.process is not None):
            if time.monotonic() > deadline:
                raise Hang("no end" + job.text())
            self.restart_pods(job)
            time.sleep(0.02)
        return [pod.code() for pod in job.pods]

    def judge(self, job: Job, moment: Moment, codes: list[int | None], history: Path) -> str:
        """Returns "bits", or the code and the sentence of a job that had to start again. Raises AssertionError if a
        promise is broken."""
        self.check_history(job, moment, history)
        self.check_files(job)
        outcome = "bits"
        if set(codes) != {0}:
            outcome = self.documented_end(job, codes)
            self.start_again(job)
            self.check_history(job, moment, history)
            self.check_files(job)
        self.check_result(job, moment)
        return outcome

    def check_history(self, job: Job, moment: Moment, history: Path) -> None:
        self.assertEqual(check_history.check(history, bool(moment.elastic)), [], job.text())

    def check_files(self, job: Job) -> None:
        """Every file with a final name is whole."""
        for place in (job.model, job.model / "backup"):
            if not any(place.glob("*.h5")):
                continue
            checked = subprocess.run([program("lockstep"), "inspect", "--check", str(place)], capture_output=True, text=True)
            self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr + job.text())

    def documented_end(self, job: Job, codes: list[int | None]) -> str:
        failed = {code for code in codes if code}
        self.assertLessEqual(failed, {IO, TEMPORARY}, job.text())
        sentences = [line.text for pod in job.pods for line in pod.lines if "error: " in line.text]
        self.assertTrue(sentences, "no sentence tells why" + job.text())
        return f"{sorted(failed)}: {sentences[-1][:160]}"

    def start_again(self, job: Job) -> None:
        """As Kubernetes does, the pods that failed start again, now without a fault; they end with 0."""
        job.remove_faults()
        for pod in job.pods:
            if pod.code() != 0:
                job.start(pod.number)
        codes = self.wait_for_end(job)
        self.assertEqual(codes, [0] * len(codes), "started again" + job.text())

    def check_result(self, job: Job, moment: Moment) -> None:
        whole = self.undisturbed(self.training(*STEPS, *moment.options, model=self.model_of(moment)), moment.workers)
        if moment.elastic:
            ours, theirs = job.history()["epochs"][-1], whole.history()["epochs"][-1]
            self.assertAlmostEqual(ours["loss"], theirs["loss"], delta=TOLERANCE * theirs["loss"], msg=job.text())
        else:
            self.assert_same(job, whole)
