"""A job of `lockstep.fit` and its like: a launcher with workers, which are fresh processes, and the channel to them.

The channel is a pair of sockets that the launcher and its trainers inherit. Each packet is one JSON object, so a worker
that is killed leaves no half message. The worker of rank 0 speaks first, in every generation: {"event": "hello",
"version": 2, "generation": 0, "workers": 2}. When this process ends, so do the launcher and its workers, and the other
way round.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from lockstep._folder import TemporaryFolder
from lockstep._fork import close_in_forked_children
from lockstep._memory import MemoryFile
from lockstep._native import DataError, DirectoryLock, Error, InternalError, IoError, PeerError, UsageError
from lockstep._world import find_command

VERSION = 3  # of the channel's messages and of job.json
Message = dict[str, Any]

_ERRORS: dict[int, type[Error]] = {64: UsageError, 65: DataError, 70: InternalError, 74: IoError, 75: PeerError}
_MISTAKES = (64, 65)
_NO_CAUSE = "which a restart cannot fix"  # ends what a launcher says of a worker, which has said why
# What the command calls otherwise than the Python package. Other arguments have their option's name.
_PYTHON_WORDS = {
    ", or begin another job with these weights (--initial-weights, or --model of lockstep train, and another "
    "--model-dir)": "",
    "start over with --resume never": "name another backup_dir, or remove it",
    "--global-batch-size": "batch_size",
}
_LAUNCHERS_CODE = re.compile(r"exit code (\d+)(?: \(.*\))?, " + _NO_CAUSE)
# A handler of the caller's for SIGCHLD may take the exit code of a process before this module asks for it.
_TELL_CODE = 'code=0; "$@" || code=$?; echo "exit code $code"'
_SEE_HELP = re.compile(r"; see [a-z ]*--help$")
_OPTION = re.compile(r"--([a-z]+(?:-[a-z]+)*)")
_SHOWN_LINES = 10
_MAX_PACKET = 1 << 20
_END_S = 10  # for a launcher to end its workers
# Describe other jobs and give their options. A worker takes its options from its command line alone.
_OF_TEMPLATES = ("BATCH_SIZE", "DATA_DIR", "MODEL_DIR", "NUM_TRAIN_EPOCH")
_NOT_INHERITED = (*_OF_TEMPLATES, "CLUSTER_CONFIG", "TF_CONFIG")
# Variables of Lockstep that are no options and change no result: for tests, and how a machine is used.
_INHERITED = ("LOCKSTEP_CUDA_", "LOCKSTEP_DATA_MIRROR", "LOCKSTEP_FAKE_", "LOCKSTEP_SIMULATED_HOSTS", "LOCKSTEP_TEST_")


def variables_of_templates() -> dict[str, str]:
    """Return the caller's variables that Lockstep's programs take for options, and the caller's own code may read."""
    return {name: os.environ[name] for name in _OF_TEMPLATES if name in os.environ}


def environment() -> dict[str, str]:
    """Return the environment of a launcher and of native workers on this host."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in _NOT_INHERITED and (not name.startswith("LOCKSTEP_") or name.startswith(_INHERITED))
    }


def error_of(code: int, log: str, where: str) -> Error:
    """Return the exception for a command's exit code and what it wrote."""
    told = _LAUNCHERS_CODE.findall(log)
    if code not in _ERRORS and told:  # a handler of the caller's for SIGCHLD took the code
        code = int(told[-1])
    lines = [line for line in log.splitlines() if line.strip()]
    causes = [line.split("error: ", 1)[1] for line in lines if "error: " in line]
    causes = [cause for cause in causes if not cause.endswith(_NO_CAUSE)] or causes
    sentence = causes[-1] if causes else f"the launcher ended with code {code}"
    others = [line for line in lines if sentence not in line]
    for option, argument in _PYTHON_WORDS.items():
        sentence = sentence.replace(option, argument)
    sentence = _OPTION.sub(lambda option: option[1].replace("-", "_"), _SEE_HELP.sub("", sentence))
    shown = "".join(f"\n  {line}" for line in others[-_SHOWN_LINES:]) if where else ""
    rest = f"\nThe last lines of the workers' log, {where}:{shown}" if where else ""
    return _ERRORS.get(code, InternalError)(sentence + rest)


class Job:
    """A folder, memory files and, once started, a launcher. Leaving the ``with`` block ends and removes all of it."""

    def __init__(self) -> None:
        if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
            raise UsageError(
                "this process ignores SIGCHLD, so it cannot learn how workers end; call "
                "signal.signal(signal.SIGCHLD, signal.SIG_DFL) before"
            )
        self._owner = os.getpid()
        self._temporary = TemporaryFolder()
        self.folder = self._temporary.path
        self._files: list[MemoryFile] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._read_log = 0  # bytes of the log that new_lines() has returned
        self.keeps_log = False

    def is_own(self) -> bool:
        """Return whether this process started the job: one that a callback forked did not."""
        return os.getpid() == self._owner

    def memory_file(self, name: str) -> MemoryFile:
        """Make a memory file. Workers that start later inherit it."""
        file = MemoryFile(name)
        self._files.append(file)
        return file

    def link(self, name: str, file: MemoryFile) -> Path:
        """Give a memory file a name in the folder, whose ending tells what it holds."""
        path = self.folder / name
        path.unlink(missing_ok=True)
        path.symlink_to(file.path)
        return path

    @property
    def log(self) -> Path:
        """What launcher and workers write."""
        return self.folder / "log"

    def describe(self, job: Message) -> Path:
        """Write what the workers do, and return the file."""
        path = self.folder / "job.json"
        path.write_text(json.dumps({"version": VERSION, **job}))
        return path

    def run(self, command: Sequence[str]) -> tuple[int, str]:
        """Run a command that uses the job's files; return its exit code and what it wrote."""
        done = subprocess.run(
            ["sh", "-c", _TELL_CODE, "sh", *command],
            pass_fds=[file.descriptor for file in self._files],
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            check=False,
        )
        output, _, code = done.stdout.decode(errors="replace").rpartition("exit code ")
        return int(code), output

    def start(
        self,
        workers: int,
        command: Sequence[str],
        locks: Sequence[DirectoryLock] = (),
        variables: dict[str, str] | None = None,
    ) -> None:
        """Start the workers, which take over the locks; the option --channel is appended to their command."""
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        close_in_forked_children(self._socket)  # rank 0 lives until the last of its copies is closed
        # The limits of silence are for jobs that nobody watches: here a callback of the caller may take any time.
        launch = [find_command(), "launch", "--workers", str(workers), "--busy-timeout", "0", "--"]
        kept = [lock.fileno() for lock in locks]
        with theirs, self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*launch, *command, "--channel", str(theirs.fileno())],
                pass_fds=[theirs.fileno(), *kept, *(file.descriptor for file in self._files)],
                env=environment() | {"LOCKSTEP_KEPT_FILES": ",".join(map(str, kept))} | (variables or {}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # so that Ctrl-C reaches this process alone
            )

    def send(self, message: Message) -> None:
        """Send a message to the worker of rank 0. If it has died, its successor asks again."""
        assert self._socket is not None
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._socket.send(json.dumps(message).encode())

    def messages(self, work: Callable[[], bool] = lambda: False) -> Iterator[Message]:
        """Yield the messages of rank 0 until launcher and workers have ended.

        Until a message is there, calls `work` while it returns True.
        """
        assert self._socket is not None
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        while True:
            while not poll.poll(0) and work():
                pass
            try:
                packet = self._socket.recv(_MAX_PACKET)
            except ConnectionResetError:
                return
            if not packet:
                return
            message: Message = json.loads(packet)
            if message.get("event") == "hello" and message.get("version") != VERSION:
                raise UsageError("the Python package and its workers have different versions; reinstall the package")
            yield message

    def result(self) -> Message | None:
        """Return the workers' message of their result when they have ended; None if they failed."""
        result = None
        for message in self.messages():
            if message["event"] == "result":
                result = message
        return result

    def new_lines(self) -> list[str]:
        """Return what was logged since the last call."""
        with self.log.open("rb") as file:
            file.seek(self._read_log)
            text = file.read()
        self._read_log += len(text)
        return text.decode(errors="replace").splitlines()

    def wait(self) -> int:
        """Wait until the launcher has ended, and return its exit code."""
        assert self._process is not None
        return self._process.wait()

    def error(self) -> Error:
        """Return the exception for a launcher that has ended, and keep its log, unless the sentence says it all."""
        code = self.wait()
        log = self.log.read_text(errors="replace")
        self.keeps_log = code not in _MISTAKES or "Traceback" in log
        return error_of(code, log, str(self.log) if self.keeps_log else "")

    def end(self) -> None:
        """End the launcher and the workers if they are still running."""
        if self._socket is not None:
            self._socket.shutdown(socket.SHUT_RDWR)  # also for processes that this one has forked
            self._socket.close()  # rank 0 ends then, and the launcher the others
            self._socket = None
        if self._process is None:
            return
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)  # its trainers die with it
            self._process.wait()
        self._process = None

    def __enter__(self) -> Job:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.is_own():
            return
        self.end()
        for file in self._files:
            file.close()
        self._temporary.remove(but=self.log if self.keeps_log else None)
