"""What the tests share: jobs of several workers under ``lockstep launch``."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parent / "programs"
USAGE, INTERNAL, TEMPORARY = 64, 70, 75
BACKENDS = ("jax", "torch", "tensorflow")
LIMIT_S = 400  # of a job; a hang, not a measure of speed


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
