#!/usr/bin/env python3
"""Compares a real training step with its bare kernels.

Runs `step_floor` (the sum of the bare kernels of a step, with one thread) and the real step, in turns: the two programs
with one and with two workers, and `lockstep train` with one worker for the models of bench/keras_models.py. Shows the
step, the floor, their ratio and the parts of the step. The target is a ratio of at most 1.3 for the programs, 1.25 for
the other models. Figures are milliseconds per step, medians over the repetitions.

    python3 bench/step_floor.py --data-dir MNIST
    python3 bench/step_floor.py --models keras_mnist --precisions float32 --workers 1 --repeats 3
    python3 bench/step_floor.py --models resnet20 text --precisions float32    # in an environment with Keras and JAX
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "bench" / "peers"), str(ROOT / "bench")]

from keras_models import JOBS, make_model  # noqa: E402
from harness.results import Machine, lockstep_version, this_machine, write_atomically  # noqa: E402

PROGRAMS = ("keras_mnist", "custom_training_mnist")
MODELS = (*PROGRAMS, *JOBS)
PRECISIONS = {"float32": "f32", "mixed_bfloat16": "bf16"}
GLOBAL_BATCH = 128  # as in step_floor.cpp
PROMISE = 1.3
PROMISE_OF_KERAS_MODELS = 1.25
KERNELS = ("forward", "loss", "backward")  # kinds of the profile that the table adds up
OTHERS = ("optimizer", "input", "communication", "waiting", "other")


class Failure(Exception):
    """A program failed. The message is one sentence."""


@dataclass(frozen=True)
class Case:
    model: str
    precision: str
    workers: int

    @property
    def is_program(self) -> bool:
        return self.model in PROGRAMS

    @property
    def batch(self) -> int:
        return GLOBAL_BATCH if self.is_program else JOBS[self.model].batch

    @property
    def job(self) -> str:
        return f"{self.model}/{self.batch // self.workers}/{PRECISIONS[self.precision]}"

    @property
    def promise(self) -> float:
        return PROMISE if self.is_program else PROMISE_OF_KERAS_MODELS


@dataclass
class Sample:
    """One repetition: a measured floor and a measured step."""

    floor: dict
    profile: dict[str, float]  # from history.json; "total" is the step
    operations: dict[str, float]  # from history.json, by name such as "dense_backward dense"
    median_epoch_ms: float  # milliseconds per step of the median epoch, with the time between steps; without epoch 1

    @property
    def ratio(self) -> float:
        return self.profile["total"] / self.floor["bare_ms"]

    def of(self, kind: str) -> float:
        if kind == "kernels":
            return sum(self.profile.get(each, 0.0) for each in KERNELS)
        return self.profile.get(kind, 0.0)


@dataclass
class Row:
    case: Case
    samples: list[Sample] = field(default_factory=list)

    def median(self, of: Callable[[Sample], float]) -> float:
        return statistics.median(of(sample) for sample in self.samples)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(PROGRAMS))
    parser.add_argument("--precisions", nargs="+", choices=list(PRECISIONS), default=list(PRECISIONS))
    parser.add_argument("--workers", nargs="+", type=int, choices=(1, 2), default=[1, 2], help="of the programs, with one core each")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=6, help="even, because custom_training_mnist saves every other epoch")
    parser.add_argument("--steps-per-epoch", type=int, default=70, help="of the programs; custom_training_mnist always runs whole epochs")
    parser.add_argument("--rounds", type=int, default=30, help="of step_floor, in each repetition")
    parser.add_argument(
        "--data-dir",
        default=os.environ.get("LOCKSTEP_MNIST_DIR", ""),
        help="MNIST; else the synthetic digits [$LOCKSTEP_MNIST_DIR]",
    )
    parser.add_argument("--binaries", type=Path, default=ROOT / "build" / "release" / "bin", help="Lockstep's programs")
    parser.add_argument("--operations", action="store_true", help="also show every operation")
    parser.add_argument("--save", action="store_true", help="save the samples as bench/results/step-floor-CPU-DATE.json")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one run")
    options = parser.parse_args(arguments)
    for name in ("repeats", "epochs", "steps_per_epoch", "rounds"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    if options.epochs % 2:
        parser.error("--epochs must be even: the profile covers the steps before the last save, after an even epoch")
    return options


def environment() -> dict[str, str]:
    """The caller's environment without variables that change the training, and with one thread per process."""
    removed = ("TF_CONFIG", "DATA_DIR", "MODEL_DIR", "BATCH_SIZE", "NUM_TRAIN_EPOCH")
    inherited = {k: v for k, v in os.environ.items() if k not in removed and not k.startswith("LOCKSTEP_")}
    return {**inherited, "OMP_NUM_THREADS": "1"}


def output_of(command: list[str], timeout: float) -> str:
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment())
    except subprocess.TimeoutExpired as error:
        raise Failure(f"{' '.join(command)} took longer than {timeout:g} s") from error
    except OSError as error:
        raise Failure(f"{command[0]} cannot be run: {error.strerror}") from error
    if run.returncode != 0:
        last = (run.stderr.strip() or run.stdout.strip() or "no message").splitlines()[-1]
        raise Failure(f"{' '.join(command)} ended with {run.returncode}: {last}")
    return run.stdout


def measured_floor(case: Case, files: Path, options: argparse.Namespace) -> dict:
    job = case.job if case.is_program else f"{files / case.model}/model.keras{case.job.removeprefix(case.model)}"
    command = ["taskset", "-c", "0", str(options.binaries / "step_floor"), str(options.rounds), job]
    return json.loads(output_of(command, options.timeout))["jobs"][0]


def measured_step(
    case: Case, files: Path, options: argparse.Namespace
) -> tuple[dict[str, float], dict[str, float], float]:
    launcher = ["taskset", "-c", "0"]
    if case.workers > 1:
        launcher = [str(ROOT / "scripts" / "mpirun.sh"), "-np", str(case.workers)]
    with tempfile.TemporaryDirectory(prefix="step-floor-") as folder:
        if case.is_program:
            command = [str(options.binaries / case.model), "--steps-per-epoch", str(options.steps_per_epoch)]
            command += ["--data-dir", options.data_dir] if options.data_dir else []
        else:
            model = files / case.model
            command = [str(options.binaries / "lockstep"), "train", "--model", str(model / "model.keras")]
            command += ["--data-dir", str(model / "data.npz")]
        command = [*launcher, *command, "--epochs", str(options.epochs), "--global-batch-size", str(case.batch)]
        command += ["--precision", case.precision, "--device", "cpu", "--verbose", "0", "--model-dir", folder]
        command += ["--backup-save-freq", "never", "--parallelism", "data"]
        output_of(command, options.timeout)
        history = json.loads((Path(folder) / "history.json").read_text())
    profile = history["timing"].get("profile_ms_per_step", {})
    if "total" not in profile:
        raise Failure(f"{case.model} wrote no timing.profile_ms_per_step to history.json")
    rates = [epoch["examples_per_second"] for epoch in history["epochs"][1:]]
    operations = history["timing"].get("operations_ms_per_step", {})
    return profile, operations, case.batch / statistics.median(rates) * 1e3


def cases_of(options: argparse.Namespace, machine: Machine) -> list[Case]:
    precisions = options.precisions
    if "avx512_bf16" not in machine.flags and "mixed_bfloat16" in precisions:
        print("This CPU has no avx512_bf16: mixed_bfloat16 is skipped.")
        precisions = [each for each in precisions if each != "mixed_bfloat16"]
    return [
        Case(model, precision, workers)
        for model in options.models
        for precision in precisions
        for workers in (options.workers if model in PROGRAMS else [1])
    ]


def aligned(lines: list[list[str]], names: int) -> str:
    """Aligns columns: the first `names` columns to the left, the others to the right."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    text = []
    for line in lines:
        cells = [c.ljust(w) if i < names else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths))]
        text.append("  ".join(cells).rstrip())
    return "\n".join(text)


def table(rows: list[Row]) -> str:
    head = ["model", "precision", "workers", "step", "epoch's", "bare", "ratio", "", "kernels", *OTHERS, "isolated", "in sequence"]
    lines = [head]
    for row in rows:
        case, ratio = row.case, row.median(lambda s: s.ratio)
        figures = [row.median(lambda s: s.profile["total"]), row.median(lambda s: s.median_epoch_ms)]
        figures.append(row.median(lambda s: s.floor["bare_ms"]))
        parts = [row.median(lambda s, kind=kind: s.of(kind)) for kind in ("kernels", *OTHERS)]
        parts += [row.median(lambda s, key=key: s.floor[key]) for key in ("lockstep_ms", "bare_in_sequence_ms")]
        lines.append(
            [case.model, case.precision, str(case.workers)]
            + [f"{figure:.2f}" for figure in figures]
            + [f"{ratio:.2f}", "!" if ratio > case.promise else ""]
            + [f"{part:.2f}" for part in parts]
        )
    return aligned(lines, 2)


def operations_table(row: Row) -> str:
    """Every operation of the step: in the step, isolated, and bare."""
    lines = [[row.case.job, "in the step", "isolated", "bare"]]
    for i, operation in enumerate(row.samples[0].floor["operations"]):
        name = operation["name"]

        def in_the_step(sample: Sample, name: str = name) -> float:
            return sample.of("optimizer") if name == "update" else sample.operations.get(spelled(name, sample), 0.0)

        figures = [f"{row.median(in_the_step):.3f}"]
        for key in ("lockstep_ms", "bare_ms"):
            found = [sample.floor["operations"][i].get(key) for sample in row.samples]
            figures.append("" if None in found else f"{statistics.median(found):.3f}")
        lines.append([name, *figures])
    return aligned(lines, 1)


def spelled(name: str, sample: Sample) -> str:
    """history.json's name of step_floor's "dense_backward/dense". step_floor may omit the layer of an operation."""
    wanted = name.replace("/", " ")
    return next((each for each in sample.operations if each == wanted or each.startswith(wanted + " ")), wanted)


LEGEND = f"""
step = kernels + optimizer + input + communication + waiting + other, as rank 0's profile splits it. epoch's: the step from
the median epoch's examples per second. bare: oneDNN's primitives and one optimizer pass, each timed separately. isolated:
Lockstep's operations, each timed separately. in sequence: the bare kernels, one after the other, so that each finds its
input in memory, not in a cache. "!": ratio above {PROMISE}, of Keras models above {PROMISE_OF_KERAS_MODELS}. All are medians,
so parts may not add up exactly."""


def save(rows: list[Row], options: argparse.Namespace, machine: Machine) -> Path:
    """Saves the samples as step-floor-CPU-DATE.json, or with -2, -3, … if the name is taken. Returns the path."""
    folder, date, number = ROOT / "bench" / "results", time.strftime("%Y-%m-%d"), 1
    path = folder / f"step-floor-{machine.slug}-{date}.json"
    while path.exists():
        number += 1
        path = folder / f"step-floor-{machine.slug}-{date}-{number}.json"
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "machine": asdict(machine),
        "date": date,
        "version": lockstep_version(ROOT),
        "data": "MNIST" if options.data_dir else "synthetic digits",
        "promise": {case.model: case.promise for case in (row.case for row in rows)},
        "repeats": options.repeats,
        "rows": [
            {
                **asdict(row.case),
                "step_ms": round(row.median(lambda s: s.profile["total"]), 4),
                "bare_ms": round(row.median(lambda s: s.floor["bare_ms"]), 4),
                "bare_in_sequence_ms": round(row.median(lambda s: s.floor["bare_in_sequence_ms"]), 4),
                "ratio": round(row.median(lambda s: s.ratio), 3),
                "samples": [asdict(sample) for sample in row.samples],
            }
            for row in rows
        ],
    }
    write_atomically(path, content)
    return path


def main() -> int:
    options, machine = parse(), this_machine()
    rows = [Row(case) for case in cases_of(options, machine)]
    try:
        with tempfile.TemporaryDirectory(prefix="step-floor-models-") as folder:
            files = Path(folder)
            for model in {row.case.model for row in rows if not row.case.is_program}:
                make_model(model, files / model)
            for repeat in range(options.repeats):
                for row in rows:
                    print(f"\r{repeat + 1}/{options.repeats} {row.case.job:<40}", end="", file=sys.stderr, flush=True)
                    floor = measured_floor(row.case, files, options)
                    row.samples.append(Sample(floor, *measured_step(row.case, files, options)))
    except Failure as failure:
        print(f"\nstep_floor.py: {failure}", file=sys.stderr)
        return 1
    print("\r" + " " * 60 + "\r", end="", file=sys.stderr)
    data = "MNIST" if options.data_dir else "synthetic digits"
    print(f"{machine.cpu}, {data}, one thread per worker, ms per step\n")
    print(table(rows))
    print(LEGEND)
    if options.operations:
        for row in rows:
            print("\n" + operations_table(row))
    if options.save:
        print(f"Saved {save(rows, options, machine)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
