"""The fault matrix: moments of a job's life, and what happens then. A cell is a pair of them.

A trainer is held at a named point (tests/faults/fault_points.cpp), the fault is inflicted, and the trainer goes on, if
it still lives. What Kubernetes or an operator would mend is then mended: launchers that died start again, networks and
disks heal."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pods import Job, Pod, wait_for
from network import Host, run

STEPS = (3, 20)  # epochs and steps of a job
ALL_STEPS = STEPS[0] * STEPS[1]
# Data-parallel ranks exchange requests to stop in every step; others, where steps are short, every 256 steps.
EVERY_STEP = ("--parallelism", "data")


@dataclass(frozen=True)
class Moment:
    point: str
    first: int = 1  # the point is held when a process reaches it for the first-th to last-th time
    last: int = 1
    chief: bool = False  # only the chief gets there
    options: tuple[object, ...] = ()  # of `lockstep train`
    workers: int = 2
    generation: int = 1
    elastic: str = ""  # "shrink", "grow": what the job does before
    leaves: bool = False  # a worker is told to leave first


MOMENTS: dict[str, Moment] = {
    "start": Moment("start"),
    "MPI_Init": Moment("mpi_init"),
    "step": Moment("step", 2, ALL_STEPS * 3 // 4),
    "write": Moment("write", 1, 4, chief=True),
    "fsync": Moment("fsync", 1, 4, chief=True),
    "rename": Moment("rename", 1, 4, chief=True),
    "gather": Moment("gather", 1, 8, options=("--parallelism", "tensor")),
    "last steps": Moment("step", ALL_STEPS - 4, ALL_STEPS),
    "verdict": Moment("finished"),
    "exit": Moment("clean", chief=True),
    "shrink": Moment("mpi_init", workers=3, generation=2, elastic="shrink", options=EVERY_STEP),
    "grow": Moment("mpi_init", workers=3, generation=3, elastic="grow", options=EVERY_STEP),
    "leave": Moment("leave", leaves=True, options=EVERY_STEP),
}


@dataclass
class Scene:
    """A job that stands at a moment."""

    job: Job
    chance: random.Random
    held: int  # the worker whose trainer is held
    release: Callable[[], None]
    disk: Path

    @property
    def read_only(self) -> Path:
        """While it exists, the disk is read-only."""
        return self.disk.with_name("read_only")

    @property
    def kill_reader(self) -> Path:
        """If it exists, the next process that reads a backup dies."""
        return self.disk.with_name("kill_reader")

    def any_pod(self) -> Pod:
        return self.chance.choice([pod for pod in self.job.pods if pod.running] or self.job.pods)


def kill(pids: list[int], number: signal.Signals = signal.SIGKILL) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def kill_trainer(scene: Scene) -> None:
    kill(scene.any_pod().trainers())


def kill_launcher(scene: Scene) -> None:
    scene.any_pod().kill()


def kill_server(scene: Scene) -> None:
    kill([pid for pod in scene.job.pods for pid in pod.servers()][:1])


def kill_chiefs_trainer(scene: Scene) -> None:
    kill(scene.job.chief.trainers())


def kill_chiefs_launcher(scene: Scene) -> None:
    scene.job.chief.kill()


def kill_two(scene: Scene) -> None:
    """Trainers or launchers of two pods, the same instant."""
    for pod in scene.chance.sample(scene.job.pods, 2):
        if scene.chance.random() < 0.5:
            kill(pod.trainers())
        else:
            pod.kill()


def stop(scene: Scene, pids: list[int], seconds: float) -> None:
    kill(pids, signal.SIGSTOP)
    scene.release()
    time.sleep(seconds)
    kill(pids, signal.SIGCONT)


def stop_trainer(scene: Scene) -> None:
    stop(scene, scene.any_pod().trainers(), 20)


def stop_launcher(scene: Scene) -> None:
    process = scene.any_pod().process
    stop(scene, [process.pid] if process else [], 20)


def lose_packets(sender: Host, receiver: Host) -> Callable[[], None]:
    """Packets in this direction go nowhere. Returns what heals it."""
    words = ("-s", sender.address, "-j", "DROP")
    run("ip", "netns", "exec", receiver.namespace, "iptables", "-A", "INPUT", *words)
    return lambda: run("ip", "netns", "exec", receiver.namespace, "iptables", "-D", "INPUT", *words) and None


def part(scene: Scene, one: Host, other: Host, both: bool) -> None:
    heal = [lose_packets(one, other)] + ([lose_packets(other, one)] if both else [])
    scene.release()
    time.sleep(scene.chance.choice((1.0, 8.0)))
    for each in heal:
        each()


def part_one_way(scene: Scene) -> None:
    one, other = scene.chance.sample(scene.job.pods, 2)
    part(scene, one.host, other.host, both=False)


def part_pair(scene: Scene) -> None:
    """Workers that are not the chief, if there are two."""
    one, other = scene.job.pods[-2:]
    part(scene, one.host, other.host, both=True)


def fill_disk(scene: Scene) -> None:
    """ENOSPC for three seconds."""
    filler = scene.disk / "filler"
    with filler.open("wb") as file:
        try:
            while True:
                file.write(b"0" * 65536)
                file.flush()
        except OSError:
            pass
    scene.release()
    time.sleep(3)
    filler.unlink()


def make_read_only(scene: Scene) -> None:
    """A read-only disk for three seconds, as after an error of the disk. By a library that lets calls fail: `mount`
    refuses to remount a file system read-only while a file is open for writing, as the record of its owner is."""
    scene.read_only.touch()
    scene.release()
    time.sleep(3)
    scene.read_only.unlink()


def limit_descriptors(scene: Scene) -> None:
    """No process of the pod may open another file, until its launcher starts anew."""
    pod = scene.any_pod()
    pids = [*pod.trainers(), *([pod.process.pid] if pod.process else [])]
    for pid in pids:
        subprocess.run(["prlimit", "--pid", str(pid), "--nofile=8:8"], capture_output=True)
    scene.release()
    time.sleep(4)
    pod.kill()


def limit_pids(scene: Scene) -> bool:
    """For four seconds no process of the pod may fork. Its trainer dies, so its launcher tries to."""
    pod = scene.any_pod()
    own_hierarchy = Path("/sys/fs/cgroup/pids")  # of cgroups v1; those of v2 have one for all controllers
    parent = own_hierarchy if own_hierarchy.exists() else own_hierarchy.parent
    group = parent / f"lockstep-{pod.host.namespace}"
    try:
        group.mkdir(exist_ok=True)
        for pid in pod.host.processes():
            (group / "cgroup.procs").write_text(str(pid))
        (group / "pids.max").write_text("1")
    except OSError:
        return False
    kill(pod.trainers())
    scene.release()
    time.sleep(4)
    (group / "pids.max").write_text("max")
    while members := (group / "cgroup.procs").read_text().split():
        for pid in members:
            try:
                (parent / "cgroup.procs").write_text(pid)
            except ProcessLookupError:
                pass
    group.rmdir()
    return True


def kill_reader(scene: Scene) -> bool:
    """A restart, in which the process that reads the backup is killed once, as by the kernel for want of memory."""
    scene.kill_reader.touch()
    kill(scene.job.chief.trainers())
    scene.release()
    try:
        wait_for(scene.kill_reader.with_name("kill_reader.done").exists, lambda: "a reader", 20)
    except AssertionError:
        return False  # there was no backup
    finally:
        scene.kill_reader.unlink(missing_ok=True)
    return True


Inflict = Callable[[Scene], bool | None]  # False: the fault could not be inflicted
FAULTS: dict[str, Inflict] = {
    "kill trainer": kill_trainer, "kill launcher": kill_launcher, "kill server": kill_server,
    "kill chief's trainer": kill_chiefs_trainer, "kill chief's launcher": kill_chiefs_launcher, "kill two": kill_two,
    "STOP trainer": stop_trainer, "STOP launcher": stop_launcher, "one-way partition": part_one_way,
    "pairwise partition": part_pair, "ENOSPC": fill_disk, "read-only": make_read_only, "descriptors": limit_descriptors,
    "pids": limit_pids, "kill reader": kill_reader,
}
# Errors of one system call on the model directory, in one process; they have no moment of their own but "write".
CALLS: dict[str, tuple[str, int]] = {"EIO at fsync": ("fsync", 5), "ESTALE at rename": ("rename", 116),
                                     "ESTALE at open": ("open", 116), "EIO at write": ("write", 5)}


def cells() -> list[tuple[str, str]]:
    found = [(moment, fault) for moment in MOMENTS for fault in FAULTS]
    return found + [("write", fault) for fault in CALLS]
