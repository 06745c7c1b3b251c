"""A world formed by launchers is as fast as one formed by mpirun over the same links, and ranks of one host share
memory."""

import re
import shutil

import scale
from pods import STANDS
from pods_test_case import PodsTest
from support import program

GRADIENTS = 4 * 2770634  # of keras_mnist, in bytes
FLOOR = 0.9 if scale.full else 0.7
TIMED = r"(\d+) ranks on (\d+) hosts: ([0-9.e+-]+) ms per all-reduce"
LINKS = {"10gbit": 64 << 10, "1gbit": GRADIENTS, "": GRADIENTS} if scale.full else {"1gbit": GRADIENTS}
PAIRS = 5 if scale.full else 3
SECONDS = 2.0 if scale.full else 0.5
# mpirun calls this instead of ssh, with the host's address and the words of a command.
AGENT = """#!/bin/sh
address=$1
shift
case $address in
{cases}
esac
exec ip netns exec "$namespace" unshare --uts --ipc \\
  sh -c 'hostname "$0" && mount -t tmpfs tmpfs /dev/shm && eval "$1"' "$name" "$*"
"""


class BandwidthTest(PodsTest):
    def read(self, text: str, ranks: int, hosts: int) -> float:
        timed = re.search(TIMED, text)
        assert timed is not None, text
        self.assertEqual((int(timed[1]), int(timed[2])), (ranks, hosts), text)
        return float(timed[3])

    def launched(self, *words: object) -> float:
        job = self.job([program("allreduce_probe"), *words], workers=2)
        job.start_all()
        self.assert_ended(job)
        return self.read(job.text(), 2, 2)

    def with_mpirun(self, *words: object) -> float:
        hosts = self.network.hosts[:2]
        agent = self.scratch / "agent"
        agent.write_text(AGENT.format(cases="\n".join(
            f"  {host.address} | {host.name}) namespace={host.namespace} name={host.name} ;;" for host in hosts)))
        agent.chmod(0o755)
        parameters = {"plm_rsh_agent": agent, "btl_tcp_if_include": "link0", "oob_tcp_if_include": "link0",
                      "mpi_yield_when_idle": 1}
        options = [word for name, value in parameters.items() for word in ("--mca", name, str(value))]
        command = ["mpirun", "--allow-run-as-root", "--bind-to", "none", "-np", "2", "--host",
                   ",".join(host.address for host in hosts), *options, program("allreduce_probe"), *map(str, words)]
        job = self.job([])
        job.chief.start(command, {})
        job.wait()
        return self.read(job.text(), 2, 2)

    def test_bandwidth_matches_mpirun(self) -> None:
        if shutil.which("mpirun") is None:
            self.skipTest("mpirun is not installed")
        for link, size in LINKS.items():
            with self.subTest(link=link):
                for host in self.network.hosts:
                    if link:
                        host.limit(link)
                    else:
                        host.restore()
                ours: list[float] = []
                theirs: list[float] = []
                for _ in range(PAIRS):
                    ours.append(self.launched(size, SECONDS))
                    theirs.append(self.with_mpirun(size, SECONDS))
                speed = min(theirs) / min(ours)  # other programs' load only ever adds time
                print(f"{size} bytes over {link or 'links without a limit'}: {min(ours):.2f} ms, in mpirun's world "
                      f"{min(theirs):.2f} ms: {100 * speed:.0f} % of its speed")
                self.assertGreater(speed, FLOOR)

    def test_one_host_shares_memory(self) -> None:
        """Two trainers of a launcher, on each of two hosts."""
        job = self.job(self.training(1, 3), workers=2, options=("--ranks-per-worker", 2))
        job.start_all()
        job.wait_for_line(STANDS, [job.chief])
        self.assert_ended(job)
        self.assertIsNotNone(job.chief.find("4 workers, shared memory within .*, MPI between"), job.text())
