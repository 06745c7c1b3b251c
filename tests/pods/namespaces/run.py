#!/usr/bin/env python3
"""Jobs of several pods on one machine, each in a network namespace of its own, and what befalls them there.

    tests/pods/namespaces/run.py BUILD_DIR [bandwidth | chaos | chief | elastic | leave | start | strangers]...
                                 [-v] [--full] [--count N] [--seed S] [--results FILE]

Without a name all of them run. --full takes the times and numbers that the job must stand; without it they are shorter.
Takes root, and is reported as skipped without."""

import argparse
import signal
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TESTS / "programs"), str(TESTS / "support")]
import chaos_test  # noqa: E402
import groups  # noqa: E402
import scale  # noqa: E402
import support  # noqa: E402

GROUPS = ("bandwidth", "chaos", "chief", "elastic", "leave", "start", "strangers")


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
    groups.refuse_unknown(given.names, GROUPS)
    signal.signal(signal.SIGTERM, interrupt)
    return groups.run(given.names or GROUPS, given.v)


if __name__ == "__main__":
    sys.exit(main())
