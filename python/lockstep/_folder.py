"""The temporary folder of a job. If its process is killed, the next job removes it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from lockstep._fork import close_in_forked_children

_PREFIX = "lockstep-"
_OWNER = ".lockstep-owner"  # locked as long as the process lives


class TemporaryFolder:
    """A folder in the system's place for temporary files."""

    def __init__(self) -> None:
        remove_abandoned(Path(tempfile.gettempdir()))
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        unlocked = self.path / f"{_OWNER}.new"
        self._owner = unlocked.open("xb")
        fcntl.flock(self._owner, fcntl.LOCK_EX)
        unlocked.rename(self.path / _OWNER)  # from now on it can be abandoned
        close_in_forked_children(self._owner)

    def remove(self, but: Path | None = None) -> None:
        """Remove the folder, or all that is in it but one file."""
        if but is None:
            shutil.rmtree(self.path, ignore_errors=True)
        else:
            _remove_entries(self.path, but)
        self._owner.close()


def remove_abandoned(parent: Path) -> None:
    """Remove the folders of processes that were killed."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # it is another user's, in use, or removed at the same time
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            with (folder / _OWNER).open("rb") as owner:
                fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)


def _remove_entries(folder: Path, but: Path) -> None:
    for entry in folder.iterdir():
        if entry == but:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)
