"""Files that are whole or not there, whatever interrupts a write."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable
from pathlib import Path


def replace_file(path: Path, content: bytes, check: Callable[[], None] = lambda: None) -> None:
    """Write a file whole or not at all. A hard link to the file that was there keeps the old content.

    Calls `check` before the file gets its name. What a killed process leaves begins with a dot and the file's name.
    Raises OSError, and what `check` raises.
    """
    temporary = path.with_name(f".{path.name.lstrip('.')}.{secrets.token_hex(8)}")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        check()
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    """Make the names in a directory durable, on file systems that can."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # of some network file systems
            raise
    finally:
        os.close(descriptor)
