#!/usr/bin/env python3
"""Runs the sessions of docs/kubernetes.md on the cluster that KUBECONFIG names, in a namespace of its own.

    tests/pods/kubernetes/run.py [session | lost_pods | mistakes | beside]... --image IMAGE
                                 [--load COMMAND] [--storage-class CLASS] [--new-volume COMMAND] [--drain] [-v]

--load is run first, to bring the image to the nodes (kind load docker-image lockstep:cpu). --new-volume is run before each
claim, on a cluster that makes no volumes itself, with the volume's name, size and access mode as its last arguments.
--drain allows the test that drains a node, which evicts other pods there too.

Needs kubectl, PyYAML and jinja2. Without KUBECONFIG it is skipped.
"""

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TESTS / "support"), str(TESTS / "programs"), str(TESTS / "pods")]
import cluster  # noqa: E402
import groups  # noqa: E402

GROUPS = ("session", "lost_pods", "mistakes", "beside")


def missing() -> str:
    if not os.environ.get("KUBECONFIG"):
        return "KUBECONFIG names no cluster"
    if not shutil.which("kubectl"):
        return "kubectl is missing"
    return groups.find_python_with("jinja2", "yaml")


def main() -> int:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--image", required=True)
    parser.add_argument("--load", default="")
    parser.add_argument("--storage-class", default="")
    parser.add_argument("--new-volume", default="")
    parser.add_argument("--drain", action="store_true")
    parser.add_argument("-v", action="store_true")
    given = parser.parse_intermixed_args()
    groups.reject_unknown_groups(given.names, GROUPS)
    if reason := missing():
        print(f"skipped: {reason}")
        return groups.SKIPPED
    if given.load:
        subprocess.run(shlex.split(given.load), check=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C, so that the namespace is deleted
    cluster.settings = cluster.Settings(given.image, given.storage_class, shlex.split(given.new_volume), given.drain)
    return groups.run(given.names or GROUPS, given.v)


if __name__ == "__main__":
    sys.exit(main())
