"""Runs programs with a timeout and collects exit code, output and files."""

import json
import os
import shlex
import signal
import subprocess
import tempfile
import time
import unittest
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import data_files

MPIRUN = Path(__file__).resolve().parents[2] / "scripts" / "mpirun.sh"
TIME_LIMIT_S = 60.0
USAGE, DATA, IO, TEMPORARY = 64, 65, 74, 75

_bin = Path()
_count: int | None = None
_seed = 1


def use_build(directory: Path) -> None:
    global _bin
    _bin = directory.resolve() / "bin"


def set_scale(count: int | None, seed: int) -> None:
    global _count, _seed
    _count, _seed = count, seed


def count(usual: int) -> int:
    """The number of repetitions of a random test: --count, or a tenth of the usual one."""
    return max(1, usual // 10) if _count is None else _count


def seed() -> int:
    return _seed


def library(name: str) -> str:
    return str(_bin / f"lib{name}.so")


def program(name: str) -> str:
    return str(_bin / name)


def has_bfloat16() -> bool:
    """Whether this machine's CPU computes in it."""
    return "avx512_bf16" in Path("/proc/cpuinfo").read_text().split()


def clean_environment(more: dict[str, str]) -> dict[str, str]:
    """This process's environment without variables that programs read. One thread each keeps small runs fast."""
    templates = ("DATA_DIR", "MODEL_DIR", "BATCH_SIZE", "NUM_TRAIN_EPOCH", "TF_CONFIG")
    ours = ("LOCKSTEP_", "OMPI_", "PMIX_")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(ours) and k not in templates}
    return kept | {"OMP_NUM_THREADS": "1"} | more


@dataclass(frozen=True)
class Ended:
    """The outcome of a run."""

    command: str
    code: int
    stdout: str
    stderr: str

    @property
    def errors(self) -> list[str]:
        """Lockstep's error lines, without mpirun's messages."""
        return [line for line in self.stderr.splitlines() if "error: " in line and "mpirun" not in line]

    def __str__(self) -> str:
        return f"\n$ {self.command}\nexit code {self.code}\n--- stdout\n{self.stdout}--- stderr\n{self.stderr}---"


class Running:
    """A running program, with or without mpirun. Its output goes to files, so that it never blocks on a full pipe."""

    def __init__(self, command: Sequence[str], cwd: Path, environment: dict[str, str]) -> None:
        self.command = " ".join(command)
        self._stdout = tempfile.TemporaryFile()
        self._stderr = tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, cwd=cwd, env=clean_environment(environment), stdin=subprocess.DEVNULL,
                                        stdout=self._stdout, stderr=self._stderr, start_new_session=True)

    @staticmethod
    def _text(file: Any) -> str:
        file.flush()
        return os.pread(file.fileno(), 1 << 24, 0).decode(errors="replace")

    @property
    def stdout(self) -> str:
        return self._text(self._stdout)

    @property
    def stderr(self) -> str:
        return self._text(self._stderr)

    def _session(self) -> dict[int, tuple[int, int | None]]:
        """Parent and MPI rank, if it has one, of each process that came of this one, by its id."""
        found: dict[int, tuple[int, int | None]] = {}
        for status in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, parent, _, session = status.read_text().rsplit(")", 1)[1].split()[:4]
                if int(session) != self.process.pid or state == "Z":
                    continue
                environment = (status.parent / "environ").read_bytes().split(b"\0")
            except (OSError, ValueError):  # the process has exited
                continue
            given = [entry.split(b"=")[1] for entry in environment if entry.startswith(b"OMPI_COMM_WORLD_RANK=")]
            found[int(status.parent.name)] = int(parent), int(given[0]) if given else None
        return found

    def ranks(self) -> dict[int, int]:
        """Process ids of mpirun's ranks."""
        session = self._session()
        return {rank: pid for pid, (parent, rank) in session.items()
                if rank is not None and session.get(parent, (0, None))[1] is None}

    def processes(self, word: str) -> list[int]:
        """Process ids of those of its processes with this word in their command line."""
        lines = {pid: Path(f"/proc/{pid}/cmdline") for pid in self._session()}
        return [pid for pid, line in lines.items() if line.exists() and word.encode() in line.read_bytes().split(b"\0")]

    def wait_for_output(self, text: str) -> None:
        self._wait_for(text, lambda: self.stdout)

    def wait_for_error(self, text: str) -> None:
        """Waits for this text on standard error."""
        self._wait_for(text, lambda: self.stderr)

    def _wait_for(self, text: str, output: Callable[[], str]) -> None:
        deadline = time.monotonic() + TIME_LIMIT_S
        while text not in output():
            if time.monotonic() > deadline or self.process.poll() is not None:
                processes = self._session()
                self._kill()
                raise AssertionError(f"'{text}' never came; parents and ranks: {processes}{self.end()}")
            time.sleep(0.02)

    def is_stuck_mpirun(self) -> bool:
        """Whether only mpirun is left, waiting for itself. Open MPI 4's mpirun takes a lock of PMIx twice as it exits if a
        rank was killed while it connected: about once in 75 kills within the first 0.1 s."""
        return "ptl_base_connection_hdlr.c" in self.stderr and not self.ranks()

    def _kill(self) -> None:
        for pid in self._session():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def end(self, limit: float = TIME_LIMIT_S) -> Ended:
        """Waits for the end. After `limit` seconds kills the program with all its children and fails."""
        deadline = time.monotonic() + limit
        while True:
            try:
                code = self.process.wait(min(5.0, limit))
                break
            except subprocess.TimeoutExpired:
                is_late = time.monotonic() > deadline
                if is_late or self.is_stuck_mpirun():
                    self._kill()
                    code = -int(signal.SIGALRM if is_late else signal.SIGKILL)
                    break
        if code == -int(signal.SIGKILL) and not eventually(lambda: not self._session()):  # mpirun outlives its script
            self._kill()
        ended = Ended(self.command, code, self.stdout, self._text(self._stderr))
        self._stdout.close()
        self._stderr.close()
        if code == -int(signal.SIGALRM):
            raise AssertionError(f"timed out after {limit} s{ended}")
        return ended


class ProgramTest(unittest.TestCase):
    """Gives each test a new directory with a valid dataset, `self.data`, and a model directory, `self.model`."""

    default_program = "custom_training_mnist"

    def setUp(self) -> None:
        scratch = tempfile.TemporaryDirectory(prefix="lockstep_programs_")
        self.addCleanup(scratch.cleanup)
        self.scratch = Path(scratch.name)
        self.cwd = self.scratch / "cwd"
        self.cwd.mkdir()
        self.data = data_files.write_idx(self.scratch / "data")
        self.model = self.scratch / "model"

    def command(self, *options: object, workers: int = 1, name: str = "") -> list[str]:
        """One worker is started directly, several by mpirun. A None among the options separates those of workers."""
        sets: list[list[str]] = [[]]
        for option in options:
            if option is None:
                sets.append([])
            else:
                sets[-1].append(str(option))
        call = [program(name or self.default_program), "--data-dir", str(self.data), "--model-dir", str(self.model)]
        if workers == 1 and len(sets) == 1:
            return call + sets[0]
        if len(sets) == 1:
            return [str(MPIRUN), "-np", str(workers), *call, *sets[0]]
        # A shell script selects the options by rank, because mpirun's ':' crashes Open MPI 5.0.7 (Debian 13).
        cases = "".join(f"{rank}) exec {shlex.join([*call, *each])};; " for rank, each in enumerate(sets))
        return [str(MPIRUN), "-np", str(len(sets)), "bash", "-c", f"case $OMPI_COMM_WORLD_RANK in {cases}esac"]

    def start(self, *options: object, workers: int = 1, name: str = "", **environment: str) -> Running:
        return Running(self.command(*options, workers=workers, name=name), self.cwd, environment)

    def run_program(self, *options: object, workers: int = 1, name: str = "", **environment: str) -> Ended:
        return self.start(*options, workers=workers, name=name, **environment).end()

    def succeed(self, *options: object, workers: int = 1, name: str = "", **environment: str) -> Ended:
        ended = self.run_program(*options, workers=workers, name=name, **environment)
        self.assertEqual(ended.code, 0, str(ended))
        self.assertEqual(ended.errors, [], str(ended))
        return ended

    def history(self) -> dict[str, Any]:
        read: dict[str, Any] = json.loads((self.model / "history.json").read_text())
        return read

    def assert_fails(self, ended: Ended, code: int, *phrases: str, rank: int = 0) -> None:
        """Asserts one error sentence of one rank with these phrases. The chief's message has no rank."""
        self.assertEqual(ended.code, code, str(ended))
        self.assertEqual(len(ended.errors), 1, str(ended))
        start = "error: " if rank == 0 else f"[rank {rank}] error: "
        self.assertTrue(ended.errors[0].startswith(start), str(ended))
        for phrase in phrases:
            self.assertIn(phrase, ended.errors[0], str(ended))

    @contextmanager
    def earlier_model_kept(self) -> Iterator[None]:
        """Asserts that a failing run leaves the files of an earlier run unchanged and no other files."""
        earlier = {"model.h5": b"an earlier model", "history.json": b"{}", "report.html": b"<html>"}
        self.model.mkdir(exist_ok=True)
        for name, content in earlier.items():
            (self.model / name).write_bytes(content)
        yield
        # An interrupted run leaves its backups, and the lock that ended with its process.
        left = [path for path in self.model.iterdir() if path.name not in ("backup", ".lockstep.lock")]
        self.assertEqual({path.name: path.read_bytes() for path in left}, earlier)
        self.assertEqual(list(self.cwd.iterdir()), [])

    @contextmanager
    def mounted(self, size: str) -> Iterator[Path]:
        """Mounts a tmpfs of `size`. Skips the test if that is not permitted."""
        place = self.scratch / "mounted"
        place.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
        tried = subprocess.run(mount, capture_output=True, text=True)
        if tried.returncode != 0:
            self.skipTest(f"cannot mount a tmpfs ({tried.stderr.strip()})")
        try:
            yield place
        finally:
            subprocess.run(["umount", str(place)], check=True)


def eventually(condition: Callable[[], bool], limit: float = 10.0, interval: float = 0.05) -> bool:
    deadline = time.monotonic() + limit
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(interval)
    return True
