"""Locks on directories, so that two trainings do not write in one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

from lockstep._native import IoError, PeerError, UsageError

_POLL_S = 0.1
_MAX_BYTES = 1024  # of a job's id


def hold(path: Path, wait_s: float = 0, job: str = "") -> int:
    """Lock a file in a directory, and make both if need be. Return the descriptor that holds the lock.

    The lock ends when the descriptor is closed, and when the process ends. Raises `IoError` if the file cannot be made.
    If another process keeps it for `wait_s` seconds, raises `PeerError` if that is an earlier process of the same
    `job`, which will end, and else `UsageError`.
    """
    directory = path.parent
    end = time.monotonic() + wait_s
    try:
        directory.mkdir(parents=True, exist_ok=True)
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is(path, descriptor):
                    os.pwrite(descriptor, job.encode(), 0)
                    os.ftruncate(descriptor, len(job.encode()))
                    return descriptor
                end = max(end, time.monotonic() + _POLL_S)  # the training that held it has ended, and removed the file
            is_same_job = job != "" and os.pread(descriptor, _MAX_BYTES, 0) == job.encode()
            os.close(descriptor)
            if time.monotonic() > end:
                if is_same_job:
                    raise PeerError(f"an earlier process of this job still trains in {directory}")
                raise UsageError(
                    f"another process trains in {directory}; wait for it to end, or name another backup_dir"
                )
            time.sleep(_POLL_S)
    except OSError as error:
        if isinstance(error, IoError | PeerError):  # which are errors of the operating system, too
            raise
        raise IoError(f"cannot use the backup_dir {directory}: {error}") from error


def _is(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
