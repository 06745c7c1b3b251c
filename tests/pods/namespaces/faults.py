"""What befalls a pod: each fault does its damage, waits until all workers have told of it, and mends what Kubernetes
(or whoever pulled the cable) would mend."""

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pods import LOST, Job, Pod

BUSY_S = 20  # --busy-timeout: whoever loads or saves may be silent for longer than whoever computes
PATIENCE_S = 40.0  # for what must be noticed in 5 s


@dataclass
class Fault:
    kind: str
    worker: int
    trains: bool  # all did; else a world may be forming, and nobody need notice
    began: float  # seconds since the job did
    noticed: float | None = None  # seconds until all workers had told of it
    busy: bool = False  # it was not computing a step
    blamed: str = ""  # another worker
    mended: float = 0.0  # seconds until the pod was started, woken, plugged in: what no job can shorten
    next_step: float | None = None  # seconds from the fault to the next new backup of the next generation

    def wait_until_noticed(self, job: Job, witnesses: Sequence[Pod]) -> None:
        since = job.began + self.began
        if not self.trains:
            return
        self.noticed = job.wait_for_line(LOST, witnesses, since, PATIENCE_S) - since
        for pod in witnesses:
            line = pod.find(LOST, since)
            self.busy = self.busy or (line is not None and "--busy-timeout" in line.text)
            # Who is cut off itself sees that of all the others.
            if line and pod.number != self.worker and not was_blamed(self.worker, line.text):
                self.blamed = line.text


def was_blamed(worker: int, text: str) -> bool:
    return f": worker {worker} " in text or (worker == 0 and "lost the chief" in text)


def others(job: Job, worker: int) -> list[Pod]:
    return [pod for pod in job.pods if pod.number != worker]


def kill_trainer(job: Job, fault: Fault, chance: random.Random) -> None:
    for pid in job.pods[fault.worker].trainers():
        os.kill(pid, signal.SIGKILL)
    fault.wait_until_noticed(job, job.pods)


def stop_trainer(job: Job, fault: Fault, chance: random.Random) -> None:
    """It stands still, and is not woken: its launcher has to end it."""
    for pid in job.pods[fault.worker].trainers():
        os.kill(pid, signal.SIGSTOP)
    fault.wait_until_noticed(job, job.pods)


def kill_launcher(job: Job, fault: Fault, chance: random.Random) -> None:
    job.pods[fault.worker].kill()
    time.sleep(chance.choice((0.0, 0.3, 1.0, 3.0)))
    job.start(fault.worker)
    fault.mended = time.monotonic() - job.began - fault.began
    fault.wait_until_noticed(job, others(job, fault.worker))


def kill_server(job: Job, fault: Fault, chance: random.Random) -> None:
    """The process that serves PMIx to the trainers."""
    for pid in job.pods[fault.worker].servers():
        os.kill(pid, signal.SIGKILL)
    fault.wait_until_noticed(job, job.pods)


def kill_everybody(job: Job, fault: Fault, chance: random.Random) -> None:
    """The power is gone: nobody is left to notice."""
    for pod in job.pods:
        pod.kill()
    job.start_all(chance.sample(range(len(job.pods)), len(job.pods)))
    fault.mended = time.monotonic() - job.began - fault.began


def stop_launcher(job: Job, fault: Fault, chance: random.Random) -> None:
    """A node that swaps, or a debugger."""
    pod = job.pods[fault.worker]
    pod.signal(signal.SIGSTOP)
    fault.wait_until_noticed(job, others(job, fault.worker))
    time.sleep(chance.uniform(0.0, 2.0))
    pod.signal(signal.SIGCONT)
    fault.mended = time.monotonic() - job.began - fault.began


def pause_launcher(job: Job, fault: Fault, chance: random.Random) -> None:
    """Too short to be a loss."""
    pod = job.pods[fault.worker]
    pod.signal(signal.SIGSTOP)
    time.sleep(chance.uniform(0.2, 2.0))
    pod.signal(signal.SIGCONT)


def pause_trainer(job: Job, fault: Fault, chance: random.Random) -> None:
    trainers = job.pods[fault.worker].trainers()
    for pid in trainers:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(chance.uniform(0.2, 2.0))
    for pid in trainers:
        os.kill(pid, signal.SIGCONT)


def unplug(job: Job, fault: Fault, chance: random.Random) -> None:
    host = job.pods[fault.worker].host
    host.plug(False)
    fault.wait_until_noticed(job, job.pods)
    time.sleep(chance.uniform(0.0, 2.0))
    host.plug(True)
    fault.mended = time.monotonic() - job.began - fault.began


def blink(job: Job, fault: Fault, chance: random.Random) -> None:
    """A cable that is out for less time than a loss takes."""
    host = job.pods[fault.worker].host
    host.plug(False)
    time.sleep(chance.uniform(0.2, 2.0))
    host.plug(True)


def weaken(job: Job, fault: Fault, chance: random.Random) -> None:
    """Packets are lost and late; whether a worker is taken for lost depends on luck."""
    host = job.pods[fault.worker].host
    host.weaken(chance.choice((1, 5, 10)), chance.choice((5, 20, 50)))
    time.sleep(chance.uniform(1.0, 4.0))
    host.restore()


Inflict = Callable[[Job, Fault, random.Random], None]
# And how often: two of ten are none that a job needs to notice.
FAULTS: dict[Inflict, float] = {
    kill_trainer: 2.6, kill_launcher: 2.4, kill_server: 0.4, kill_everybody: 0.2, stop_trainer: 0.8, stop_launcher: 0.8,
    unplug: 0.8, pause_trainer: 0.4, pause_launcher: 0.4, blink: 0.4, weaken: 0.8,
}


def draw(chance: random.Random) -> Inflict:
    return chance.choices(list(FAULTS), list(FAULTS.values()))[0]


def ends_generation(kind: str) -> bool:
    return kind.startswith(("kill", "stop", "unplug"))
