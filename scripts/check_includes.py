#!/usr/bin/env python3
"""Checks that each source compiles by itself: it includes what it uses. The presets join sources, which hides it.

    scripts/check_includes.py [--one-in N] [--seed S]

With --one-in it takes a sample, which depends on the seed. Configures build/alone, and compiles no code.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "alone"


def check(entry: dict[str, str]) -> str:
    """What the compiler says; empty if the source is right."""
    words = shlex.split(entry["command"])
    if Path(words[0]).name == "ccache":
        words = words[1:]
    done = subprocess.run([*words, "-fsyntax-only"], cwd=entry["directory"], capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stderr or f"{entry['file']}: exit code {done.returncode}\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one-in", type=int, default=1, metavar="N", help="check one in N sources [1]")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="of the sample [1]")
    given = parser.parse_args()
    configure = ["cmake", "--preset", "release", "-B", str(BUILD), "-DCMAKE_UNITY_BUILD=OFF"]
    subprocess.run(configure, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    entries = sorted(json.loads((BUILD / "compile_commands.json").read_text()), key=lambda entry: str(entry["file"]))
    entries = [entry for entry in entries if entry["file"].endswith(".cpp")]
    chosen = random.Random(given.seed).sample(entries, max(1, len(entries) // given.one_in))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        said = [text for text in pool.map(check, chosen) if text]
    print("".join(said) + f"{len(chosen)} of {len(entries)} sources compiled by themselves, {len(said)} failed")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
