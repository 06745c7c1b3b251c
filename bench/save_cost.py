#!/usr/bin/env python3
"""What a backup costs training: keras_mnist with Adam, whose weights and optimizer state are 33 MB.

    python3 bench/save_cost.py [--data-dir MNIST] [--binaries build/release/bin] [--repeats 5]

Runs take turns without backups and with one every so many steps. Two figures count: how long the training thread is
kept by a backup (the copy of weights and optimizer state; Lockstep itself measures that) against a step, which must be
less than 1; and how much longer the steps around it take while the file is written beside them, on cores that have
nothing else to spare. Everything else is the standard library.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MPIRUN = ROOT / "scripts" / "mpirun.sh"


def run(command: list[str]) -> None:
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stderr}")


def train(options: argparse.Namespace, model: Path, frequency: str, folder: Path) -> dict[str, float]:
    run([str(MPIRUN), "-np", "2", str(options.binaries / "lockstep"), "train", "--model", str(model),
         "--optimizer", "adam", "--epochs", "1", "--steps-per-epoch", str(options.steps), "--verbose", "0",
         "--backup-save-freq", frequency, "--resume", "never", "--model-dir", str(folder),
         *(["--data-dir", options.data_dir] if options.data_dir else [])])
    history = json.loads((folder / "history.json").read_text())
    timing = history["timing"]
    return {"step": timing["profile_ms_per_step"]["total"], "backup": timing["ms_per_backup"],
            "backups": timing["backups"], "epoch": history["epochs"][0]["seconds"] * 1000}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default=os.environ.get("LOCKSTEP_MNIST_DIR", ""))
    parser.add_argument("--binaries", type=Path, default=ROOT / "build" / "release" / "bin")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--frequency", type=int, default=100, help="optimizer steps from one backup to the next")
    options = parser.parse_args()
    with_backups: list[dict[str, float]] = []
    without: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="save-cost-") as name:
        folder = Path(name)
        run([str(options.binaries / "keras_mnist"), "--epochs", "1", "--steps-per-epoch", "1", "--verbose", "0",
             "--model-dir", str(folder / "model")])
        for _ in range(options.repeats):
            without.append(train(options, folder / "model" / "model.h5", "never", folder / "without"))
            with_backups.append(train(options, folder / "model" / "model.h5", str(options.frequency), folder / "with"))
    step = statistics.median(sample["step"] for sample in without)
    backup = statistics.median(sample["backup"] for sample in with_backups)
    backups = statistics.median(sample["backups"] for sample in with_backups)
    longer = statistics.median(w["epoch"] - o["epoch"] for w, o in zip(with_backups, without)) / max(backups, 1)
    print(f"a step: {step:.2f} ms; a backup keeps the training thread for {backup:.2f} ms, {backup / step:.2f} of a step")
    print(f"written beside training: the steps around each backup take {longer:.1f} ms longer in all, "
          f"{longer / step:.1f} steps ({backups:.0f} backups in {options.steps} steps)")
    return 0 if backup < step else 1


if __name__ == "__main__":
    sys.exit(main())
