#!/usr/bin/env python3
"""Replays CONTRIBUTING.md's worked examples: applies each patch to a copy of the tree, counts the source files that it
edits, builds the unit tests of the modules that they touch, and runs them.

  replay_examples.py          what scripts/test.sh --full runs
  replay_examples.py --edit   only makes the copy, with a commit for each patch, up to one that does not apply
  replay_examples.py --save   writes the copy's commits back as patches

Without git or cmake it prints `skipped:` and exits with 77.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATCHES = Path(__file__).resolve().parent
COPY = ROOT / "build" / "contributing"
SKIPPED = 77


@dataclass(frozen=True)
class Example:
    """A patch, the number of source files that it may edit, and Catch2's cases to run in each test program."""

    patch: str
    max_sources: int
    tests: dict[str, str]


EXAMPLES = [
    Example("1_layer_snake", 4, {"layers": "*", "checkpoint": "*", "backend": "Snake*", "gpu_fake": "Snake*"}),
    Example("2_optimizer_sign_descent", 4, {"optimizers": "*", "checkpoint": "*", "backend": "*optimizer*"}),
    Example("3_weighted_layer_scale", 6, {"graph": "*", "checkpoint": "*", "backend": "Scale*", "gpu_fake": "Scale*"}),
    Example("4_option_run_name", 2, {"options": "*"}),
    Example("5_callback_train_until", 2, {"training": "TrainUntil*"}),
]


def git(*arguments: str, directory: Path = COPY) -> str:
    identity = ("-c", "user.name=replay", "-c", "user.email=replay@localhost", "-c", "commit.gpgsign=false")
    command = ["git", *identity, *arguments]
    return subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True).stdout


def copy_tree() -> None:
    """Copies the files of the working tree. The copy uses this repository's objects, so git can merge a patch whose context
    has changed."""
    shutil.rmtree(COPY, ignore_errors=True)
    for name in git("ls-files", "-co", "--exclude-standard", "-z", directory=ROOT).split("\0"):
        if not name or not (ROOT / name).exists():
            continue
        (COPY / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, COPY / name, follow_symlinks=False)
    git("init", "--quiet")
    objects = Path(git("rev-parse", "--git-path", "objects", directory=ROOT).strip())
    (COPY / ".git/objects/info/alternates").write_text(f"{ROOT / objects}\n", encoding="utf-8")
    commit("tree")


def commit(message: str) -> None:
    git("add", "--all")
    git("commit", "--quiet", "--no-verify", "--message", message)


def apply(example: Example) -> bool:
    patch = PATCHES / f"{example.patch}.patch"
    result = subprocess.run(["git", "apply", "--3way", str(patch)], cwd=COPY, capture_output=True, text=True, check=False)
    if result.returncode == 0:
        commit(example.patch)
        return True
    print(result.stderr, end="")
    print(
        f"{patch.name} no longer applies. Run {Path(__file__).relative_to(ROOT)} --edit, mend the change in "
        f"{COPY.relative_to(ROOT)}, then there `git add -A && git commit -m {example.patch}`, and run the script with --save."
    )
    return False


def has_few_sources(example: Example) -> bool:
    """Everything counts as source but tests and documentation."""
    names = git("diff", "--name-only", "HEAD~", "HEAD").split()
    sources = [name for name in names if not name.startswith(("tests/", "docs/")) and not name.endswith(".md")]
    print(f"{example.patch}: {len(sources)} source files of at most {example.max_sources}: {', '.join(sources)}")
    return len(sources) <= example.max_sources


def build_and_test() -> bool:
    environment = {"CCACHE_BASEDIR": str(ROOT), **os.environ}  # the tree's own build shares its cache with the copy's
    chosen: dict[str, set[str]] = {}
    for example in EXAMPLES:
        for test, cases in example.tests.items():
            chosen.setdefault(test, set()).add(cases)
    configure = ["cmake", "--preset", "release", "-DLOCKSTEP_BENCHES=OFF"]
    subprocess.run(configure, cwd=COPY, env=environment, check=True, stdout=subprocess.DEVNULL)
    if "bin/test_gpu_fake" not in (COPY / "build/release/build.ninja").read_text(encoding="utf-8"):
        del chosen["gpu_fake"]  # a build for real GPUs
    build = ["cmake", "--build", "--preset", "release", "--target", *(f"test_{test}" for test in chosen)]
    if subprocess.run(build, cwd=COPY, env=environment, check=False).returncode != 0:
        return False
    environment |= {"LOCKSTEP_FAKE_GPUS": "1", "OMP_NUM_THREADS": "1"}
    passed = True
    for test, cases in chosen.items():
        print(f"test_{test} {','.join(sorted(cases))}", flush=True)
        program = [str(COPY / "build/release/bin" / f"test_{test}"), ",".join(sorted(cases))]
        ended = subprocess.run(program, cwd=COPY, env=environment, check=False, stdout=subprocess.PIPE, text=True)
        print(ended.stdout, end="", flush=True)
        # Catch2 2 ends with 0 if no test has that name.
        passed = ended.returncode == 0 and "No test" not in ended.stdout and passed
    return passed


def save() -> None:
    for line in git("log", "--format=%H %s").splitlines():
        revision, subject = line.split(" ", 1)
        if subject in (example.patch for example in EXAMPLES):
            (PATCHES / f"{subject}.patch").write_text(git("diff", f"{revision}~", revision), encoding="utf-8")
            print(f"wrote {subject}.patch")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--edit", action="store_true", help="make the copy and stop")
    mode.add_argument("--save", action="store_true", help="write the copy's commits back as patches")
    arguments = parser.parse_args()
    for tool in ("git", "cmake"):
        if shutil.which(tool) is None:
            print(f"skipped: there is no {tool}")
            return SKIPPED
    if not (ROOT / ".git").exists():
        print("skipped: this is not a git repository")
        return SKIPPED
    if arguments.save:
        save()
        return 0
    copy_tree()
    for example in EXAMPLES:
        if not apply(example):
            return 1
        if not has_few_sources(example):
            return 1
    return 0 if arguments.edit or build_and_test() else 1


if __name__ == "__main__":
    sys.exit(main())
