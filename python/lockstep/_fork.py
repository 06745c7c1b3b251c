"""What a process forks, such as a pool that loads data, may outlive it: what is open there must not live on."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Closable(Protocol):
    """A lock or a socket."""

    def close(self) -> None:
        """Close this process' copy."""


_items: WeakSet[Closable] = WeakSet()


def close_in_forked_children(item: Closable) -> None:
    """Close an item, as long as it is used, in each process that this one forks."""
    _items.add(item)


def _close_all() -> None:
    for item in _items:
        item.close()


os.register_at_fork(after_in_child=_close_all)
