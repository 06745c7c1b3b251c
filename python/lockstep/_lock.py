"""Locks on directories, so that two trainings do not write in one."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from lockstep._native import IoError, PeerError, UsageError

_POLL_S = 0.1
_MAX_BYTES = 1024  # of a job's id


def hold(path: Path, wait_s: float = 0, job: str = "", keep: Callable[[int], None] | None = None) -> int:
    """Lock a file in a directory, and make both if need be. Return the descriptor that holds the lock.

    The lock ends when the descriptor is closed, and when the process ends; unless `keep` gives it to a launcher, from
    which the next generation of the job takes it. Raises `IoError` if the file cannot be made. If another process
    keeps it for `wait_s` seconds, raises `PeerError` if that is an earlier process of the same `job`, which will end,
    and else `UsageError`.
    """
    directory = path.parent
    end = time.monotonic() + wait_s
    try:
        directory.mkdir(parents=True, exist_ok=True)
        while True:
            if keep is not None and any(_is(path, kept) for kept in _inherited()):
                return _succeed(path, job, keep)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
            with contextlib.suppress(BlockingIOError):
                _lock(descriptor, path)
                if _is(path, descriptor):
                    _write(descriptor, job)
                    if keep is not None:
                        keep(descriptor)
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


def require_held(path: Path, descriptor: int) -> None:
    """Raise `PeerError` unless the descriptor that `hold` returned is still that of the file in the directory."""
    if not _is(path, descriptor):
        raise PeerError(
            f"{path.parent} belongs to another training now, or was moved or replaced, so this process writes nothing "
            "more there"
        )


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
        print(
            f"warning: {path} is on a file system without locks ({error.strerror}), so a second training that writes "
            "there would not be noticed; make sure that no other one uses this directory",
            file=sys.stderr,
        )


def _write(descriptor: int, job: str) -> None:
    os.pwrite(descriptor, job.encode(), 0)
    os.ftruncate(descriptor, len(job.encode()))


def _inherited() -> list[int]:
    """Return the descriptors that the launcher has kept from earlier generations."""
    numbers = os.environ.get("LOCKSTEP_KEPT_FILES", "").split(",")
    return [int(number) for number in numbers if number.isdecimal() and int(number) > 2]


def _succeed(path: Path, job: str, keep: Callable[[int], None]) -> int:
    """Replace the lock of an earlier generation, which then notices, without letting anybody else in."""
    following = path.with_name(path.name + ".next")
    following.unlink(missing_ok=True)  # of a generation that was killed here
    descriptor = os.open(following, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    _lock(descriptor, path)
    _write(descriptor, job)
    keep(descriptor)
    following.replace(path)
    return descriptor


def _is(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EBADF):  # a script between launcher and program closed it
            return False
        raise
