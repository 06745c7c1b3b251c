#!/usr/bin/env python3
"""Runs keras_mnist on a GPU: reproducible bits, bfloat16, odd numbers of ranks, no device; and the stages of checks.

    tests/gpu/run.py BUILD_DIR KERAS_MNIST [programs[.ProgramsTest.test_...]]... [-v]

KERAS_MNIST is the program of a build with CUDA, or the one with the fake GPU. Exits with 77 if there is no GPU.
"""

import argparse
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "programs"), str(TESTS / "support")]
import groups  # noqa: E402
import support  # noqa: E402

GROUPS = ("programs", "stages")


def main() -> int:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("build", type=Path)
    parser.add_argument("program", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("-v", action="store_true")
    given = parser.parse_args()
    support.use_build(given.build)
    support.ProgramTest.default_program = str(given.program.resolve())
    groups.reject_unknown_groups(given.names, GROUPS)
    return groups.run(given.names or GROUPS, given.v)


if __name__ == "__main__":
    sys.exit(main())
