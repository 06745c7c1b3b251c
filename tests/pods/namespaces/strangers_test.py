"""Port scanners, HTTP probes, half-open and slow connections at the chief's port: training hardly notices, and a worker
that is lost meanwhile comes back through the crowd."""

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
STORMS = 4 if scale.full else 2  # with as much quiet time between them
SLOWER = 0.1
ENDLESS = 1000000  # epochs


def cpu_seconds(pid: int) -> float:
    """That a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class StrangersTest(PodsTest):
    def storm(self, connections: int, slow: int, seconds: float, number: int) -> subprocess.Popen[str]:
        stranger, chief = self.network.hosts[3], self.network.hosts[0]
        junk = str(Path(__file__).with_name("junk.py"))
        words = [sys.executable, junk, chief.address, PORT, connections, slow, seconds, seed() + number]
        return subprocess.Popen(stranger.command([str(word) for word in words]), stdout=subprocess.PIPE, text=True)

    def epochs(self, job: Job) -> list[float]:
        """When each ended."""
        return [line.when for line in list(job.chief.lines) if "ms/step" in line.text]

    def test_throughput(self) -> None:
        job = self.job(self.training(ENDLESS, 100), workers=2)  # until it is told to go: how fast it is is not known
        job.start_all()
        job.wait_for_line("ms/step", [job.chief])
        launcher = job.chief.process
        assert launcher is not None
        stormy: list[tuple[float, float]] = []
        busy = 0.0
        for number in range(STORMS):
            time.sleep(SECONDS / STORMS)
            began, used = time.monotonic(), cpu_seconds(launcher.pid)
            storm = self.storm(CONNECTIONS // STORMS, SLOW // STORMS, SECONDS / STORMS, number)
            told, _ = storm.communicate()
            self.assertIn("junk", told)
            stormy.append((began, time.monotonic()))
            busy += cpu_seconds(launcher.pid) - used
        time.sleep(SECONDS / STORMS)
        self.assertTrue(job.chief.running, job.text())
        self.assertIsNone(job.chief.find(LOST), job.text())
        for pod in job.pods:
            pod.signal(signal.SIGTERM)
        self.assert_ended(job, TEMPORARY)
        self.assertIsNotNone(job.chief.find("hung up on .* stranger"), job.text())
        ends = self.epochs(job)
        within: list[float] = []
        without: list[float] = []
        for before, end in itertools.pairwise(ends):
            is_stormy = any(before < last and end > first for first, last in stormy)
            (within if is_stormy else without).append(end - before)
        slower = statistics.median(within) / statistics.median(without) - 1
        share = busy / sum(last - first for first, last in stormy)
        print(f"{CONNECTIONS} junk and {SLOW} slow connections in {SECONDS:.0f} s: epochs take {100 * slower:+.1f} % "
              f"({len(within)} epochs among strangers, {len(without)} without), the launcher {100 * share:.1f} % of a core")
        self.assertLess(share, SLOWER)
        self.assertLess(slower, SLOWER if scale.full else 3 * SLOWER)  # the strangers' own program takes some of it

    def test_a_worker_comes_back_through_the_crowd(self) -> None:
        command = self.training(*LONG)
        whole = self.undisturbed(command)
        job = self.job([*command, "--backup-save-freq", "7"])
        job.start_all()
        job.wait_for_backup()
        storm = self.storm(2000, 1000, 20, 99)
        try:
            time.sleep(1.0)
            since = time.monotonic()
            job.pods[1].kill()
            job.start(1)
            took = job.wait_for_line(STANDS, [job.chief], since) - since
            print(f"among 1000 slow and 100 new strangers a second the next world stands {took:.2f} s after a kill")
            self.assertLess(took, 10, job.text())
            self.assert_ended(job)
        finally:
            storm.kill()
            storm.communicate()
        self.assert_same(job, whole)
