#!/usr/bin/env python3
"""Compares the speed of training Keras models: ResNet-20, ResNet-50, MobileNetV2, VGG16 and a text classifier.

    python3 bench/keras_models.py [--models resnet20 text] [--repeats 3]

Runs in a Python environment that has Keras, TensorFlow, PyTorch and JAX. Keras makes each model's file and random data;
Lockstep trains the file with `lockstep train`, Keras trains it with `fit` on each of its backends, and plain PyTorch
trains the same graph eagerly, images channels last. Contestants take turns, pinned to the same cores. A run's speed is
that of its median epoch; a figure is the median of the runs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PEERS = ROOT / "bench" / "peers"
EPOCHS = 4  # of which the first is not counted


@dataclass(frozen=True)
class Job:
    """A model of bench/peers/make_keras_model.py, and how many of its examples make a batch and an epoch."""

    batch: int
    steps: int


JOBS = {
    "resnet20": Job(128, 4),
    "resnet50": Job(32, 2),
    "mobilenetv2": Job(32, 4),
    "vgg16": Job(32, 2),
    "text": Job(128, 3),
}
ARRANGEMENTS = {"1x1": (1, 1), "1x2": (1, 2), "2x1": (2, 1)}  # workers, cores of each
PEER_PROGRAMS = {
    "Keras on TensorFlow": ("tensorflow", "train_keras.py"),
    "Keras on JAX": ("jax", "train_keras.py"),
    "Keras on PyTorch": ("torch", "train_keras.py"),
    "PyTorch": ("torch", "train_torch_graph.py"),
}


def lockstep_run(binaries: Path, folder: Path, job: Job, workers: int, threads: int) -> tuple[float, float]:
    """Return examples per second and the chief's peak memory in MB."""
    command = [str(binaries / "lockstep"), "train", "--model", str(folder / "model.keras"), "--data-dir",
               str(folder / "data.npz"), "--model-dir", str(folder / "out"), "--global-batch-size", str(job.batch),
               "--epochs", str(EPOCHS), "--steps-per-epoch", str(job.steps), "--backup-save-freq", "never", "--resume",
               "never", "--verbose", "0"]  # fmt: skip
    if workers > 1:
        command = [str(ROOT / "scripts" / "mpirun.sh"), "-np", str(workers), *command]
    check(subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": str(threads)}, capture_output=True, text=True))
    history = json.loads((folder / "out" / "history.json").read_text())
    speeds = [epoch["examples_per_second"] for epoch in history["epochs"][1:]]
    return statistics.median(speeds), history["timing"]["peak_memory_mb"]


def peer_run(name: str, folder: Path, job: Job, threads: int) -> tuple[float, float]:
    backend, program = PEER_PROGRAMS[name]
    cores = ",".join(str(core) for core in sorted(os.sched_getaffinity(0))[:threads])
    command = ["taskset", "-c", cores, sys.executable, str(PEERS / program), str(folder), str(job.batch),
               str(job.steps), str(EPOCHS)]  # fmt: skip
    environment = os.environ | {"KERAS_BACKEND": backend, "OMP_NUM_THREADS": str(threads), "TF_CPP_MIN_LOG_LEVEL": "3"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    check(ended)
    result = json.loads(ended.stdout.splitlines()[-1])
    return job.batch * job.steps / statistics.median(result["epoch_seconds"][1:]), result["peak_memory_mb"]


def check(ended: subprocess.CompletedProcess[str]) -> None:
    if ended.returncode != 0:
        sys.exit(f"{' '.join(ended.args)} ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}")


def make_model(model: str, folder: Path) -> None:
    """Writes model.keras and data.npz of one epoch to the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    job = JOBS[model]
    check(subprocess.run([sys.executable, str(PEERS / "make_keras_model.py"), model, str(job.batch * job.steps),
                          str(folder)], env=os.environ | {"KERAS_BACKEND": "jax"}, capture_output=True, text=True))  # fmt: skip


def compare(model: str, options: argparse.Namespace, folder: Path) -> None:
    job = JOBS[model]
    make_model(model, folder)
    runs: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for _ in range(options.repeats):
        for arrangement in options.arrangements:
            workers, threads = ARRANGEMENTS[arrangement]
            runs["Lockstep", arrangement].append(lockstep_run(options.binaries, folder, job, workers, threads))
            for name in options.peers if workers == 1 else ():
                runs[name, arrangement].append(peer_run(name, folder, job, threads))
    print(f"\n{model}, batch {job.batch}")
    figures = {key: [statistics.median(each) for each in zip(*pairs)] for key, pairs in runs.items()}
    for (name, arrangement), (speed, memory) in figures.items():
        print(f"{name:20} {arrangement} {speed:10,.1f} examples/s {memory:8,.0f} MB")
    peers = {key: figure[0] for key, figure in figures.items() if key[0] != "Lockstep"}
    if peers:
        best = max(peers, key=lambda key: peers[key])
        for arrangement in options.arrangements:
            ratio = figures["Lockstep", arrangement][0] / peers[best]
            print(f"Lockstep {arrangement}: {ratio:.2f} x the best peer ({best[0]}, {best[1]})")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binaries", type=Path, default=ROOT / "build" / "release" / "bin")
    parser.add_argument("--models", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--arrangements", nargs="+", choices=ARRANGEMENTS, default=list(ARRANGEMENTS))
    parser.add_argument("--peers", nargs="*", choices=PEER_PROGRAMS, default=list(PEER_PROGRAMS))
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    for model in options.models:
        with tempfile.TemporaryDirectory() as folder:
            compare(model, options, Path(folder))


if __name__ == "__main__":
    main()
