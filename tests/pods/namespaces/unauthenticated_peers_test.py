"""Unauthenticated peers that hold a connection to every port of a job that they can find, from its first moment on. The
ports are found by looking; none is listed. Training starts and ends as without them."""

import subprocess
import sys
from pathlib import Path

from pods import LOST, PORT, STANDS, Job, Pod, wait_for
from pods_test_case import PodsTest

NOBODY = "65534"


class UnauthenticatedPeersTest(PodsTest):
    def start_peer(self, job: Job, pod: Pod, count: int, *, inside: bool) -> "subprocess.Popen[str]":
        """On a host that is no member; or inside the pod's network, as another user."""
        assert pod.process is not None
        host = pod.host if inside else self.network.hosts[3]
        address = "127.0.0.1" if inside else pod.host.address
        script = str(Path(__file__).with_name("unauthenticated_peer.py"))
        wait_for(lambda: pod.process.pid in pod.host.processes(), lambda: "the pod to enter its network")
        words = [sys.executable, script, "self" if inside else str(pod.process.pid), address, str(count), str(PORT)]
        if inside:
            words = ["setpriv", "--reuid", NOBODY, "--clear-groups", *words]
        made = subprocess.Popen(host.command(words), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(made.kill)
        return made

    def ports(self, peer: "subprocess.Popen[str]") -> tuple[set[int], set[int]]:
        """The ports that the peer tried, and those that it reached."""
        output, _ = peer.communicate("", timeout=30)
        lines = [line.split() for line in output.splitlines()]
        self.assertEqual([line[0] for line in lines], ["tried", "reached"], output)
        tried, reached = ({int(word) for word in line[1:]} for line in lines)
        return tried, reached

    def train_among(self, *, inside: bool, count: int) -> tuple[set[int], set[int]]:
        job = self.job(self.training(3, 60), workers=2)
        job.start_all()
        peers = [self.start_peer(job, pod, count, inside=inside) for pod in job.pods]
        self.assert_ended(job)
        self.assertIsNone(job.chief.find(LOST), job.text())
        self.assertIsNotNone(job.chief.find(STANDS), job.text())
        found = [self.ports(peer) for peer in peers]
        for tried, _ in found:
            self.assertGreaterEqual(len(tried), 1, "no peer found a port: nothing was tested")
        return set().union(*(tried for tried, _ in found)), set().union(*(reached for _, reached in found))

    def test_a_byte_from_a_host_outside_the_job_stops_nothing(self) -> None:
        _, reached = self.train_among(inside=False, count=1)
        self.assertEqual(reached, set(), "ports of trainers answer unauthenticated peers")

    def test_a_silent_connection_of_another_user_stops_nothing(self) -> None:
        """To the PMIx server, which listens on the loopback address."""
        self.train_among(inside=True, count=0)
