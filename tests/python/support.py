"""What the tests share: jobs of several workers under ``lockstep launch``, and trainings whose workers are killed."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parent / "programs"
USAGE, INTERNAL, TEMPORARY = 64, 70, 75
BACKENDS = ("jax", "torch", "tensorflow")
LIMIT_S = 400  # of a job; a hang, not a measure of speed
STEPS, EPOCHS = 12, 3  # of resumable.py; steps of an epoch
MIN_KILL_STEP = 4  # of a generation; resumable.py backs up every 3 steps, so such a kill finds a backup


@dataclass
class Ended:
    code: int
    output: str
    errors: str


def run_job(
    backend: str, workers: int, program: str, *arguments: Any, options: tuple[str, ...] = (), **variables: str
) -> Ended:
    """Run a program of programs/ on workers of one thread each."""
    command = ["lockstep", "launch", *options, "--workers", str(workers), "--", sys.executable, "-W", "ignore"]
    environment = (
        os.environ | {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"} | variables
    )
    environment |= {"TF_NUM_INTRAOP_THREADS": "1", "PJRT_NPROC": "1", "TF_ENABLE_ONEDNN_OPTS": "0"}
    for name in ("TF_CONFIG", "LOCKSTEP_JOB_TOKEN"):
        environment.pop(name, None)
    done = subprocess.run(
        [*command, str(PROGRAMS / program), *map(str, arguments)],
        env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    return Ended(done.returncode, done.stdout, done.stderr)


@contextlib.contextmanager
def directory_of_another_job(directory: Path, job: str = "other") -> Iterator[None]:
    """Let another process be the owner of a directory."""
    code = (
        "import sys, pathlib\nfrom lockstep._native import lock_directory\n"
        "lock = lock_directory(pathlib.Path(sys.argv[1]), 'a test')\nprint('held', flush=True)\nsys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"LOCKSTEP_JOB_ID": job},
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"held\n"
        yield


def draw_kills(draw: random.Random, count: int) -> list[list[int]]:
    """Draw a rank and a step for each of the first `count` generations of resumable.py on 2 workers.

    Each kill is reached: a generation that is killed at its step s is at most s steps further than the one before.
    """
    while True:
        steps = [draw.randrange(MIN_KILL_STEP, STEPS if index else 2 * STEPS) for index in range(count)]
        kills = [[draw.randrange(2), step] for step in steps]
        if sum(steps) <= EPOCHS * STEPS:
            return kills


@dataclass
class Training:
    """How a run of resumable.py on 2 workers ended."""

    ended: Ended
    history: Any = None  # logs, epochs and weights, as bits; None if it was not written
    problems: list[str] = field(default_factory=list)

    @property
    def generations(self) -> int:
        """The number of MPI worlds, of which the last was not killed if the training succeeded."""
        return 1 + len(set(re.findall(r"generation \d+ ended", self.ended.errors)))


def train_with_kills(backend: str, folder: Path, kills: list[list[int]]) -> Training:
    """Run resumable.py in a folder that does not exist yet, and look at what it leaves."""
    folder.mkdir()
    training = Training(run_job(backend, 2, "resumable.py", folder, json.dumps(kills)))
    errors = training.ended.errors
    numbers = range(1, len(kills) + 1)
    expected = {f"generation {number} was not killed": f"generation {number} ended" in errors for number in numbers}
    expected |= {
        f"exit code {training.ended.code}": training.ended.code == 0,
        "training did not go on from the backup": not kills or "training goes on from the backup" in errors,
        "the backup of an ended job was not removed": not (folder / "backup").exists(),
        "no history was written": (folder / "history.json").exists(),
        "the chief wrote no checkpoint": (folder / "checkpoint-0.keras").exists(),
        "a rank that is not the chief wrote a checkpoint": not (folder / "checkpoint-1.keras").exists(),
    }
    training.problems = [problem for problem, is_well in expected.items() if not is_well]
    if expected["no history was written"]:
        training.history = json.loads((folder / "history.json").read_text())
    return training


class JobTest(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="lockstep-python-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def assert_succeeds(self, ended: Ended) -> Ended:
        self.assertEqual(ended.code, 0, ended.errors[-4000:])
        return ended

    def read_json(self, name: str) -> Any:
        return json.loads((self.folder / name).read_text())
