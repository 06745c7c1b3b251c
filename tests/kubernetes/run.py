#!/usr/bin/env python3
"""Renders the Kubernetes templates and looks at what comes out, or why nothing does.

    tests/kubernetes/run.py BUILD_DIR [examples | manifests | refusals | schemas | session]... [-v] [--full] [--update]

Without a name all of them run. --full: every version of Kubernetes and the whole product of the parameters. --update:
writes jinja/examples anew. Ends with 77 where nothing could be tested: packages cannot be had.
"""

import argparse
import importlib.util
import os
import subprocess
import sys
import unittest
from pathlib import Path

GROUPS = ("examples", "manifests", "refusals", "schemas", "session")
PACKAGES = ("jinja2", "yaml")
SKIPPED = 77
SYSTEM_PYTHON = "/usr/bin/python3"


def use_a_python_with_packages() -> None:
    """Goes on in the system's Python, which has Debian's packages, where this one lacks them."""
    if all(importlib.util.find_spec(package) for package in PACKAGES):
        return
    probe = [SYSTEM_PYTHON, "-c", f"import {', '.join(PACKAGES)}"]
    if sys.executable != SYSTEM_PYTHON and subprocess.run(probe, check=False, capture_output=True).returncode == 0:
        os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, *sys.argv])
    print("skipped: jinja2 and PyYAML are missing; install python3-jinja2 and python3-yaml")
    sys.exit(SKIPPED)


def main() -> int:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("build", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("-v", action="store_true")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--update", action="store_true")
    given = parser.parse_args()
    wrong = [name for name in given.names if name.split(".")[0] not in GROUPS]
    if wrong:
        print(f"run.py: there is no group '{wrong[0]}'; there are {', '.join(GROUPS)}", file=sys.stderr)
        return 64
    use_a_python_with_packages()
    import support  # only now: it needs the packages

    support.use(given.build, given.full)
    if given.update:
        import examples_test

        examples_test.update()
        return 0
    wanted = [(name + ".").replace(".", "_test.", 1).rstrip(".") for name in given.names or GROUPS]
    suite = unittest.defaultTestLoader.loadTestsFromNames(wanted)
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2 if given.v else 1).run(suite)
    for test, reason in result.skipped:
        print(f"skipped: {test}: {reason}")
    failed = len({getattr(test, "test_case", test).id() for test, _ in result.failures + result.errors})
    print(
        f"{result.testsRun - failed - len(result.skipped)} passed, {failed} failed, {len(result.skipped)} skipped"
    )
    if failed or result.testsRun == 0:
        return 1
    return SKIPPED if len(result.skipped) == result.testsRun else 0


if __name__ == "__main__":
    sys.exit(main())
