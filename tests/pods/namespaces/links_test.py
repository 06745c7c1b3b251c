"""Two workers that cannot reach each other, but that both reach the chief: the link is named, no generation begins, and
training goes on once the link is mended."""

import re
import shutil
import time
import unittest

from matrix import lose_packets
from network import run
from pods import STANDS, Job, wait_for
from pods_test_case import PodsTest
from support import program

CUT = (r"worker 1 \(10\.87\.32\.2\) and worker 2 \(10\.87\.32\.3\) cannot reach each other: no answer within 3 s; let "
       "firewalls and network policies admit connections")
ONE_WAY = r"worker 2 \(10\.87\.32\.3\) cannot reach worker 1 \(10\.87\.32\.2\): connection refused"
AGAIN = r"generation \d+ (begins|ended)"


@unittest.skipUnless(shutil.which("iptables"), "needs iptables")
class LinksTest(PodsTest):
    def cut_both_ways(self) -> None:
        one, other = self.network.hosts[1:3]
        lose_packets(one, other)
        lose_packets(other, one)

    def mend(self) -> None:
        for host in self.network.hosts[1:3]:
            host.restore()

    def assert_no_restart(self, job: Job, since: float = 0.0) -> None:
        self.assertFalse([line for pod in job.pods if (line := pod.find(AGAIN, since))], job.text())

    def test_a_cut_link_is_named_before_a_world_forms(self) -> None:
        self.cut_both_ways()
        job = self.job(self.training(1, 3), LOCKSTEP_REPORT_INTERVAL="2")
        job.start_all()
        job.wait_for_line(CUT, job.pods)
        job.wait_for_line("still waiting after .* for the network: worker 1 ", job.pods)
        self.assertEqual([pod.trainers() for pod in job.pods], [[], [], []], job.text())
        self.mend()
        job.wait_for_line(STANDS, [job.chief])
        self.assert_ended(job)
        self.assert_no_restart(job)

    def test_a_link_that_stays_cut_in_one_direction_ends_the_job(self) -> None:
        """A firewall that answers."""
        one, other = self.network.hosts[1:3]
        run("ip", "netns", "exec", one.namespace, "iptables", "-A", "INPUT", "-s", other.address, "-p", "tcp", "--syn", "-j",
            "REJECT", "--reject-with", "tcp-reset")
        job = self.job(self.training(1, 3), options=("--rendezvous-timeout", 4))
        job.start_all()
        self.assert_ended(job, 75)
        for pod in job.pods:
            self.assertTrue(pod.find(f"error: no world can form within 4 s: {ONE_WAY}"), job.text())
        self.assertNotRegex(job.text(), STANDS)

    def test_a_link_that_is_cut_before_the_first_step_is_named(self) -> None:
        """Nothing is known yet of how long steps take."""
        command = self.training(1, 5, "--parallelism", "data")
        marker = self.scratch / "before-first-step"
        job = self.job([program("lockstep_with_faults"), *command[1:]], LOCKSTEP_TEST_RANK="1",
                       LOCKSTEP_TEST_FAULT_POINT=f"step 1 hold {marker}")
        job.start_all()
        wait_for(marker.exists, lambda: "the first step" + job.text())
        self.cut_both_ways()
        marker.with_name(marker.name + ".released").touch()
        job.wait_for_line("generation 1 ended: worker [12] .*: " + CUT.split(";")[0], job.pods, limit=30)
        self.mend()
        self.assert_ended(job)

    def test_a_link_that_is_cut_during_training_costs_one_restart(self) -> None:
        command = self.training(10, 20, "--parallelism", "data")
        whole = self.undisturbed(command)
        job = self.job([program("lockstep_with_faults"), *command[1:], "--backup-save-freq", "20"],
                       LOCKSTEP_TEST_STEP_MS="50")
        job.start_all()
        job.wait_for_backup(job.wait_for_line(STANDS, [job.chief]) + 3)  # launchers know by then how long steps take
        self.cut_both_ways()
        job.wait_for_line(CUT, job.pods)
        named = time.monotonic()
        time.sleep(2)
        self.assert_no_restart(job, named)
        self.mend()
        self.assert_ended(job)
        self.assert_same(job, whole)
        begun = [line.text for line in job.chief.lines if re.search("generation .* begins", line.text)]
        self.assertEqual(len(begun), 1, job.text())
