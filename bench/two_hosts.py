"""Runs a job of two workers on two hosts with one core each: network namespaces, joined by a link that `tc` shapes.
Needs root."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "tests" / folder) for folder in ("programs", "pods/namespaces")]
from network import Network  # noqa: E402
from pods import Job  # noqa: E402

ON_ITS_CORE = ["sh", "-c", 'exec taskset -c "$LOCKSTEP_BENCH_CORE" "$@"', "sh"]


def two_hosts() -> Network:
    return Network(("worker-0", "worker-1"))


def shape(network: Network, link: str) -> None:
    """`link`: unlimited, or a rate in tc's notation."""
    for host in network.hosts:
        host.restore()
        if link != "unlimited":
            host.limit(link)


def run_on_two_hosts(network: Network, scratch: Path, link: str, command: Sequence[str], limit: float = 600,
                     options: Sequence[str] = (), **environment: str) -> tuple[Job, list[int | None]]:
    """Runs a job to its end; returns it and its exit codes. `link`: see shape(). `options`: of `lockstep launch`."""
    shape(network, link)
    job = Job(network, scratch, [*ON_ITS_CORE, *command], workers=2, options=options, **environment)
    try:
        for number, core in enumerate(sorted(os.sched_getaffinity(0))[:2]):
            job.start(number, LOCKSTEP_BENCH_CORE=str(core))
        return job, job.wait(limit)
    finally:
        job.end()


def succeed_on_two_hosts(network: Network, scratch: Path, link: str, command: Sequence[str],
                         options: Sequence[str] = (), **environment: str) -> Job:
    job, codes = run_on_two_hosts(network, scratch, link, command, options=options, **environment)
    if codes != [0, 0]:
        raise RuntimeError(job.text())
    return job
