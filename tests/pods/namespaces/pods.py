"""A job of pods. Each runs the launcher on its own host and is killed, stopped and restarted as by Kubernetes. All
output is recorded with timestamps."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "programs"))
from launch_test import children, is_there  # noqa: E402
from network import Host, Network  # noqa: E402
from support import clean_environment, program  # noqa: E402

PORT = 5000
TIME_LIMIT_S = 60.0
STANDS = r"Lockstep .* workers"  # printed by the chief's trainer once the MPI world exists
LOST = r"generation \d+ ended: |lost the chief"

Found = TypeVar("Found")


class Hang(AssertionError):
    """Expected output did not appear."""


def wait_for(condition: Callable[[], Found], what: Callable[[], str], limit: float = TIME_LIMIT_S) -> Found:
    deadline = time.monotonic() + limit
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise Hang(f"timed out after {limit:.0f} s waiting for {what()}")
        time.sleep(0.005)
    return found


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""  # the process has exited


@dataclass(frozen=True)
class Line:
    when: float  # time.monotonic()
    text: str


@dataclass
class Pod:
    number: int
    host: Host
    scratch: Path
    process: subprocess.Popen[bytes] | None = None
    lines: list[Line] = field(default_factory=list)  # output of all of its launchers, in order
    started: float = 0.0  # when the last launcher was started
    _readers: list[threading.Thread] = field(default_factory=list)

    def start(self, command: Sequence[str], environment: dict[str, str]) -> None:
        assert self.process is None or self.process.poll() is not None
        temporary = tempfile.mkdtemp(prefix=f"{self.host.name}-", dir=self.scratch)  # each container starts with an empty /tmp
        self.started = time.monotonic()
        self.process = subprocess.Popen(self.host.command(command),
                                        env=clean_environment(environment | {"TMPDIR": temporary}), cwd=self.scratch,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self._readers.append(threading.Thread(target=self._read, args=(self.process,), daemon=True))
        self._readers[-1].start()

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.lines.append(Line(time.monotonic(), line.decode(errors="replace").rstrip()))
        process.stdout.close()

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def code(self) -> int | None:
        return None if self.process is None else self.process.poll()

    def trainers(self) -> list[int]:
        return list(children(self.process.pid).values()) if self.process is not None and self.running else []

    def servers(self) -> list[int]:
        """The process ids of PMIx servers."""
        return [pid for pid in self.host.processes() if b"pmix-server" in command_line(pid)]

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """Kills the launcher with SIGKILL; its trainers end with it."""
        if self.process is None or not self.running:
            return
        trainers = self.trainers()
        self.process.kill()
        self.process.wait()
        wait_for(lambda: not any(is_there(pid) for pid in trainers),
                 lambda: f"end of the trainers of {self.host.name}, whose launcher was killed", 10)

    def find(self, pattern: str, since: float = 0.0) -> Line | None:
        return next((line for line in list(self.lines) if line.when >= since and re.search(pattern, line.text)), None)

    def text(self) -> str:
        return "".join(f"  {line.when - self.started:9.3f} {line.text}\n" for line in list(self.lines))

    def join(self) -> None:
        for reader in self._readers:
            reader.join(5)


class Job:
    """Pods of one TF_CONFIG (three by default) and the program that they run."""

    def __init__(self, network: Network, scratch: Path, command: Sequence[object], workers: int = 3,
                 options: Sequence[object] = (), **environment: str) -> None:
        self.scratch = Path(tempfile.mkdtemp(prefix="job-", dir=scratch))
        self.model = self.scratch / "model"
        self.pods = [Pod(number, host, self.scratch) for number, host in enumerate(network.hosts[:workers])]
        recorded = "LOCKSTEP_TEST_HISTORY" in environment  # by launchers, too
        launcher = program("lockstep_with_faults" if recorded else "lockstep")
        self._command = [launcher, "launch", *map(str, options), "--", *map(str, command)]
        # Pods do not know that they share cores, so waiting ranks must yield.
        self._environment = {"LOCKSTEP_JOB_TOKEN": "a secret", "LOCKSTEP_MODEL_DIR": str(self.model),
                             "OMPI_MCA_mpi_yield_when_idle": "1"} | environment
        self.began = time.monotonic()

    def start(self, number: int, *, tf_config: str = "", **environment: str) -> None:
        addresses = [f"{pod.host.name}:{PORT}" for pod in self.pods]
        task = {"type": "worker", "index": number}
        config = tf_config or json.dumps({"cluster": {"worker": addresses}, "task": task})
        self.pods[number].start(self._command, {"TF_CONFIG": config} | self._environment | environment)

    def start_all(self, order: Sequence[int] = ()) -> None:
        for number in order or range(len(self.pods)):
            self.start(number)

    def remove_faults(self) -> None:
        """What is started from now on has no fault points that act and no calls that fail."""
        faults = ("LD_PRELOAD", "LOCKSTEP_TEST_FAULT")
        self._environment = {name: value for name, value in self._environment.items() if not name.startswith(faults)}

    @property
    def chief(self) -> Pod:
        return self.pods[0]

    def backups(self) -> dict[str, float]:
        """Modification times by name."""
        found: dict[str, float] = {}
        for path in self.model.glob("backup/fit-1-step-*.h5"):
            try:
                found[path.name] = path.stat().st_mtime
            except OSError:
                pass  # replaced by a newer backup
        return found

    def wait_for_backup(self, since: float = 0.0, limit: float = TIME_LIMIT_S) -> float:
        """Waits for a backup written after this time.monotonic(); returns when it was found."""
        wall = time.time() - time.monotonic() + since
        wait_for(lambda: any(when > wall for when in self.backups().values()) or not self.chief.running,
                 lambda: f"backup since {since - self.began:.3f}" + self.text(), limit)
        return time.monotonic()

    def wait_for_line(self, pattern: str, pods: Sequence[Pod], since: float = 0.0,
                      limit: float = TIME_LIMIT_S) -> float:
        """Waits for the line on all of these pods; returns when the last one printed it."""
        def all_said() -> list[Line]:
            found = [line for pod in pods if (line := pod.find(pattern, since))]
            return found if len(found) == len(pods) else []

        return max(line.when for line in wait_for(all_said, lambda: f"'{pattern}' on all workers" + self.text(), limit))

    def wait(self, limit: float = 5 * TIME_LIMIT_S) -> list[int | None]:
        """Waits until all pods have ended. Returns their exit codes."""
        wait_for(lambda: not any(pod.running for pod in self.pods), lambda: "end of the job" + self.text(), limit)
        for pod in self.pods:
            pod.join()
        return [pod.code() for pod in self.pods]

    def end(self) -> None:
        """Kills all processes that still run."""
        for pod in self.pods:
            if pod.process is not None:
                pod.process.kill()
                pod.process.wait()
            for pid in pod.host.processes():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass

    def history(self) -> dict[str, Any]:
        read: dict[str, Any] = json.loads((self.model / "history.json").read_text())
        return read

    def text(self) -> str:
        """All output, to find the cause of a failure."""
        everything = [(line.when, pod.host.name, line.text) for pod in self.pods for line in list(pod.lines)]
        lines = [f"{when - self.began:9.3f} {name}: {text}" for when, name, text in sorted(everything)
                 if not re.search("[━│─┃]|params:|^Epoch |^Model: |ms/step", text)]
        return "\n" + "\n".join(lines) + f"\nexit codes: {[pod.code() for pod in self.pods]}\n"


def difference(left: Path, right: Path) -> str:
    """The difference between two model files, bit by bit; empty if there is none."""
    compared = subprocess.run([program("lockstep"), "inspect", "--compare", str(left), str(right)], capture_output=True,
                              text=True)
    return "" if compared.returncode == 0 else compared.stdout + compared.stderr


def learned(history: dict[str, Any]) -> list[dict[str, Any]]:
    """The parts of a history that do not depend on the clock."""
    clocks = ("seconds", "examples_per_second")
    return [{k: v for k, v in epoch.items() if k not in clocks} for epoch in history["epochs"]]
