"""A job of two workers on hosts of their own, a core each: network namespaces joined by a link that `tc` shapes, so it
takes root."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "tests" / place) for place in ("programs", "pods/namespaces")]
from network import Network  # noqa: E402
from pods import Job  # noqa: E402

ON_ITS_CORE = ["sh", "-c", 'exec taskset -c "$LOCKSTEP_BENCH_CORE" "$@"', "sh"]


def two_hosts() -> Network:
    return Network(("worker-0", "worker-1"))


def shape(network: Network, link: str) -> None:
    """`link`: unshaped, or a rate of tc."""
    for host in network.hosts:
        host.restore()
        if link != "unshaped":
            host.limit(link)


def run_on_two_hosts(network: Network, scratch: Path, link: str, command: Sequence[str], limit: float = 600,
                     options: Sequence[str] = (), **environment: str) -> tuple[Job, list[int | None]]:
    """The job, ended, and its exit codes. `link`: see shape(); `options`: of `lockstep launch`."""
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
