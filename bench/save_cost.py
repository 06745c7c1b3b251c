#!/usr/bin/env python3
"""Measures what a backup costs training: keras_mnist with Adam, whose weights and optimizer state are 33 MB.

    python3 bench/save_cost.py --data-dir MNIST [--binaries build/release/bin] [--repeats 5]
    python3 bench/save_cost.py --parallelism tensor --link 1gbit [--against build/before/bin]

Runs without backups and runs with one every --frequency steps take turns. It reports two figures: how long a backup
blocks the training thread, which must be less than a step (Lockstep measures this copy of weights and optimizer state);
and by how much the steps around it slow down while another thread writes the file, on fully used cores.

The second form joins two hosts with one core each by the given link (network namespaces, which need root). If layers
are tensor parallel, the chief first gathers half of the 33 MB. Rounds of steps with and without a save take turns in
one run, and the difference is reported: once with a file, and once with a path that cannot be written, which leaves the
gather and the file in memory. With --against both builds take turns. bare_sending.py sends as many bytes over the same
link between the same cores. Its cost, that of the kernel's TCP and of shaping the link, is unavoidable; the remainder
must be less than a step.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "programs"))
import support  # noqa: E402
from two_hosts import Network, shape, succeed_on_two_hosts, two_hosts  # noqa: E402

MPIRUN = ROOT / "scripts" / "mpirun.sh"
UNWRITABLE = "/proc/nowhere/model.h5"
GATHERED_BYTES = 16_640_000  # half of keras_mnist's weights and Adam's two arrays


def run(command: list[str]) -> None:
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stderr}")


def train(options: argparse.Namespace, model: Path, frequency: str, folder: Path) -> dict[str, float]:
    run([str(MPIRUN), "-np", "2", str(options.binaries / "lockstep"), "train", "--model", str(model),
         "--optimizer", "adam", "--epochs", "1", "--steps-per-epoch", str(options.steps), "--verbose", "0",
         "--backup-save-freq", frequency, "--resume", "never", "--parallelism", options.parallelism, "--model-dir", str(folder),
         "--data-dir", options.data_dir])
    history = json.loads((folder / "history.json").read_text())
    timing = history["timing"]
    return {"step": timing["profile_ms_per_step"]["total"], "backup": timing["ms_per_backup"],
            "backups": timing["backups"], "epoch": history["epochs"][0]["seconds"] * 1000}


def train_between_hosts(options: argparse.Namespace, network: Network, binaries: Path, file: str,
                        folder: Path) -> dict[str, Any]:
    support.use_build(binaries.parent)
    data = ["--data-dir", str(Path(options.data_dir).resolve())]
    command = [support.program("save_bench"), *data, "--parallelism", options.parallelism, "--verbose", "0",
               "--epochs", str(options.rounds), "--steps-per-epoch", str(options.round_steps),
               "--on-checkpoint-failure", "continue"]
    job = succeed_on_two_hosts(network, folder, options.link, command, options=("--max-restarts", "0"),
                               OMP_NUM_THREADS="1", LOCKSTEP_BENCH_FILE=file)
    text = "".join(line.text for line in job.chief.lines)
    found: dict[str, Any] = json.loads(text[text.index('{"step_ms'):text.rindex("}") + 1])
    return found


def time_bare_sockets(options: argparse.Namespace, network: Network) -> float:
    """The milliseconds by which sending a save's gathered bytes over bare sockets slows down compute."""
    shape(network, options.link)
    listening, sending = network.hosts
    cores = sorted(os.sched_getaffinity(0))[:2]
    ends = []
    for host, core, words in ((listening, cores[0], ["--listen"]), (sending, cores[1], ["--to", listening.address])):
        ends.append(subprocess.Popen(
            host.command(["taskset", "-c", str(core), sys.executable, str(ROOT / "bench" / "bare_sending.py"), *words,
                          "--step-ms", "9.5", "--exchange-bytes", "65536", "--bytes", str(GATHERED_BYTES)]),
            stdout=subprocess.PIPE, text=True))
    texts = [end.communicate(timeout=120)[0] for end in ends]
    if any(end.returncode != 0 for end in ends):
        sys.exit("bare_sending.py failed")
    found: dict[str, float] = json.loads(texts[0])
    return found["added_ms"]


def compare_between_hosts(options: argparse.Namespace) -> int:
    network = two_hosts()
    builds = [options.binaries, *([options.against] if options.against else [])]
    gathered: dict[str, float] = {}
    bare: list[float] = []
    with tempfile.TemporaryDirectory(prefix="save-cost-") as name:
        files = {"gather only": UNWRITABLE, "with the file": str(Path(name) / "saved.h5")}
        found: dict[tuple[Path, str], list[dict[str, Any]]] = {}
        for _ in range(options.repeats):
            bare.append(time_bare_sockets(options, network))
            for build in builds:
                for what, file in files.items():
                    found.setdefault((build, what), []).append(
                        train_between_hosts(options, network, build, file, Path(name)))
        for (build, what), samples in found.items():
            step, blocked, longer = (statistics.median(sample[key] for sample in samples)
                                     for key in ("step_ms", "blocked_ms", "added_ms"))
            print(f"{build}, {what}: step {step:.2f} ms; a save blocks the training thread for {blocked:.2f} ms and adds "
                  f"{longer:.1f} ms in total, {longer / step:.1f} steps "
                  f"(runs: {', '.join(format(sample['added_ms'], '.1f') for sample in samples)})")
            print("  step by step: " + " ".join(f"{statistics.median(times):.1f}" for times in
                                                 zip(*(sample["step_by_step_ms"] for sample in samples))))
            if build == options.binaries and what == "gather only":
                gathered = {"step": step, "longer": longer}
    floor = statistics.median(bare)
    added = gathered["longer"] - floor
    print(f"bare sockets take {floor:.1f} ms for these bytes; the gather adds {added:.1f} ms: "
          f"{added / gathered['step']:.2f} of a step")
    return 0 if added < gathered["step"] else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default=os.environ.get("LOCKSTEP_MNIST_DIR"), required=not os.environ.get("LOCKSTEP_MNIST_DIR"))
    parser.add_argument("--binaries", type=Path, default=ROOT / "build" / "release" / "bin")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--frequency", type=int, default=100, help="optimizer steps from one backup to the next")
    parser.add_argument("--parallelism", default="data", choices=("data", "tensor"))
    parser.add_argument("--link", default="", help="between two hosts: unlimited, or a rate in tc's notation")
    parser.add_argument("--against", type=Path, help="programs of another build")
    parser.add_argument("--rounds", type=int, default=15, help="rounds with a save, and as many without")
    parser.add_argument("--round-steps", type=int, default=160)
    options = parser.parse_args()
    if options.link:
        return compare_between_hosts(options)
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
    print(f"step {step:.2f} ms; a backup blocks the training thread for {backup:.2f} ms, {backup / step:.2f} of a step")
    print(f"writing in the background adds {longer:.1f} ms per backup, {longer / step:.1f} steps "
          f"({backups:.0f} backups in {options.steps} steps)")
    return 0 if backup < step else 1


if __name__ == "__main__":
    sys.exit(main())
