#!/usr/bin/env python3
"""Runs the model programs as their users do, and looks at what comes out: exit codes, messages, files.

    tests/programs/run.py BUILD_DIR [bad_data | health | launch | options | saving | save_faults | peers | resume |
                          results | output | train | division]... [-v] [--count N] [--seed S]

Without a name all of them run. Tests that draw lots do so N times, without --count a tenth of what is usual for them.
Needs nothing but Python and the built programs.
"""

import argparse
import sys
import unittest
from pathlib import Path

import support

GROUPS = ("bad_data", "health", "launch", "options", "saving", "save_faults", "peers", "resume",
          "results", "output", "train", "division")


def main() -> int:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("build", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("-v", action="store_true")
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    support.use_build(given.build)
    support.use_lots(given.count, given.seed)
    names = given.names
    wrong = [name for name in names if name.split(".")[0] not in GROUPS]
    if wrong:
        print(f"run.py: there is no group '{wrong[0]}'; there are {', '.join(GROUPS)}", file=sys.stderr)
        return 64
    wanted = [(name + ".").replace(".", "_test.", 1).rstrip(".") for name in names or GROUPS]
    suite = unittest.defaultTestLoader.loadTestsFromNames(wanted)
    runner = unittest.TextTestRunner(stream=sys.stdout, verbosity=2 if given.v else 1)
    result = runner.run(suite)
    for test, reason in result.skipped:
        print(f"skipped: {test}: {reason}")
    # A test may fail in several of its parts and still is one.
    failed = len({getattr(test, "test_case", test).id() for test, _ in result.failures + result.errors})
    print(f"{result.testsRun - failed - len(result.skipped)} passed, {failed} failed, {len(result.skipped)} skipped")
    return 1 if failed or result.testsRun == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
