#!/usr/bin/env python3
"""Runs the model programs as users do and checks exit codes, messages and files.

    tests/programs/run.py BUILD_DIR [GROUP]... [-v] [--count N] [--seed S] [--ledger FILE]

GROUP is the name of a file here without _test.py, or GROUP.CLASS[.TEST].
Without a name all groups run. --count sets the number of repetitions of random tests; the default is a tenth of the
usual count. Needs only Python and the built programs.
"""

import argparse
import sys
from pathlib import Path

import support

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import groups  # noqa: E402
import two_jobs_test  # noqa: E402

GROUPS = tuple(sorted(path.stem.removesuffix("_test") for path in Path(__file__).parent.glob("*_test.py")))


def main() -> int:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("build", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("-v", action="store_true")
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ledger", type=Path, help="of two_jobs")
    given = parser.parse_args()
    support.use_build(given.build)
    support.set_scale(given.count, given.seed)
    two_jobs_test.ledger = given.ledger
    groups.reject_unknown_groups(given.names, GROUPS)
    return groups.run(given.names or GROUPS, given.v)


if __name__ == "__main__":
    sys.exit(main())
