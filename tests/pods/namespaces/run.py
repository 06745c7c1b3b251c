#!/usr/bin/env python3
"""Jobs of several pods on one machine, each in a network namespace of its own, and what befalls them there.

    tests/pods/namespaces/run.py BUILD_DIR [bandwidth | chaos | chief | elastic | leave | start | strangers]...
                                 [-v] [--full] [--count N] [--seed S] [--results FILE]

Without a name all of them run. --full takes the times and numbers that the job must stand; without it they are shorter.
Takes root, and is reported as skipped without."""

import argparse
import signal
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "programs"))
import chaos_test  # noqa: E402
import scale  # noqa: E402
import support  # noqa: E402

GROUPS = ("bandwidth", "chaos", "chief", "elastic", "leave", "start", "strangers")

SKIPPED = 77  # as ctest is told


def interrupt(*_: object) -> None:
    """As Ctrl-C does: what was made is removed."""
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("build", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("-v", action="store_true")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=Path)
    given = parser.parse_args()
    support.use_build(given.build)
    scale.full = given.full
    support.use_lots(given.count or (100 if given.full else None), given.seed)
    chaos_test.results_file = given.results
    names = given.names
    wrong = [name for name in names if name.split(".")[0] not in GROUPS]
    if wrong:
        print(f"run.py: there is no group '{wrong[0]}'; there are {', '.join(GROUPS)}", file=sys.stderr)
        return 64
    signal.signal(signal.SIGTERM, interrupt)
    wanted = [(name + ".").replace(".", "_test.", 1).rstrip(".") for name in names or GROUPS]
    suite = unittest.defaultTestLoader.loadTestsFromNames(wanted)
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2 if given.v else 1).run(suite)
    for test, reason in result.skipped:
        print(f"skipped: {test}: {reason}")
    failed = len({getattr(test, "test_case", test).id() for test, _ in result.failures + result.errors})
    print(f"{result.testsRun - failed} passed, {failed} failed, {len(result.skipped)} skipped")
    if failed:
        return 1
    return SKIPPED if result.skipped and result.testsRun == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
