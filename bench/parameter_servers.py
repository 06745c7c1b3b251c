#!/usr/bin/env python3
"""Measures parameter servers against TensorFlow's ParameterServerStrategy: images per second of keras_mnist's model.

    PYTHON bench/parameter_servers.py BUILD_DIR [--workers 2] [--servers 1] [--repeats 3] [--save [FILE]]

PYTHON has TensorFlow and tf_keras (bench/peers/requirements.txt). All tasks of a job share the same two cores. A worker's
batch has 64 examples; Lockstep's steps are those of all workers, or asynchronous as TensorFlow's are. Contestants take turns;
a run's speed is that of its median epoch without the first, and a figure the median of the runs. Asked: 4 times
TensorFlow's. On two quiet cores it takes some four minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PEERS = ROOT / "bench" / "peers"
sys.path.insert(0, str(PEERS))

from harness.children import cpu_use, error_line  # noqa: E402
from harness.results import lockstep_version, new_path, this_machine, write_atomically  # noqa: E402
from harness.tables import QUIET  # noqa: E402

CORES = 2
BATCH = 64  # of a worker
EPOCHS = 5  # with the first, which is not counted
ASKED = 4.0
LIMIT_S = 300  # of a run; a hang, not a measure of speed
TENSORFLOW = "TensorFlow, asynchronous"
MODES = {"Lockstep, synchronous": "synchronous", "Lockstep, asynchronous": "asynchronous"}


@dataclass(frozen=True)
class Setup:
    build: Path
    workers: int
    servers: int
    steps: int  # of an epoch, for each worker


@dataclass
class Run:
    contestant: str
    images_per_second: float = 0.0
    epoch_seconds: list[float] = field(default_factory=list)
    cpu_use_before: float = 0.0  # fraction of all cores that was in use just before the run
    error: str = ""


def free_addresses(count: int) -> list[str]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"localhost:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    return addresses


def run_tasks(tasks: dict[str, int], command: list[str], variables: dict[str, str]) -> tuple[int, str, str]:
    """Run a task of each kind and index; return the first one's exit code and what it wrote."""
    addresses = free_addresses(sum(tasks.values()))
    cluster = {kind: [addresses.pop() for _ in range(count)] for kind, count in tasks.items()}
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))[:CORES]))
    given = {name: value for name, value in os.environ.items() if not name.startswith("LOCKSTEP_")}
    started = []
    with tempfile.TemporaryDirectory() as folder:
        for kind, count in reversed(tasks.items()):
            for index in range(count):
                config = json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})
                files = [(Path(folder) / f"{kind}{index}.{name}").open("w+") for name in ("out", "errors")]
                started.append((kind, index, files, subprocess.Popen(
                    ["taskset", "-c", cores, *command], env=given | variables | {"TF_CONFIG": config}, cwd=folder,
                    stdout=files[0], stderr=files[1], start_new_session=True,
                )))  # fmt: skip
        first = next(iter(tasks))
        kind, index, files, process = next(each for each in started if each[:2] == (first, 0))
        try:
            code = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            code = -1
        for _, _, _, each in started:
            if code != 0 or "LOCKSTEP_JOB_TOKEN" not in variables:  # Lockstep's end by themselves
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(each.pid, signal.SIGKILL)
            each.wait()
        written = []
        for file in files:
            file.seek(0)
            written.append(file.read())
        for _, _, opened, _ in started:
            for file in opened:
                file.close()
    return code, written[0], written[1]


def run_lockstep(setup: Setup, mode: str) -> tuple[list[float], str]:
    with tempfile.TemporaryDirectory() as model_dir:
        command = [
            str(setup.build / "bin" / "lockstep"), "launch", "--max-restarts", "0", "--",
            str(setup.build / "bin" / "keras_mnist"), "--strategy", "parameter-server", "--ps-mode", mode, "--model-dir",
            model_dir, "--global-batch-size", str(BATCH * setup.workers), "--steps-per-epoch", str(setup.steps),
            "--epochs", str(EPOCHS), "--backup-save-freq", "never",
        ]  # fmt: skip
        tasks = {"worker": setup.workers, "ps": setup.servers}
        code, _, errors = run_tasks(tasks, command, {"LOCKSTEP_JOB_TOKEN": "b" * 32, "OMP_NUM_THREADS": "1"})
        if code != 0:
            return [], f"exit {code}: {error_line(errors)}"
        history = json.loads((Path(model_dir) / "history.json").read_text())
    return [epoch["seconds"] for epoch in history["epochs"]], ""


def run_tensorflow(setup: Setup) -> tuple[list[float], str]:
    steps = setup.steps * setup.workers  # each is one worker's
    command = [sys.executable, "-W", "ignore", str(PEERS / "train_parameter_server.py"), str(BATCH), str(steps), str(EPOCHS)]
    tasks = {"chief": 1, "worker": setup.workers, "ps": setup.servers}
    variables = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "GRPC_FAIL_FAST": "use_caller"}
    code, output, errors = run_tasks(tasks, command, variables)
    results = [line for line in output.splitlines() if line.startswith("{")]
    if code != 0 or not results:
        return [], f"exit {code}: {error_line(errors)}"
    return json.loads(results[-1])["epoch_seconds"], ""


def median_of(runs: list[Run], contestant: str) -> float | None:
    speeds = [run.images_per_second for run in runs if run.contestant == contestant and not run.error]
    return statistics.median(speeds) if speeds else None


def table(runs: list[Run]) -> str:
    base = median_of(runs, TENSORFLOW)
    lines = [f"{'':26}{'images/s':>10}{'slowest':>10}{'fastest':>10}{'ratio':>8}"]
    for contestant in (TENSORFLOW, *MODES):
        speeds = [run.images_per_second for run in runs if run.contestant == contestant and not run.error]
        if not speeds:
            lines.append(f"{contestant:26}no figure")
            continue
        median = statistics.median(speeds)
        ratio = f"{median / base:8.2f}" if base and contestant != TENSORFLOW else ""
        missed = " !" if ratio and median / (base or 1) < ASKED else ""
        lines.append(f"{contestant:26}{median:10,.0f}{min(speeds):10,.0f}{max(speeds):10,.0f}{ratio}{missed}")
    return "\n".join(lines)


def describe(runs: list[Run], setup: Setup) -> dict[str, Any]:
    """Return what --save writes."""
    machine = this_machine()
    return {
        "machine": machine.cpu, "flags": machine.flags, "cores": CORES, "lockstep": lockstep_version(ROOT),
        "workers": setup.workers, "servers": setup.servers, "batch": BATCH, "steps": setup.steps,
        "images_per_second": {name: median_of(runs, name) for name in (TENSORFLOW, *MODES)},
        "runs": [asdict(run) for run in runs],
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path, metavar="BUILD_DIR")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100, help="of an epoch, for each worker [100]")
    parser.add_argument("--save", nargs="?", const=Path(), type=Path, metavar="FILE")
    given = parser.parse_args()
    if not (given.build / "bin" / "keras_mnist").is_file():
        parser.error(f"{given.build}/bin/keras_mnist is missing: build it first")
    if given.save == Path():
        given.save = new_path(ROOT / "bench" / "results", this_machine(), time.strftime("%Y-%m-%d"), "parameter-servers")
    setup = Setup(given.build.resolve(), given.workers, given.servers, given.steps)
    runs: list[Run] = []
    for turn in range(given.repeats):
        for contestant in (TENSORFLOW, *MODES):
            run = Run(contestant, cpu_use_before=cpu_use())
            mode = MODES.get(contestant)
            seconds, run.error = run_tensorflow(setup) if mode is None else run_lockstep(setup, mode)
            if not run.error:
                run.epoch_seconds = [round(each, 5) for each in seconds]
                images = BATCH * setup.workers * setup.steps
                run.images_per_second = round(images / statistics.median(seconds[1:]), 1)
            runs.append(run)
            said = run.error or f"{run.images_per_second:,.0f} images/s"
            print(f"turn {turn + 1}: {contestant}: {said}", file=sys.stderr, flush=True)
        if given.save is not None:
            write_atomically(given.save, describe(runs, setup))
    print(f"\nkeras_mnist, {setup.workers} workers of {BATCH}, {setup.servers} ps, {CORES} cores\n{table(runs)}")
    disturbed = sum(run.cpu_use_before > QUIET for run in runs)
    if disturbed:
        print(f"Other programs used the cores just before {disturbed} of {len(runs)} runs.")
    return int(any(run.error for run in runs))


if __name__ == "__main__":
    sys.exit(main())
