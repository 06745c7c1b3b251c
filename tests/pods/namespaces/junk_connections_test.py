"""Port scanners, HTTP probes, half-open and slow connections at the chief's port hardly slow down training, and a
worker that is killed meanwhile rejoins."""

import itertools
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import scale
from pods import LOST, PORT, STANDS, Job
from pods_test_case import LONG, PodsTest
from support import TEMPORARY, seed

CONNECTIONS, SLOW, SECONDS = (10000, 1000, 60.0) if scale.full else (700, 200, 4.0)
BURSTS = 4 if scale.full else 2  # with pauses of the same length between them
MAX_SLOWDOWN = 0.05
ENDLESS = 1000000  # epochs


def cpu_seconds(pid: int) -> float:
    """The CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class JunkConnectionsTest(PodsTest):
    def start_burst(self, connections: int, slow: int, seconds: float, number: int) -> subprocess.Popen[str]:
        sender, chief = self.network.hosts[3], self.network.hosts[0]
        script = str(Path(__file__).with_name("send_junk.py"))
        words = ["nice", "-n", "15", sys.executable, script, chief.address, PORT, connections, slow, seconds, seed() + number]
        return subprocess.Popen(sender.command([str(word) for word in words]), stdout=subprocess.PIPE, text=True)

    def epochs(self, job: Job) -> list[float]:
        """The times at which epochs ended."""
        return [line.when for line in list(job.chief.lines) if "ms/step" in line.text]

    def test_junk_connections_hardly_slow_down_training(self) -> None:
        job = self.job(self.training(ENDLESS, 100), workers=2)  # until SIGTERM, because its speed is unknown
        job.start_all()
        job.wait_for_line("ms/step", [job.chief])
        launcher = job.chief.process
        assert launcher is not None
        bursts: list[tuple[float, float]] = []
        launcher_cpu = 0.0
        for number in range(BURSTS):
            time.sleep(SECONDS / BURSTS)
            began, cpu_before = time.monotonic(), cpu_seconds(launcher.pid)
            burst = self.start_burst(CONNECTIONS // BURSTS, SLOW // BURSTS, SECONDS / BURSTS, number)
            output, _ = burst.communicate()
            self.assertIn("junk", output)
            bursts.append((began, time.monotonic()))
            launcher_cpu += cpu_seconds(launcher.pid) - cpu_before
        time.sleep(SECONDS / BURSTS)
        self.assertTrue(job.chief.running, job.text())
        self.assertIsNone(job.chief.find(LOST), job.text())
        for pod in job.pods:
            pod.signal(signal.SIGTERM)
        self.assert_ended(job, TEMPORARY)
        self.assertIsNotNone(job.chief.find("dropped .* unauthenticated peer"), job.text())
        ends = self.epochs(job)
        epochs_with_junk: list[float] = []
        epochs_without_junk: list[float] = []
        for before, end in itertools.pairwise(ends):
            overlaps_a_burst = any(before < last and end > first for first, last in bursts)
            (epochs_with_junk if overlaps_a_burst else epochs_without_junk).append(end - before)
        slowdown = statistics.median(epochs_with_junk) / statistics.median(epochs_without_junk) - 1
        launcher_share = launcher_cpu / sum(last - first for first, last in bursts)
        print(f"{CONNECTIONS} junk and {SLOW} slow connections in {SECONDS:.0f} s: epochs take {100 * slowdown:+.1f} % "
              f"({len(epochs_with_junk)} among junk, {len(epochs_without_junk)} without), "
              f"the launcher uses {100 * launcher_share:.1f} % of a core")
        self.assertLess(launcher_share, MAX_SLOWDOWN)
        self.assertLess(slowdown, MAX_SLOWDOWN if scale.full else 6 * MAX_SLOWDOWN)  # few epochs

    def test_a_killed_worker_rejoins_among_junk_connections(self) -> None:
        command = self.training(*LONG)
        whole = self.undisturbed(command)
        job = self.job([*command, "--backup-save-freq", "7"])
        job.start_all()
        job.wait_for_backup()
        burst = self.start_burst(2000, 1000, 20, 99)
        try:
            time.sleep(1.0)
            since = time.monotonic()
            job.pods[1].kill()
            job.start(1)
            took = job.wait_for_line(STANDS, [job.chief], since) - since
            print(f"with 1000 slow and 100 new junk connections per second the next generation forms {took:.2f} s after a kill")
            self.assertLess(took, 10, job.text())
            self.assert_ended(job)
        finally:
            burst.kill()
            burst.communicate()
        self.assert_same(job, whole)
