"""Shared by the peer programs: options, stopwatch and the JSON line that they print.

A peer trains `warmup` steps and then `steps` steps in EPOCHS equal parts, and times each part. Its speed is that of the
median part. Its start-up is the time from the process's start to the end of step 0, so this module imports only the
standard library.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

EPOCHS = 5
MODELS = ("keras_mnist", "custom_training_mnist")


@dataclass(frozen=True)
class Job:
    model: str
    batch: int  # global batch size
    steps: int
    warmup: int
    precision: str
    data_dir: str
    threads: int
    worker: int
    addresses: list[str]  # one host:port per worker; the first also coordinates

    @property
    def workers(self) -> int:
        return max(1, len(self.addresses))

    @property
    def local_batch(self) -> int:
        return self.batch // self.workers

    @property
    def steps_per_epoch(self) -> int:
        return max(1, self.steps // EPOCHS)

    @property
    def half(self) -> bool:
        return self.precision == "bfloat16"


def parse_job(description: str) -> Job:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--model", choices=MODELS, default=MODELS[0])
    parser.add_argument("--batch", type=int, default=128, help="global batch size")
    parser.add_argument("--steps", type=int, default=350, help=f"measured steps, in {EPOCHS} parts")
    parser.add_argument("--warmup", type=int, default=70, help="steps before measuring")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--data-dir", default=os.environ.get("LOCKSTEP_MNIST_DIR", ""))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--worker", type=int, default=0, help="number of this worker")
    parser.add_argument("--addresses", default="", help="comma-separated host:port of all workers")
    given = vars(parser.parse_args())
    given["addresses"] = [a for a in given["addresses"].split(",") if a]
    job = Job(**given)
    if job.batch % job.workers:
        parser.error(f"--batch {job.batch} is not divisible by {job.workers} workers")
    return job


def seconds_since_start() -> float:
    """Time since this process started, with the kernel's resolution of 10 ms."""
    after_name = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    started = int(after_name[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


def peak_memory_mb() -> float:
    """This process's peak resident set (VmHWM)."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


@dataclass
class Stopwatch:
    """Call first_step() once, then begin() and end() around each measured epoch."""

    job: Job
    seconds_to_first_step: float = 0.0
    epoch_seconds: list[float] = field(default_factory=list)
    begun: float = 0.0

    def first_step(self) -> None:
        self.seconds_to_first_step = seconds_since_start()

    def begin(self) -> None:
        self.begun = time.perf_counter()

    def end(self) -> None:
        self.epoch_seconds.append(time.perf_counter() - self.begun)

    def report(self, peer: str, version: str, last_loss: float) -> None:
        step = statistics.median(self.epoch_seconds) / self.job.steps_per_epoch
        result = {
            "peer": peer,
            "version": version,
            "examples_per_second": round(self.job.batch / step, 1),
            "ms_per_step": round(1000 * step, 4),
            "ms_per_step_is": f"median over {len(self.epoch_seconds)} epochs of {self.job.steps_per_epoch} steps",
            "epoch_seconds": [round(s, 5) for s in self.epoch_seconds],
            "seconds_to_first_step": round(self.seconds_to_first_step, 3),
            "peak_memory_mb": round(peak_memory_mb(), 1),
            "last_loss": round(float(last_loss), 5),
        }
        print(json.dumps(result))
        sys.stdout.flush()
