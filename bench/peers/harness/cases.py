"""The grid of a comparison: models, arrangements and contestants, and the commands that run them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

EPOCHS = 5  # measured epochs of a run, as in the peers' common.py
WARMUP_EPOCHS = 1
PEERS_FOLDER = Path(__file__).resolve().parents[1]

MODELS = ("keras_mnist", "custom_training_mnist")
PRECISIONS = ("float32", "bfloat16")
BATCHES = (128, 1024)


@dataclass(frozen=True)
class Arrangement:
    name: str
    label: str
    workers: int
    threads: int  # per worker, with one core per thread

    @property
    def cores(self) -> int:
        return self.workers * self.threads


ARRANGEMENTS = {
    a.name: a
    for a in (
        Arrangement("1x1", "1 process, 1 core", 1, 1),
        Arrangement("1x2", "1 process, 2 cores", 1, 2),
        Arrangement("2x1", "2 workers x 1 core", 2, 1),
    )
}


@dataclass(frozen=True)
class Case:
    """One cell of the grid, for any contestant."""

    model: str
    batch: int
    precision: str
    arrangement: str

    @property
    def group(self) -> tuple[str, int, str]:
        return self.model, self.batch, self.precision


@dataclass(frozen=True)
class Contestant:
    name: str
    label: str
    program: str  # in bench/peers; empty for Lockstep
    extra: tuple[str, ...] = ()
    only_once: bool = False  # known to fail: run once, to show the error

    def runs(self, case: Case) -> bool:
        if not self.only_once:
            return True
        return case == Case("keras_mnist", 128, "float32", "2x1")


LOCKSTEP = Contestant("lockstep", "Lockstep", "")
CONTESTANTS = {
    c.name: c
    for c in (
        LOCKSTEP,
        Contestant("tensorflow", "TensorFlow (tf_keras fit; MultiWorkerMirrored)", "train_tensorflow.py"),
        Contestant(
            "tensorflow-keras3", "TensorFlow (Keras 3; MultiWorkerMirrored)", "train_tensorflow.py", ("--keras3",), True
        ),
        Contestant("pytorch", "PyTorch (eager; DDP over gloo)", "train_pytorch.py"),
        Contestant("jax", "JAX (jitted step; gloo)", "train_jax.py"),
    )
}


def grid(models: list[str], batches: list[int], precisions: list[str], arrangements: list[str]) -> Iterator[Case]:
    for model, batch, precision, arrangement in itertools.product(models, batches, precisions, arrangements):
        yield Case(model, batch, precision, arrangement)


def steps_for(batch: int, steps: int) -> int:
    """The measured steps of a case: fewer for larger batches, at least ten per epoch where `steps` allows it."""
    scaled = steps * 128 // batch if batch > 128 else steps
    return max(EPOCHS * min(10, max(1, steps // EPOCHS)), scaled // EPOCHS * EPOCHS)


def peer_commands(
    python: Path, contestant: Contestant, case: Case, steps: int, data_dir: str, cores: list[int], addresses: list[str]
) -> list[list[str]]:
    """One command per worker, each pinned to its own cores."""
    arrangement = ARRANGEMENTS[case.arrangement]
    warmup = WARMUP_EPOCHS * steps // EPOCHS
    commands = []
    for worker in range(arrangement.workers):
        own_cores = cores[worker * arrangement.threads :][: arrangement.threads]
        command = ["taskset", "-c", ",".join(map(str, own_cores)), str(python), str(PEERS_FOLDER / contestant.program)]
        command += [*contestant.extra, "--model", case.model, "--batch", str(case.batch), "--precision", case.precision]
        command += ["--steps", str(steps), "--warmup", str(warmup), "--threads", str(arrangement.threads)]
        if data_dir:
            command += ["--data-dir", data_dir]
        if arrangement.workers > 1:
            command += ["--worker", str(worker), "--addresses", ",".join(addresses[: arrangement.workers])]
        commands.append(command)
    return commands


def lockstep_program(binaries: Path, case: Case, steps: int, data_dir: str, model_dir: Path) -> list[str]:
    """The command that each worker runs."""
    command = [str(binaries / case.model), "--epochs", str(WARMUP_EPOCHS + EPOCHS)]
    command += ["--steps-per-epoch", str(steps // EPOCHS)]
    command += ["--global-batch-size", str(case.batch), "--model-dir", str(model_dir), "--verbose", "0"]
    command += ["--backup-save-freq", "never"]  # the peers make no backups either
    command += ["--precision", "mixed_bfloat16" if case.precision == "bfloat16" else "float32"]
    if data_dir:
        command += ["--data-dir", data_dir]
    return command


def lockstep_command(
    binaries: Path, case: Case, steps: int, data_dir: str, cores: list[int], model_dir: Path
) -> list[str]:
    arrangement = ARRANGEMENTS[case.arrangement]
    command = ["taskset", "-c", ",".join(map(str, cores[: arrangement.cores]))]
    if arrangement.workers > 1:
        command += ["mpirun", "-np", str(arrangement.workers), "--bind-to", "core"]
    return command + lockstep_program(binaries, case, steps, data_dir, model_dir)
