#!/usr/bin/env python3
"""Measures the Python package: the Keras engine on two workers, its peers, and lockstep.fit against lockstep train.

    PYTHON bench/python_engines.py BUILD_DIR [--only scaling peers fit] [--repeats 3] [--save [FILE]]

PYTHON has Keras, TensorFlow, PyTorch and JAX. BUILD_DIR has bin/lockstep; the package is in BUILD_DIR-python/site,
where tests/python/run.sh puts it. On two quiet cores the whole should take about 12 minutes: 24 runs of ResNet-20 of some 20
seconds each, most of it imports and compilation, and 18 of keras_mnist's model of some 10 seconds.

scaling   ResNet-20 on CIFAR-10's shapes, float32: a script with lockstep.init, DistributedOptimizer, shard and Keras'
          fit under `lockstep launch`, on each backend with 1 and 2 workers. Asked: 2 workers are 1.6 times as fast.
peers     The same job and cores: PyTorch's DistributedDataParallel around the same Keras model, and
          keras.distribution.DataParallel on JAX, with 2 processes. Asked: Lockstep is at least as fast on that backend.
fit       keras_mnist's model by lockstep.fit(engine="native"), and the saved model by `lockstep train`, with the same
          data, batch and seed. Asked: lockstep.fit is at most 5 % slower. Its workers choose the parallelism by rules,
          so `lockstep train --deterministic`, which does too, is beside it.

Programs are whole processes that take turns, with one core for each worker. Keras workers are pinned each to its own
core, native ones together to all of theirs. A run's speed is that of its median epoch; the first is not counted. A
figure is the median of the runs, with the slowest and the fastest. In `fit` an epoch lasts from the line that a program
prints at the end of one epoch to the next such line, so backups and callbacks count. --save writes
bench/results/python-engines-CPU-DATE.json, or FILE, after each turn.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
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

ITEMS = ("scaling", "peers", "fit")
BACKENDS = ("jax", "torch", "tensorflow")
WORKERS = (1, 2)
BATCH = 128  # on all workers together
SEED = 42
LIMIT_S = 600  # of a run; a hang, not a measure of speed
ASKED = {"scaling": 1.6, "peers": 1.0, "fit": 0.95}
ENGINE = "train_lockstep_keras.py"
PEER_PROGRAMS = {
    "DistributedDataParallel": ("torch", "train_keras_ddp.py"),
    "keras.distribution": ("jax", "train_keras_distribution.py"),
}
FIT, TRAIN, DETERMINISTIC = "lockstep.fit", "lockstep train", "lockstep train --deterministic"
END_OF_EPOCH = re.compile(r"\d+/\d+ - .*loss: ([\d.e+-]+|nan)")


@dataclass(frozen=True)
class Contestant:
    name: str
    workers: int
    backend: str = "jax"
    program: str = ""  # of bench/peers, for `lockstep launch`; empty in the item fit
    options: tuple[str, ...] = ()


@dataclass
class Run:
    contestant: str
    workers: int
    images_per_second: float = 0.0
    epoch_seconds: list[float] = field(default_factory=list)  # in fit from the second on, else the first is not counted
    loss: float = 0.0
    peak_memory_mb: float = 0.0  # of the chief; 0 in the item fit
    cpu_use_before: float = 0.0  # fraction of all cores that was in use just before the run
    error: str = ""


@dataclass(frozen=True)
class Setup:
    build: Path
    cores: tuple[int, ...]
    steps: int
    epochs: int
    fit_steps: int
    fit_epochs: int

    def environment(self, backend: str) -> dict[str, str]:
        """One thread for each worker; the launcher says the same to several workers of one machine."""
        given = {name: value for name, value in os.environ.items() if name not in ("TF_CONFIG", "LOCKSTEP_JOB_TOKEN")}
        threads = dict.fromkeys(("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "PJRT_NPROC"), "1")
        site = self.build.with_name(self.build.name + "-python") / "site"
        return given | threads | {
            "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "",
            "PATH": f"{self.build / 'bin'}:{os.environ.get('PATH', '')}", "PYTHONPATH": str(site),
        }  # fmt: skip

    def on_cores(self, workers: int, *command: object) -> list[str]:
        return ["taskset", "-c", ",".join(map(str, self.cores[:workers])), *map(str, command)]


def run_engine(setup: Setup, contestant: Contestant, folder: Path) -> Run:
    """Run a program of bench/peers on workers of one core each; the chief's last line is its result."""
    run = Run(contestant.name, contestant.workers)
    command = setup.on_cores(
        contestant.workers, "lockstep", "launch", "--max-restarts", 0, "--workers", contestant.workers, "--",
        sys.executable, "-W", "ignore", PEERS / contestant.program, folder, BATCH, setup.steps, setup.epochs,
        *contestant.options,
    )  # fmt: skip
    try:
        ended = subprocess.run(command, env=setup.environment(contestant.backend), capture_output=True, text=True,
                               timeout=LIMIT_S)  # fmt: skip
    except subprocess.TimeoutExpired:
        run.error = f"timed out after {LIMIT_S} s"
        return run
    results = [line for line in ended.stdout.splitlines() if line.startswith('{"epoch_seconds"')]
    if ended.returncode != 0 or not results:
        run.error = f"exit {ended.returncode}: {error_line(ended.stderr)}"
        return run
    result = json.loads(results[-1])
    run.epoch_seconds = [round(seconds, 5) for seconds in result["epoch_seconds"]]
    run.images_per_second = round(BATCH * setup.steps / statistics.median(run.epoch_seconds[1:]), 1)
    run.loss, run.peak_memory_mb = result["loss"], round(result["peak_memory_mb"], 1)
    return run


def fit_command(setup: Setup, contestant: Contestant, folder: Path, output: Path) -> list[str]:
    workers = contestant.workers
    if contestant.name == FIT:
        return setup.on_cores(workers, sys.executable, "-u", "-W", "ignore", PEERS / "train_lockstep_fit.py", folder,
                              BATCH, setup.fit_epochs, workers, SEED)  # fmt: skip
    launch = ("lockstep", "launch", "--workers", workers, "--") if workers > 1 else ()
    return setup.on_cores(
        workers, *launch, "lockstep", "train", "--model", folder / "model.keras", "--data-dir", folder / "data.npz",
        "--model-dir", output, "--global-batch-size", BATCH, "--epochs", setup.fit_epochs, "--seed", SEED,
        "--verbose", 2, *contestant.options,
    )  # fmt: skip


def run_fit(setup: Setup, contestant: Contestant, folder: Path) -> Run:
    """Run a program that prints a line at the end of each epoch, and time the lines."""
    run = Run(contestant.name, contestant.workers)
    ends: list[float] = []
    with tempfile.TemporaryDirectory() as output, tempfile.TemporaryFile("w+") as errors:
        command = fit_command(setup, contestant, folder, Path(output))
        process = subprocess.Popen(
            command, env=setup.environment(contestant.backend), stdout=subprocess.PIPE, stderr=errors, text=True
        )
        limit = threading.Timer(LIMIT_S, process.kill)
        limit.start()
        assert process.stdout is not None
        for line in process.stdout:
            found = END_OF_EPOCH.match(line)
            if found:
                ends.append(time.perf_counter())
                run.loss = float(found[1])
        code = process.wait()
        limit.cancel()
        if code != 0 or len(ends) != setup.fit_epochs:
            errors.seek(0)
            run.error = f"exit {code}, {len(ends)} of {setup.fit_epochs} epochs: {error_line(errors.read())}"
            return run
    run.epoch_seconds = [round(end - begin, 5) for begin, end in zip(ends, ends[1:])]
    run.images_per_second = round(BATCH * setup.fit_steps / statistics.median(run.epoch_seconds), 1)
    return run


def contestants_of(items: list[str], overlap: bool) -> list[Contestant]:
    """Return the contestants of the items but fit, each once."""
    found: list[Contestant] = []
    for backend in BACKENDS:
        is_compared = "peers" in items and backend in (each for each, _ in PEER_PROGRAMS.values())
        for workers in WORKERS:
            if "scaling" in items or (is_compared and workers == WORKERS[-1]):
                found.append(Contestant(f"Lockstep, {backend}", workers, backend, ENGINE))
    if "peers" in items:
        if overlap:
            found.append(Contestant("Lockstep, torch, overlap", WORKERS[-1], "torch", ENGINE, ("--overlap",)))
        for name, (backend, program) in PEER_PROGRAMS.items():
            found.append(Contestant(name, WORKERS[-1], backend, program))
    return found


def fit_contestants() -> list[Contestant]:
    options = {FIT: (), TRAIN: (), DETERMINISTIC: ("--deterministic",)}
    return [Contestant(name, workers, options=each) for workers in WORKERS for name, each in options.items()]


@dataclass
class Ratio:
    """A ratio of two contestants' medians."""

    item: str
    of: tuple[str, int]  # contestant, workers
    to: tuple[str, int]
    measured: float | None  # None if one of them has no figure
    asked: float | None  # at least; None if nothing is asked


class Figures:
    def __init__(self) -> None:
        self.runs: list[Run] = []

    def speeds(self, name: str, workers: int) -> list[float]:
        return [run.images_per_second for run in self.runs
                if (run.contestant, run.workers) == (name, workers) and not run.error]  # fmt: skip

    def median(self, name: str, workers: int) -> float | None:
        speeds = self.speeds(name, workers)
        return statistics.median(speeds) if speeds else None

    def ratio(self, item: str, of: tuple[str, int], to: tuple[str, int]) -> Ratio:
        above, below = self.median(*of), self.median(*to)
        asked = None if to[0] == DETERMINISTIC else ASKED[item]
        return Ratio(item, of, to, round(above / below, 3) if above and below else None, asked)

    def ratios(self, items: list[str]) -> list[Ratio]:
        one, two = WORKERS
        found = []
        if "scaling" in items:
            for backend in BACKENDS:
                name = f"Lockstep, {backend}"
                found.append(self.ratio("scaling", (name, two), (name, one)))
        if "peers" in items:
            for peer, (backend, _) in PEER_PROGRAMS.items():
                names = [f"Lockstep, {backend}", f"Lockstep, {backend}, overlap"]
                found += [self.ratio("peers", (name, two), (peer, two)) for name in names if self.speeds(name, two)]
        if "fit" in items:
            for workers in WORKERS:
                for command in (TRAIN, DETERMINISTIC):
                    found.append(self.ratio("fit", (FIT, workers), (command, workers)))
        return found

    def shown(self, name: str, workers: int) -> str:
        speeds = self.speeds(name, workers)
        if not speeds:
            return "no figure"
        return f"{statistics.median(speeds):,.1f} ({min(speeds):,.1f} to {max(speeds):,.1f})"

    def table(self, item: str, items: list[str]) -> str:
        ratios = [ratio for ratio in self.ratios(items) if ratio.item == item]
        cells = [("", "images/s", "", "images/s", "ratio", "asked")]
        for ratio in ratios:
            is_missed = ratio.measured is not None and ratio.asked is not None and ratio.measured < ratio.asked
            shown = "-" if ratio.measured is None else f"{ratio.measured:.2f}{' !' if is_missed else ''}"
            asked = "-" if ratio.asked is None else f"{ratio.asked:.2f}"
            of, to = (f"{name}, {count} worker{'s' if count > 1 else ''}" for name, count in (ratio.of, ratio.to))
            cells.append((of, self.shown(*ratio.of), to, self.shown(*ratio.to), shown, asked))
        widths = [max(map(len, column)) for column in zip(*cells)]
        return "\n".join("  ".join(f"{cell:{width}}" for cell, width in zip(row, widths)).rstrip() for row in cells)


def make_model(setup: Setup, name: str, examples: int, folder: Path) -> Path:
    """Write model.keras and data.npz of one epoch to a folder of its own."""
    made = folder / name
    made.mkdir()
    command = [sys.executable, str(PEERS / "make_keras_model.py"), name, str(examples), str(made)]
    ended = subprocess.run(command, env=setup.environment("jax"), capture_output=True, text=True)
    if ended.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stderr}")
    return made


def versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0]}
    for package in ("keras", "jax", "torch", "tensorflow-cpu", "tensorflow", "numpy"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def describe(figures: Figures, items: list[str], setup: Setup) -> dict[str, Any]:
    """Return what --save writes."""
    machine = this_machine()
    medians = {}
    for name, workers in dict.fromkeys((run.contestant, run.workers) for run in figures.runs):
        speeds = figures.speeds(name, workers)
        if speeds:
            row = {"median": statistics.median(speeds), "min": min(speeds), "max": max(speeds)}
            medians[f"{name}, {workers}"] = {key: round(value, 1) for key, value in row.items()}
    return {
        "machine": machine.cpu,
        "flags": machine.flags,
        "cores": machine.cores,
        "lockstep": lockstep_version(ROOT),
        "versions": versions(),
        "batch": BATCH,
        "resnet20": {"steps": setup.steps, "epochs": setup.epochs},
        "keras_mnist": {"steps": setup.fit_steps, "epochs": setup.fit_epochs, "seed": SEED},
        "ratios": [asdict(ratio) for ratio in figures.ratios(items)],
        "images_per_second": medians,
        "runs": [asdict(run) for run in figures.runs],
    }


def at_least(least: int) -> Any:
    def parse(text: str) -> int:
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least}")
        return int(text)

    return parse


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path, metavar="BUILD_DIR")
    parser.add_argument("--only", nargs="+", choices=ITEMS, default=list(ITEMS))
    parser.add_argument("--repeats", type=at_least(1), default=3)
    parser.add_argument("--steps", type=at_least(1), default=4, help="of an epoch of ResNet-20 [4]")
    parser.add_argument("--epochs", type=at_least(2), default=4, help="of ResNet-20, with the first [4]")
    parser.add_argument("--fit-steps", type=at_least(1), default=70, help="of an epoch of keras_mnist's model [70]")
    parser.add_argument("--fit-epochs", type=at_least(2), default=6, help="of keras_mnist's model, with the first [6]")
    parser.add_argument(
        "--overlap", action="store_true", help="peers: also DistributedOptimizer(overlap=True) on torch"
    )
    parser.add_argument("--save", nargs="?", const=Path(), type=Path, metavar="FILE")
    given = parser.parse_args()
    given.build = given.build.resolve()
    if not (given.build / "bin" / "lockstep").is_file():
        parser.error(f"{given.build}/bin/lockstep is missing: build the target lockstep first")
    if not given.build.with_name(given.build.name + "-python").joinpath("site", "lockstep").is_dir():
        parser.error(f"{given.build}-python/site is missing: run tests/python/run.sh {given.build} first")
    missing = [name for name in ("keras", "tensorflow", "torch", "jax") if importlib.util.find_spec(name) is None]
    if missing:
        parser.error(f"{sys.executable} has no {', '.join(missing)}: start this with a Python that has them")
    if len(os.sched_getaffinity(0)) < WORKERS[-1]:
        parser.error(f"this process may use one core; {WORKERS[-1]} are needed")
    if given.save == Path():
        given.save = new_path(ROOT / "bench" / "results", this_machine(), time.strftime("%Y-%m-%d"), "python-engines")
    return given


def main() -> int:
    given = parse_arguments()
    setup = Setup(given.build, tuple(sorted(os.sched_getaffinity(0)))[: WORKERS[-1]], given.steps, given.epochs,
                  given.fit_steps, given.fit_epochs)  # fmt: skip
    figures = Figures()
    turns = [(each, "resnet20", run_engine) for each in contestants_of(given.only, given.overlap)]
    if "fit" in given.only:
        turns += [(each, "keras_mnist", run_fit) for each in fit_contestants()]
    with tempfile.TemporaryDirectory(prefix="lockstep-python-engines-") as name:
        images = {"resnet20": BATCH * given.steps, "keras_mnist": BATCH * given.fit_steps}
        models = {model: make_model(setup, model, images[model], Path(name))
                  for model in dict.fromkeys(model for _, model, _ in turns)}  # fmt: skip
        for turn in range(given.repeats):
            for contestant, model, run_it in turns:
                busy = cpu_use()
                run = run_it(setup, contestant, models[model])
                run.cpu_use_before = busy
                figures.runs.append(run)
                said = run.error or f"{run.images_per_second:,.1f} images/s"
                print(f"turn {turn + 1}: {run.contestant}, {run.workers}: {said}", file=sys.stderr, flush=True)
            if given.save is not None:
                write_atomically(given.save, describe(figures, given.only, setup))
    titles = {
        "scaling": f"Keras engine, ResNet-20, batch {BATCH}, float32",
        "peers": "The same job on the same cores",
        "fit": f"keras_mnist's model, native engine, batch {BATCH}",
    }
    for item in given.only:
        print(f"\n{titles[item]}: median of {given.repeats} (slowest to fastest)\n{figures.table(item, given.only)}")
    disturbed = sum(run.cpu_use_before > QUIET for run in figures.runs)
    if disturbed:
        print(f"\nOther programs used the cores just before {disturbed} of {len(figures.runs)} runs.")
    return int(any(run.error for run in figures.runs))


if __name__ == "__main__":
    sys.exit(main())
