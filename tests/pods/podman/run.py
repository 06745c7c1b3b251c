#!/usr/bin/env python3
"""Builds the image and runs what the template renders in pods: a session from claim to inspection, and lost pods.

    tests/pods/podman/run.py BUILD_DIR [image | session]... [--image IMAGE] [-v]    or session.SessionTest.test_two_workers

Needs root, Podman and buildah (scripts/install_packages.sh --full), and a network to fetch packages from; where one of
these is not to be had, says so and is skipped. With --image an image built before is taken. Images and the compiler's
cache stay in BUILD_DIR/pods for the next time.
"""

import argparse
import importlib.util
import os
import signal
import subprocess
import sys
import unittest
from pathlib import Path

from engine import Engine, Unavailable, missing

ROOT = Path(__file__).resolve().parents[3]
IMAGE = "localhost/lockstep:tested"
GROUPS = ("image", "session")
CANNOT_BE_HAD = 75
SYSTEM_PYTHON = "/usr/bin/python3"


def skip(reason: str) -> int:
    print(f"skipped: {reason}")
    return 0


def use_a_python_with_packages() -> str:
    """Goes on in the system's Python, which has Debian's packages, where this one lacks them; else says what is missing."""
    packages = ("yaml", "jinja2")
    if all(importlib.util.find_spec(package) for package in packages):
        return ""
    probe = [SYSTEM_PYTHON, "-c", f"import {', '.join(packages)}"]
    if sys.executable != SYSTEM_PYTHON and subprocess.run(probe, capture_output=True).returncode == 0:
        os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, *sys.argv])
    return "jinja2 and PyYAML are not installed (scripts/install_packages.sh)"


def build(engine: Engine) -> bool:
    """Whether there is an image now; raises Unavailable where its base cannot be had."""
    log = engine.home / "build.log"
    command = [str(ROOT / "scripts/build_image.sh"), "--engine", "buildah", "--tag", IMAGE]
    with log.open("w", encoding="utf-8") as output:
        code = subprocess.run(command, env=engine.environment, stdout=output, stderr=subprocess.STDOUT).returncode
    said = log.read_text(encoding="utf-8").strip().splitlines() or ["the image cannot be built"]
    if code == CANNOT_BE_HAD:
        raise Unavailable(said[-1])
    print("\n".join(said[-1:] if code == 0 else said[-30:]))
    return code == 0


def run(engine: Engine, names: list[str], image: str, verbosity: int) -> int:
    import image_test
    import session_test

    if not image:
        image = IMAGE
        if not build(engine):
            return 1
    engine.make_network(image)
    image_test.use(engine, image)
    session_test.use(engine, image)
    wanted = [(name + ".").replace(".", "_test.", 1).rstrip(".") for name in names or GROUPS]
    suite = unittest.defaultTestLoader.loadTestsFromNames(wanted)
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=verbosity).run(suite)
    return 0 if result.wasSuccessful() and result.testsRun else 1


def main() -> int:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("build", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--image", default="")
    parser.add_argument("-v", action="store_true")
    given = parser.parse_intermixed_args()
    wrong = [name for name in given.names if name.split(".")[0] not in GROUPS]
    if wrong:
        print(f"run.py: there is no group '{wrong[0]}'; there are {', '.join(GROUPS)}", file=sys.stderr)
        return 64
    if reason := missing() or use_a_python_with_packages():
        return skip(reason)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: containers go whatever happens
    try:
        with Engine(given.build / "pods") as engine:
            return run(engine, given.names, given.image, 2 if given.v else 1)
    except Unavailable as reason:
        return skip(str(reason))


if __name__ == "__main__":
    sys.exit(main())
