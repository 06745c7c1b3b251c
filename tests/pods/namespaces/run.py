#!/usr/bin/env python3
"""Runs jobs of several pods on one machine, each in its own network namespace, and injects faults.

    tests/pods/namespaces/run.py BUILD_DIR [bandwidth | random_faults | chief | elastic | leave | start | links |
                                 unauthenticated_peers | junk_connections | junk_everywhere |
                                 fault_matrix]...
                                 [-v] [--full] [--count N] [--seed S] [--results FILE]

Without a name all but fault_matrix run. --full uses the required durations and counts; otherwise they are shorter.
Needs root; without root it is skipped."""

import argparse
import signal
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TESTS / "programs"), str(TESTS / "support")]
import fault_matrix_test  # noqa: E402
import random_faults_test  # noqa: E402
import groups  # noqa: E402
import scale  # noqa: E402
import support  # noqa: E402

GROUPS = ("bandwidth", "random_faults", "chief", "elastic", "leave", "start", "links", "unauthenticated_peers",
          "junk_connections", "junk_everywhere", "fault_matrix")


def interrupt(*_: object) -> None:
    """Handles SIGTERM like Ctrl-C, so that tests clean up."""
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
    support.set_scale(given.count or (100 if given.full else None), given.seed)
    random_faults_test.results_file = fault_matrix_test.ledger = given.results
    groups.reject_unknown_groups(given.names, GROUPS)
    signal.signal(signal.SIGTERM, interrupt)
    return groups.run(given.names or [name for name in GROUPS if name != "fault_matrix"], given.v)


if __name__ == "__main__":
    sys.exit(main())
