"""Gives each worker of this host a core of its own. Imports only the standard library."""

from __future__ import annotations

import os
from pathlib import Path


def pin() -> None:
    """Bind all threads of this process to the core of its LOCAL_RANK. Threads that start later inherit that.

    A Lockstep program calls it after lockstep.init(), which looks at how many cores the ranks share.
    """
    core = sorted(os.sched_getaffinity(0))[int(os.environ["LOCAL_RANK"])]
    for task in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(task.name), {core})
