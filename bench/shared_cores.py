#!/usr/bin/env python3
"""How much slower does training become beside a program that burns half of each core?

    python3 bench/shared_cores.py build/release [--runs 3]

A fair scheduler leaves at least half of each core, so a step takes at most twice as long if threads and ranks that wait
for each other sleep. Prints milliseconds a step, as the median of the runs: one worker with a thread for each core, and
one worker for each core. The program fails if a step takes more than three times as long: 1.5 times what the share
allows.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PERIOD = 0.005  # seconds of burning, then of sleep
LIMIT = 3.0


def burn(core: int) -> None:
    os.sched_setaffinity(0, {core})
    while True:
        end = time.monotonic() + PERIOD
        while time.monotonic() < end:
            pass
        time.sleep(PERIOD)


def milliseconds_a_step(build: Path, workers: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        train = [str(build / "bin" / "keras_mnist"), "--epochs", "1", "--steps-per-epoch", "150", "--data-dir", "",
                 "--backup-save-freq", "never", "--model-dir", folder]
        mpirun = [] if workers == 1 else [str(ROOT / "scripts" / "mpirun.sh"), "-np", str(workers)]
        subprocess.run([*mpirun, *train], check=True, stdout=subprocess.DEVNULL)
        timing = json.loads((Path(folder) / "history.json").read_text())["timing"]
        return float(timing["profile_ms_per_step"]["total"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--burn", type=int, metavar="CORE", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.burn is not None:
        burn(given.burn)
    cores = sorted(os.sched_getaffinity(0))
    times: dict[tuple[int, bool], list[float]] = {}
    for _ in range(given.runs):
        for is_shared in (False, True):
            with ExitStack() as stack:
                for core in cores if is_shared else ():
                    burner = subprocess.Popen([sys.executable, __file__, str(given.build), "--burn", str(core)])
                    stack.callback(burner.wait)
                    stack.callback(burner.kill)
                for workers in (1, len(cores)):
                    times.setdefault((workers, is_shared), []).append(milliseconds_a_step(given.build, workers))
    worst = 0.0
    for workers in (1, len(cores)):
        alone, shared = (statistics.median(times[workers, is_shared]) for is_shared in (False, True))
        worst = max(worst, shared / alone)
        print(f"{workers} workers: {alone:.2f} ms a step alone, {shared:.2f} ms on shared cores, "
              f"{shared / alone:.2f} times as long")
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
