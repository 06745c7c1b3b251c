"""What the run.py of several folders share: groups of tests that are asked for by name, and a Python that has the
packages they need."""

import importlib.util
import os
import subprocess
import sys
import unittest
from collections.abc import Iterable, Sequence

USAGE = 64
SKIPPED = 77  # as ctest is told
SYSTEM_PYTHON = "/usr/bin/python3"


def use_a_python_with(*packages: str) -> str:
    """Goes on in the system's Python, which has Debian's packages, where this one lacks them; else says what is missing."""
    if all(importlib.util.find_spec(package) for package in packages):
        return ""
    probe = [SYSTEM_PYTHON, "-c", f"import {', '.join(packages)}"]
    if sys.executable != SYSTEM_PYTHON and subprocess.run(probe, check=False, capture_output=True).returncode == 0:
        os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, *sys.argv])
    debian = " and ".join(f"python3-{package}" for package in packages)
    return f"Python's {' and '.join(packages)} are missing; install {debian} (scripts/install_packages.sh)"


def refuse_unknown(names: Sequence[str], groups: Sequence[str]) -> None:
    """Ends with 64 where one of the names is of none of the groups."""
    for name in names:
        if name.split(".")[0] not in groups:
            print(f"run.py: there is no group '{name}'; there are {', '.join(groups)}", file=sys.stderr)
            sys.exit(USAGE)


def _ids(outcomes: Iterable[tuple[unittest.TestCase, str]]) -> set[str]:
    """Of the tests: one may be there with several of its parts."""
    return {getattr(test, "test_case", test).id() for test, _ in outcomes}


def run(names: Sequence[str], verbose: bool) -> int:
    """Runs groups ("start") or single tests of them ("start.StartTest.test_any_order"): 0, 1 where one failed or there
    are none, 77 where all were skipped."""
    wanted = [(name + ".").replace(".", "_test.", 1).rstrip(".") for name in names]
    suite = unittest.defaultTestLoader.loadTestsFromNames(wanted)
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2 if verbose else 1).run(suite)
    for skipped, reason in result.skipped:
        print(f"skipped: {skipped}: {reason}")
    without_success = result.failures + result.errors + result.skipped
    # (a class that fails or is skipped whole is there as itself, and its tests have not been run)
    passed = result.testsRun - len(_ids(it for it in without_success if isinstance(it[0], unittest.TestCase)))
    failed = len(_ids(result.failures + result.errors))
    print(f"{passed} passed, {failed} failed, {len(result.skipped)} skipped")
    if failed == 0 and passed > 0:
        return 0
    return SKIPPED if failed == 0 and result.skipped else 1
