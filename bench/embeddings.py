#!/usr/bin/env python3
"""Measures training of a text classifier (Embedding 20,000 x 128, two Conv1D) on two hosts with one core each, joined by
a link that `tc` shapes. Needs root.

    python3 bench/embeddings.py [--binaries build/release/bin] [--against build/before/bin] [--repeats 3]

Only the rows of the Embedding that a batch reads travel between hosts. Words are drawn by Zipf's law, as in texts, or
uniformly, where a batch reads most rows. With --against both builds take turns. A figure is the median of the runs; a
run's is that of its median epoch.
"""

import argparse
import array
import json
import os
import random
import statistics
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "programs"))
import data_files  # noqa: E402
from model_file_support import description  # noqa: E402
from two_hosts import Network, succeed_on_two_hosts, two_hosts  # noqa: E402

WORDS, WIDTH, LENGTH, BATCH, STEPS, EPOCHS = 20_000, 128, 500, 128, 10, 3
LAYERS = (("Embedding", {"input_dim": WORDS, "output_dim": WIDTH}),
          ("Conv1D", {"filters": 128, "kernel_size": [7], "strides": [3], "activation": "relu"}),
          ("Conv1D", {"filters": 128, "kernel_size": [7], "strides": [3], "activation": "relu"}),
          ("GlobalMaxPooling1D", {}), ("Dense", {"units": 2}))


def write_data(path: Path, words: str) -> None:
    chance = random.Random(1)
    weights = None if words == "uniform" else [1 / rank for rank in range(1, WORDS + 1)]
    with zipfile.ZipFile(path, "w") as archive:
        for part, count in (("train", BATCH * STEPS), ("test", 8)):
            drawn = array.array("i", chance.choices(range(WORDS), weights, k=count * LENGTH))
            archive.writestr(f"x_{part}.npy", data_files.npy((count, LENGTH), drawn.tobytes(), "<i4"))
            archive.writestr(f"y_{part}.npy", data_files.npy((count,), bytes(i % 2 for i in range(count))))


def speed(network: Network, binaries: Path, link: str, parallelism: str, folder: Path) -> float:
    command = [str(binaries / "lockstep"), "train", "--model", str(folder / "model.json"), "--optimizer", "adam",
               "--loss", "sparse_categorical_crossentropy", "--data-dir", str(folder / "data.npz"), "--model-dir",
               str(folder / "out"), "--global-batch-size", str(BATCH), "--epochs", str(EPOCHS), "--parallelism",
               parallelism, "--backup-save-freq", "never", "--resume", "never", "--verbose", "0"]
    succeed_on_two_hosts(network, folder, link, command, options=("--insecure",), OMP_NUM_THREADS="1")
    epochs = json.loads((folder / "out" / "history.json").read_text())["epochs"]
    return statistics.median(float(epoch["examples_per_second"]) for epoch in epochs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binaries", type=Path, default=ROOT / "build" / "release" / "bin")
    parser.add_argument("--against", type=Path)
    parser.add_argument("--links", nargs="+", default=["1gbit", "unlimited"])
    parser.add_argument("--words", nargs="+", choices=("zipf", "uniform"), default=["zipf", "uniform"])
    parser.add_argument("--parallelisms", nargs="+", choices=("data", "auto"), default=["data", "auto"])
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    builds = [options.binaries.resolve()] + ([options.against.resolve()] if options.against else [])
    os.environ["PATH"] = f"{builds[0]}:{os.environ['PATH']}"
    network = two_hosts()
    print("link       words    parallelism  examples/s")
    try:
        for words in options.words:
            with tempfile.TemporaryDirectory() as scratch:
                folder = Path(scratch)
                (folder / "model.json").write_text(description(*LAYERS, shape=(LENGTH,)))
                write_data(folder / "data.npz", words)
                for link in options.links:
                    for parallelism in options.parallelisms:
                        runs = [[speed(network, build, link, parallelism, folder) for build in builds]
                                for _ in range(options.repeats)]
                        medians = [f"{statistics.median(each):10,.0f}" for each in zip(*runs)]
                        print(f"{link:10} {words:8} {parallelism:12}{'  before'.join(medians)}", flush=True)
    finally:
        network.close()


if __name__ == "__main__":
    main()
