"""What a process forks, such as a pool that loads data, may outlive it: what is open there must not live on."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Closable(Protocol):
    """A lock or a socket."""

    def close(self) -> None:
        """Close this process' copy."""


def close_in_forked_children(item: Closable) -> None:
    """Close an item in each process that this one forks from now on."""
    held = weakref.ref(item)

    def close() -> None:
        if (inherited := held()) is not None:
            inherited.close()

    os.register_at_fork(after_in_child=close)
