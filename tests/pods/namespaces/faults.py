"""Faults of pods. Each injects a fault, waits until all workers have reported it, and then repairs what Kubernetes or
an operator would repair."""

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pods import LOST, Job, Pod

BUSY_S = 20  # --busy-timeout: a rank that loads or saves may be silent for longer than one that computes
DETECTION_LIMIT_S = 40.0  # generous: detection should take 5 s


@dataclass
class Fault:
    kind: str
    worker: int
    trains: bool  # all workers trained; otherwise a world may be forming, and the fault may pass unnoticed
    began: float  # seconds since the start of the job
    noticed: float | None = None  # seconds until all workers had reported it
    busy: bool = False  # the worker was not computing a step
    blamed: str = ""  # the worker that was blamed, if it was a different one
    mended: float = 0.0  # seconds until the test restarted, resumed or reconnected the pod
    next_step: float | None = None  # seconds from the fault to the next new backup of the next generation

    def wait_until_noticed(self, job: Job, witnesses: Sequence[Pod]) -> None:
        since = job.began + self.began
        if not self.trains:
            return
        self.noticed = job.wait_for_line(LOST, witnesses, since, DETECTION_LIMIT_S) - since
        for pod in witnesses:
            line = pod.find(LOST, since)
            self.busy = self.busy or (line is not None and "--busy-timeout" in line.text)
            # A disconnected pod reports the loss of the others.
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
    """The trainer is stopped and not continued: its launcher must end it."""
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
    """Kills the trainers' PMIx server."""
    for pid in job.pods[fault.worker].servers():
        os.kill(pid, signal.SIGKILL)
    fault.wait_until_noticed(job, job.pods)


def kill_everybody(job: Job, fault: Fault, chance: random.Random) -> None:
    """Power loss: kills all processes of the pod at once."""
    for pod in job.pods:
        pod.kill()
    job.start_all(chance.sample(range(len(job.pods)), len(job.pods)))
    fault.mended = time.monotonic() - job.began - fault.began


def stop_launcher(job: Job, fault: Fault, chance: random.Random) -> None:
    """Stops the launcher, as on a node that swaps or under a debugger."""
    pod = job.pods[fault.worker]
    pod.signal(signal.SIGSTOP)
    fault.wait_until_noticed(job, others(job, fault.worker))
    time.sleep(chance.uniform(0.0, 2.0))
    pod.signal(signal.SIGCONT)
    fault.mended = time.monotonic() - job.began - fault.began


def pause_launcher(job: Job, fault: Fault, chance: random.Random) -> None:
    """Stops the launcher for too short a time to count as a loss."""
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
    """A cable that is unplugged for less than the heartbeat timeout."""
    host = job.pods[fault.worker].host
    host.plug(False)
    time.sleep(chance.uniform(0.2, 2.0))
    host.plug(True)


def weaken(job: Job, fault: Fault, chance: random.Random) -> None:
    """Packets are lost and delayed; whether a worker counts as lost depends on chance."""
    host = job.pods[fault.worker].host
    host.weaken(chance.choice((1, 5, 10)), chance.choice((5, 20, 50)))
    time.sleep(chance.uniform(1.0, 4.0))
    host.restore()


Inflict = Callable[[Job, Fault, random.Random], None]
# With weights: two in ten are faults that the job need not detect.
FAULTS: dict[Inflict, float] = {
    kill_trainer: 2.6, kill_launcher: 2.4, kill_server: 0.4, kill_everybody: 0.2, stop_trainer: 0.8, stop_launcher: 0.8,
    unplug: 0.8, pause_trainer: 0.4, pause_launcher: 0.4, blink: 0.4, weaken: 0.8,
}


def draw(chance: random.Random) -> Inflict:
    return chance.choices(list(FAULTS), list(FAULTS.values()))[0]


def ends_generation(kind: str) -> bool:
    return kind.startswith(("kill", "stop", "unplug"))
