#!/usr/bin/env python3
"""Builds the image and runs the rendered manifests in pods: a whole session, and lost pods.

    tests/pods/podman/run.py BUILD_DIR [image | session | session.SessionTest.test_two_workers]... [--image IMAGE] [-v]

Needs root, Podman and buildah (scripts/install_packages.sh --full), and a network to download packages; otherwise it is
skipped with a message. --image uses an existing image. Images and ccache's files stay in BUILD_DIR/pods for the next
run.
"""

import argparse
import signal
import subprocess
import sys
from pathlib import Path

from engine import Engine, Unavailable, image_command, missing

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "support"))
import groups  # noqa: E402

IMAGE = "localhost/lockstep:tested"
GROUPS = ("image", "session")
CANNOT_BE_HAD = 75


def skip(reason: str) -> int:
    print(f"skipped: {reason}")
    return 0


def build(engine: Engine) -> bool:
    """Returns whether the image exists now; raises Unavailable if its base image cannot be fetched."""
    log = engine.home / "build.log"
    with log.open("w", encoding="utf-8") as output:
        code = subprocess.run(image_command(IMAGE), env=engine.environment, stdout=output, stderr=subprocess.STDOUT).returncode
    said = log.read_text(encoding="utf-8").strip().splitlines() or ["the image cannot be built"]
    if code == CANNOT_BE_HAD:
        raise Unavailable(said[-1])
    print("\n".join(said[-1:] if code == 0 else said[-30:]))
    return code == 0


def run(engine: Engine, names: list[str], image: str, verbose: bool) -> int:
    import image_test
    import session_test

    if not image:
        image = IMAGE
        if not build(engine):
            return 1
    engine.make_network(image)
    image_test.use(engine, image)
    session_test.use(engine, image)
    return groups.run(names or GROUPS, verbose)


def main() -> int:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("build", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--image", default="")
    parser.add_argument("-v", action="store_true")
    given = parser.parse_intermixed_args()
    groups.reject_unknown_groups(given.names, GROUPS)
    if reason := missing() or groups.find_python_with("jinja2", "yaml"):
        return skip(reason)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C, so that containers are removed
    try:
        with Engine(given.build / "pods") as engine:
            return run(engine, given.names, given.image, given.v)
    except Unavailable as reason:
        return skip(str(reason))


if __name__ == "__main__":
    sys.exit(main())
