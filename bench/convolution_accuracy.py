#!/usr/bin/env python3
"""Compares the accuracy of whole trainings with Winograd's convolutions and with direct ones.

    python3 bench/convolution_accuracy.py --save FILE [--binaries build/release/bin] [--epochs 6] [--seeds 1 2 3]

Trains ResNet-20 (keras_resnet_cifar) on the synthetic pictures by --convolutions auto and direct, with each seed. One
worker of one thread each, so a run has the same bits on a busy machine. Results are saved after each run; runs that
FILE holds are not repeated.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench" / "peers"))

from harness.results import lockstep_version, this_machine, write_atomically  # noqa: E402

WAYS = ("auto", "direct")


def train(options: argparse.Namespace, convolutions: str, seed: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="convolution-accuracy-") as folder:
        command = [str(options.binaries / "keras_resnet_cifar"), "--depth", "20", "--convolutions", convolutions,
                   "--seed", str(seed), "--epochs", str(options.epochs), "--deterministic", "--verbose", "0",
                   "--device", "cpu", "--backup-save-freq", "never", "--model-dir", folder]
        ended = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
        if ended.returncode != 0:
            sys.exit(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stderr}")
        history = json.loads((Path(folder) / "history.json").read_text())
    return {"convolutions": convolutions, "seed": seed, "epochs": options.epochs,
            "accuracy": history["evaluation"]["accuracy"], "loss": history["evaluation"]["loss"],
            "val_accuracy": [epoch["val_accuracy"] for epoch in history["epochs"]]}


def table(runs: list[dict[str, Any]]) -> str:
    lines = ["seed  test accuracy: auto  direct  difference"]
    for seed in sorted({run["seed"] for run in runs}):
        found = {run["convolutions"]: 100 * run["accuracy"] for run in runs if run["seed"] == seed}
        if len(found) == len(WAYS):
            auto, direct = (found[way] for way in WAYS)
            lines.append(f"{seed:4}  {auto:18.2f} % {direct:6.2f} % {auto - direct:+9.2f} %")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binaries", type=Path, default=ROOT / "build" / "release" / "bin")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--save", type=Path, required=True)
    options = parser.parse_args()
    runs: list[dict[str, Any]] = json.loads(options.save.read_text())["runs"] if options.save.exists() else []
    done = {(run["convolutions"], run["seed"], run["epochs"]) for run in runs}
    for seed in options.seeds:
        for way in WAYS:
            if (way, seed, options.epochs) in done:
                continue
            runs.append(train(options, way, seed))
            write_atomically(options.save, {"machine": asdict(this_machine()), "date": time.strftime("%Y-%m-%d"),
                                            "version": lockstep_version(ROOT), "runs": runs})
    print(table([run for run in runs if run["epochs"] == options.epochs]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
