"""Junk at every port on which any process of a job listens: from a host that is no member, and from another user on the
job's own hosts. The ports are found by looking while the job trains, so a port that is added later is tested too. With
--full: 10,000 connections, and training may become at most 5 % slower."""

import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import scale
from pods import LOST, Job, Pod
from pods_test_case import PodsTest
from support import TEMPORARY, seed
from unauthenticated_peer import listening_ports

STATUS_PORT = 8080
NOBODY = "65534"
CONNECTIONS, SLOW, SECONDS = (10000, 200, 60.0) if scale.full else (600, 60, 3.0)  # over all ports
MAX_SLOWDOWN = 0.05
ENDLESS = 1000000  # epochs
LISTENS = "00010000"  # the flag of a listening socket in /proc/net/unix


def unix_listeners(pid: int) -> list[str]:
    lines = Path(f"/proc/{pid}/net/unix").read_text().splitlines()[1:]
    return [line for line in lines if line.split()[3] == LISTENS]


class JunkEverywhereTest(PodsTest):
    def targets(self, job: Job) -> list[tuple[Pod, bool, int]]:
        """Pods, whether the sender is on the pod's own host, and ports."""
        found = []
        for pod in job.pods:
            assert pod.process is not None
            self.assertEqual(unix_listeners(pod.process.pid), [], "a Unix socket that no test knows")
            for inside in (False, True):
                found += [(pod, inside, port) for port in sorted(listening_ports(str(pod.process.pid), inside))]
        return found

    def start_junk(self, target: tuple[Pod, bool, int], number: int, share: int) -> "subprocess.Popen[str]":
        pod, inside, port = target
        host = pod.host if inside else self.network.hosts[3]
        address = "127.0.0.1" if inside else pod.host.address
        script = str(Path(__file__).with_name("send_junk.py"))
        words = [sys.executable, script, address, port, CONNECTIONS // share, SLOW // share, SECONDS, seed() + number]
        user = ["setpriv", "--reuid", NOBODY, "--clear-groups"] if inside else []
        command = host.command(["nice", "-n", "15", *user, *map(str, words)])
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def epoch_seconds(self, job: Job, since: float, until: float) -> list[float]:
        ends = [line.when for line in list(job.chief.lines) if "ms/step" in line.text and since < line.when < until]
        return [after - before for before, after in zip(ends, ends[1:], strict=False)]

    def test_junk_at_every_port_stops_nothing(self) -> None:
        job = self.job(self.training(ENDLESS, 100), workers=2, options=("--status-port", STATUS_PORT))
        job.start_all()
        job.wait_for_line("ms/step", [job.chief])
        quiet_from = time.monotonic()
        time.sleep(SECONDS / 2)
        targets = self.targets(job)
        ports = sorted({port for _, _, port in targets})
        self.assertGreaterEqual(len(ports), 4, "rendezvous, status, MPI and PMIx")
        began = time.monotonic()
        senders = [self.start_junk(target, number, len(targets)) for number, target in enumerate(targets)]
        for sender in senders:
            output, _ = sender.communicate(timeout=SECONDS + 60)
            self.assertIn("junk", output)
        ended = time.monotonic()
        job.wait_for_line("ms/step", [job.chief], ended)  # it still trains
        time.sleep(SECONDS / 2)
        over = time.monotonic()
        self.assertIsNone(job.chief.find(LOST), job.text())
        among = self.epoch_seconds(job, began, ended)
        quiet = self.epoch_seconds(job, quiet_from, began) + self.epoch_seconds(job, ended, over)
        for pod in job.pods:
            pod.signal(signal.SIGTERM)
        self.assert_ended(job, TEMPORARY)
        slowdown = statistics.median(among) / statistics.median(quiet) - 1 if among and quiet else 0.0
        print(f"{CONNECTIONS} junk connections at ports {ports} of 2 hosts in {ended - began:.0f} s: epochs take "
              f"{100 * slowdown:+.1f} % ({len(among)} among junk, {len(quiet)} without)")
        if scale.full:
            self.assertGreaterEqual(min(len(among), len(quiet)), 3, "too few epochs to judge: this machine is busy")
            self.assertLess(slowdown, MAX_SLOWDOWN)
