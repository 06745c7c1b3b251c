"""Kills random workers of many trainings in the Keras engine, and compares each result with the undisturbed bits.

tests/python/run.sh BUILD_DIR --kills 50 [--seed 0] [--save [FILE]]

Each job trains programs/resumable.py on 2 workers and kills a rank at a step of each of its first 1 to 3 generations. A
job is right if it ends with exit code 0 and with the logs and weights of a training that nobody killed, to the bit.
--save keeps a ledger, by default bench/results/python-kills-CPU-DATE.json; the same command goes on after its last job.
The kills of a job follow from seed and number alone. Exits with 1 if a job is not right. A job takes half a
minute or more.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from support import BACKENDS, LIMIT_S, draw_kills, train_with_kills

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "peers"))

from harness.results import lockstep_version, this_machine, write_atomically  # noqa: E402

MAX_KILLS = 3


@dataclass
class Job:
    job: int
    kills: list[list[int]]  # [rank, step] by generation
    generations: int = 0  # MPI worlds; 0 if the job did not end
    exit_code: int | None = None  # None if the job did not end
    equal: bool = False  # to the undisturbed training, to the bit
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)

    @property
    def is_right(self) -> bool:
        return self.exit_code == 0 and self.equal and not self.problems


def kills_of(seed: int, job: int) -> list[list[int]]:
    draw = random.Random(f"{seed} {job}")
    return draw_kills(draw, draw.randint(1, MAX_KILLS))


def run(backend: str, number: int, kills: list[list[int]], undisturbed: Any) -> Job:
    job = Job(number, kills)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="lockstep-kills-") as folder:
        try:
            training = train_with_kills(backend, Path(folder) / "job", kills)
        except subprocess.TimeoutExpired:
            job.problems = [f"did not end in {LIMIT_S} s"]
        else:
            job.exit_code, job.generations = training.ended.code, training.generations
            job.equal, job.problems = training.history == undisturbed, training.problems
            if not job.is_right:
                print(training.ended.errors[-4000:], file=sys.stderr)
    job.seconds = round(time.monotonic() - begun, 1)
    return job


def train_undisturbed(backend: str) -> Any:
    with tempfile.TemporaryDirectory(prefix="lockstep-kills-") as folder:
        training = train_with_kills(backend, Path(folder) / "job", [])
        if training.problems or training.history is None:
            sys.exit(f"the undisturbed training failed: {training.problems}\n{training.ended.errors[-4000:]}")
        return training.history


class Ledger:
    """The jobs so far, rewritten after each one if there is a file."""

    def __init__(self, path: Path | None, backend: str, seed: int) -> None:
        self.path = path
        self.head: dict[str, Any] = {"backend": backend, "workers": 2, "seed": seed}
        self.versions: list[str] = []  # of Lockstep, each that ran a job
        self.jobs: dict[int, Job] = {}
        if path is not None and path.exists():
            found = json.loads(path.read_text())
            for name, value in self.head.items():
                if found[name] != value:
                    sys.exit(f"{path} has {name} {found[name]}, not {value}; give that, or another file")
            self.versions = found["lockstep"]
            self.jobs = {job["job"]: Job(**job) for job in found["jobs"]}

    def add(self, job: Job) -> None:
        self.jobs[job.job] = job
        version = lockstep_version(ROOT)
        if version not in self.versions:
            self.versions.append(version)
        if self.path is not None:
            machine = this_machine()
            head = {"machine": machine.cpu, "cores": machine.cores, "lockstep": self.versions, **self.head}
            jobs = [self.jobs[number] for number in sorted(self.jobs)]
            counts = {"of": len(jobs), "right": sum(each.is_right for each in jobs)}
            write_atomically(self.path, {**head, **counts, "jobs": [asdict(each) for each in jobs]})


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=50, help="of jobs in all, with those of the ledger [50]")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", choices=BACKENDS, default="jax", help="the others do not promise equal bits [jax]")
    parser.add_argument("--save", nargs="?", const=Path(), type=Path, metavar="FILE")
    given = parser.parse_args()
    if given.count < 1:
        parser.error(f"--count {given.count} is less than 1")
    if given.save == Path():
        name = f"python-kills-{this_machine().slug}-{time.strftime('%Y-%m-%d')}.json"
        given.save = ROOT / "bench" / "results" / name
    return given


def main() -> int:
    given = parse_arguments()
    ledger = Ledger(given.save, given.backend, given.seed)
    numbers = range(1, given.count + 1)
    missing = [number for number in numbers if number not in ledger.jobs]
    undisturbed = train_undisturbed(given.backend) if missing else None
    for number in missing:
        job = run(given.backend, number, kills_of(given.seed, number), undisturbed)
        ledger.add(job)
        kills = ", ".join(f"rank {rank} at step {step}" for rank, step in job.kills)
        said = "; ".join([*job.problems, "equal" if job.equal else "not equal"])
        print(f"job {number}: killed {kills}; {job.generations} generations, {job.seconds:.0f} s: {said}", flush=True)
    jobs = [ledger.jobs[number] for number in numbers]
    right = [job for job in jobs if job.is_right]
    count = sum(len(job.kills) for job in jobs)
    print(f"{len(right)} of {len(jobs)} jobs, with {count} kills in all, are equal to the undisturbed training")
    return int(len(right) < len(jobs))


if __name__ == "__main__":
    sys.exit(main())
