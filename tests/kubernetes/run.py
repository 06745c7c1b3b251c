#!/usr/bin/env python3
"""Renders the Kubernetes template, checks the manifests, and checks that invalid parameters are refused.

    tests/kubernetes/run.py BUILD_DIR [examples | helm | manifests | openshift | refusals | schemas | session]... [-v] [--full] [--update]

Without a name all groups run. --full tests every version of Kubernetes and all combinations of the parameters. --update
rewrites jinja/examples. Exits with 77 if the packages are unavailable.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import groups  # noqa: E402

GROUPS = ("examples", "helm", "manifests", "openshift", "refusals", "schemas", "session")


def main() -> int:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("build", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("-v", action="store_true")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--update", action="store_true")
    given = parser.parse_args()
    groups.reject_unknown_groups(given.names, GROUPS)
    if reason := groups.find_python_with("jinja2", "yaml"):
        print(f"skipped: {reason}")
        return groups.SKIPPED
    import support  # not at the top, because it needs the packages

    support.use(given.build, given.full)
    if given.update:
        import examples_test

        examples_test.update()
        return 0
    return groups.run(given.names or GROUPS, given.v)


if __name__ == "__main__":
    sys.exit(main())
