"""Runs a case's processes in parallel with a deadline, and makes one sample of their output.

A failure is a result too: its sample holds the line of output that explains it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import statistics
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from .cases import ARRANGEMENTS, Case, Contestant, lockstep_command, peer_commands

GRACE_SECONDS = 15.0  # time for the other workers to exit after one has failed
REPORT = '{"peer"'  # how a peer's last line begins
ERROR_LINE = re.compile(r"^[\w.]*(Error|Exception|error|terminate called)\b.*")


@dataclass
class Sample:
    examples_per_second: float = 0.0
    ms_per_step: float = 0.0
    seconds_to_first_step: float = 0.0
    peak_memory_mb: float = 0.0  # of the largest worker
    last_loss: float = 0.0
    version: str = ""
    cpu_use_before: float = 0.0  # fraction of all cores that was in use just before the run
    error: str = ""

    def as_dict(self) -> dict[str, float | str]:
        return asdict(self)


def cpu_use(seconds: float = 0.4) -> float:
    """Fraction of all cores that is in use, measured over `seconds`."""

    def read() -> tuple[int, int]:
        ticks = [int(t) for t in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return sum(ticks), ticks[3] + ticks[4]

    total, idle = read()
    time.sleep(seconds)
    total_later, idle_later = read()
    return round(1 - (idle_later - idle) / max(1, total_later - total), 3)


def error_line(output: str) -> str:
    """The last line of a process's output, preceded by the exception's line if that is a different one."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if not lines:
        return "no output"
    named = [line for line in lines if ERROR_LINE.match(line)]
    parts = [named[-1][:120]] if named and named[-1] != lines[-1] else []
    return " … ".join([*parts, lines[-1][:160]])


def sample_of_peer(outputs: list[str]) -> Sample:
    """Combines the workers' JSON lines. The job is as fast as its slowest worker."""
    reports = []
    for output in outputs:
        line = next((line for line in reversed(output.splitlines()) if line.startswith(REPORT)), None)
        if line is None:
            return Sample(error="no result line")
        reports.append(json.loads(line))
    slowest = min(reports, key=lambda r: r["examples_per_second"])
    return Sample(
        examples_per_second=slowest["examples_per_second"],
        ms_per_step=slowest["ms_per_step"],
        seconds_to_first_step=max(r["seconds_to_first_step"] for r in reports),
        peak_memory_mb=max(r["peak_memory_mb"] for r in reports),
        last_loss=reports[0]["last_loss"],
        version=reports[0]["version"],
    )


def sample_of_history(history: dict[str, Any], batch: int) -> Sample:
    """Reads Lockstep's history.json; its first epoch is the warm-up."""
    epochs = history["epochs"][1:]
    if not epochs:
        return Sample(error="history.json holds fewer than two epochs")
    rate = statistics.median(epoch["examples_per_second"] for epoch in epochs)
    timing = history.get("timing", {})
    return Sample(
        examples_per_second=rate,
        ms_per_step=1000 * batch / rate,
        seconds_to_first_step=timing.get("seconds_to_first_step") or 0.0,  # null if unknown
        peak_memory_mb=timing.get("peak_memory_mb") or 0.0,
        last_loss=epochs[-1]["loss"],
    )


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()


def has_reported(output: IO[str]) -> bool:
    """Whether the child has printed its report. Uses pread, because the child shares the file's offset."""
    lines = os.pread(output.fileno(), 1 << 20, 0).splitlines(keepends=True)
    return any(line.startswith(REPORT.encode()) and line.endswith(b"\n") for line in lines)


def run_together(
    commands: list[list[str]], environment: dict[str, str], timeout: float, until_reported: bool = False
) -> tuple[list[str], list[str], str]:
    """Runs the commands in parallel. Returns their stdout, their stderr, and what went wrong or "".

    With `until_reported` they are killed once all have printed their reports: TensorFlow takes seconds to exit."""
    files = [(tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")) for _ in commands]
    children = [
        subprocess.Popen(
            command, stdout=out, stderr=err, stdin=subprocess.DEVNULL, env=environment, start_new_session=True
        )
        for command, (out, err) in zip(commands, files)
    ]
    deadline = time.monotonic() + timeout
    problem, reported = "", False
    try:
        while any(child.poll() is None for child in children):
            if until_reported and all(has_reported(out) for out, _ in files):
                reported = True
                break
            failed = [child for child in children if child.returncode not in (None, 0)]
            if failed and not problem:
                problem = "failed"
                deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
            if time.monotonic() > deadline:
                problem = problem or f"timed out after {timeout:.0f} s"
                break
            time.sleep(0.05)
    finally:
        for child in children:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    if not problem and not reported and any(child.returncode for child in children):
        problem = "failed"
    texts = []
    for pair in files:
        for file in pair:
            file.seek(0)
        texts.append(tuple(file.read() for file in pair))
        for file in pair:
            file.close()
    if problem == "failed":
        # Quote the worker that failed first, not one that was killed above.
        codes = [child.returncode for child in children]
        first = next((i for i, code in enumerate(codes) if code not in (0, -signal.SIGKILL)), 0)
        problem = f"exit {codes[first]}: {error_line(texts[first][1] or texts[first][0])}"
    return [out for out, _ in texts], [err for _, err in texts], problem


@dataclass(frozen=True)
class Runner:
    """Runs cases on this machine."""

    python: Path
    binaries: Path
    data_dir: str
    cores: list[int]
    timeout: float

    def run(self, contestant: Contestant, case: Case, steps: int) -> Sample:
        busy = cpu_use()
        try:
            sample = self.run_peer(contestant, case, steps) if contestant.program else self.run_lockstep(case, steps)
        except (OSError, KeyError, ValueError) as error:
            sample = Sample(error=f"{type(error).__name__}: {error}")
        sample.cpu_use_before = busy
        return sample

    def environment(self, case: Case) -> dict[str, str]:
        threads = str(ARRANGEMENTS[case.arrangement].threads)
        extra = {"OMP_NUM_THREADS": threads, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"}
        return {**{k: v for k, v in os.environ.items() if k != "TF_CONFIG"}, **extra}

    def run_peer(self, contestant: Contestant, case: Case, steps: int) -> Sample:
        addresses = [f"127.0.0.1:{port}" for port in free_ports(ARRANGEMENTS[case.arrangement].workers)]
        commands = peer_commands(self.python, contestant, case, steps, self.data_dir, self.cores, addresses)
        outputs, _, problem = run_together(commands, self.environment(case), self.timeout, until_reported=True)
        return Sample(error=problem) if problem else sample_of_peer(outputs)

    def run_lockstep(self, case: Case, steps: int) -> Sample:
        program = self.binaries / case.model
        if not program.is_file():
            remedy = "cmake --preset release && cmake --build --preset release"
            return Sample(error=f"{os.path.relpath(program)} is not built: {remedy}")
        environment = self.environment(case)
        if os.geteuid() == 0:
            environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        with tempfile.TemporaryDirectory(prefix="lockstep-compare-") as folder:
            command = lockstep_command(self.binaries, case, steps, self.data_dir, self.cores, Path(folder))
            _, _, problem = run_together([command], environment, self.timeout)
            if problem:
                return Sample(error=problem)
            history = Path(folder) / "history.json"
            if not history.is_file():
                return Sample(error=f"{case.model} wrote no history.json into its --model-dir")
            return sample_of_history(json.loads(history.read_text()), case.batch)
