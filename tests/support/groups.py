"""Shared by the run.py of several folders: selects groups of tests by name and finds a Python with the needed
packages."""

import importlib.util
import os
import subprocess
import sys
import unittest
from collections.abc import Iterable, Sequence

USAGE = 64
SKIPPED = 77  # ctest's SKIP_RETURN_CODE
SYSTEM_PYTHON = "/usr/bin/python3"


def find_python_with(*packages: str) -> str:
    """Restarts in the system's Python, which has Debian's packages, if this one lacks some. Returns what is missing."""
    if all(importlib.util.find_spec(package) for package in packages):
        return ""
    probe = [SYSTEM_PYTHON, "-c", f"import {', '.join(packages)}"]
    if sys.executable != SYSTEM_PYTHON and subprocess.run(probe, check=False, capture_output=True).returncode == 0:
        os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, *sys.argv])
    debian = " and ".join(f"python3-{package}" for package in packages)
    return f"Python's {' and '.join(packages)} are missing; install {debian} (scripts/install_packages.sh)"


def reject_unknown_groups(names: Sequence[str], groups: Sequence[str]) -> None:
    """Exits with 64 if a name belongs to no group."""
    for name in names:
        if name.split(".")[0] not in groups:
            print(f"run.py: unknown group '{name}'; the groups are {', '.join(groups)}", file=sys.stderr)
            sys.exit(USAGE)


def _ids(outcomes: Iterable[tuple[unittest.TestCase, str]]) -> set[str]:
    """The ids of tests. A test with several failed subtests counts once."""
    return {getattr(test, "test_case", test).id() for test, _ in outcomes}


def run(names: Sequence[str], verbose: bool) -> int:
    """Runs groups ("start") or single tests ("start.StartTest.test_any_order"). Returns 0 for success, 1 if a test
    failed or there are none, 77 if all were skipped."""
    wanted = [(name + ".").replace(".", "_test.", 1).rstrip(".") for name in names]
    suite = unittest.defaultTestLoader.loadTestsFromNames(wanted)
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2 if verbose else 1).run(suite)
    for skipped, reason in result.skipped:
        print(f"skipped: {skipped}: {reason}")
    without_success = result.failures + result.errors + result.skipped
    # A class that fails or is skipped as a whole is listed under its own name, and its tests are not run.
    passed = result.testsRun - len(_ids(it for it in without_success if isinstance(it[0], unittest.TestCase)))
    failed = len(_ids(result.failures + result.errors))
    print(f"{passed} passed, {failed} failed, {len(result.skipped)} skipped")
    if failed == 0 and passed > 0:
        return 0
    return SKIPPED if failed == 0 and result.skipped else 1
