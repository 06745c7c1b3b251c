#!/usr/bin/env python3
"""Lockstep against PyTorch on the same GPU, in one run: both models, several batches, every way PyTorch has.

An epoch is 60,000 images. A program's speed is that of its median epoch, the first left out. The floor is
counted: the bytes a step must at least move and the operations it must do, over ceilings measured here
(a large copy, a large product). Prints a table; --out keeps everything as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

IMAGES = 60000
MODELS = ("keras_mnist", "custom_training_mnist")
HERE = Path(__file__).resolve().parent

# Of each model: weights, floats of activations an image, multiplications an image forward.
COUNTS = {
    "keras_mnist": (2_770_634, 28 * 28 + 26 * 26 * 32 + 128 + 10, 26 * 26 * 32 * 9 + 21632 * 128 + 1280),
    "custom_training_mnist": (
        121_930,
        28 * 28 + 26 * 26 * 32 + 13 * 13 * 32 + 11 * 11 * 64 + 5 * 5 * 64 + 64 + 10,
        26 * 26 * 32 * 9 + 11 * 11 * 64 * 288 + 1600 * 64 + 640,
    ),
}
SLOTS = {"keras_mnist": 0, "custom_training_mnist": 2}  # SGD; Adam

CEILINGS = """
import json, torch
def seconds(work, runs=20):
    for _ in range(3): work()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(runs): work()
    end.record(); torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1000 / runs
a = torch.empty(1 << 28, device="cuda"); b = torch.empty_like(a)
bandwidth = 2 * a.numel() * 4 / seconds(lambda: b.copy_(a))
del a, b
def product(kind):
    x = torch.randn(8192, 8192, device="cuda", dtype=kind); y = torch.randn_like(x)
    return 2 * 8192**3 / seconds(lambda: x @ y)
torch.backends.cuda.matmul.allow_tf32 = False
print(json.dumps({"device": torch.cuda.get_device_name(), "bytes_per_second": bandwidth,
                  "float32": product(torch.float32), "bf16": product(torch.bfloat16)}))
"""


def floor_seconds(model: str, batch: int, bf16: bool, ceilings: dict) -> float:
    """The larger of bytes over bandwidth and operations over the rate of products.

    Each weight is read by forward and by backward, its gradient written and read, itself and its slots read and
    written. Each activation is written and read twice (forward, weight gradient), its gradient written and read twice.
    """
    weights, activations, products = COUNTS[model]
    size = 2 if bf16 else 4
    moved = weights * (2 * size + 8 + 8 + 8 * SLOTS[model]) + batch * activations * 6 * size
    done = 6 * products * batch  # a multiplication and an addition, forward and twice backward
    return max(moved / ceilings["bytes_per_second"], done / ceilings["bf16" if bf16 else "float32"])


def run(command: list[str], environment: dict[str, str] | None = None) -> subprocess.CompletedProcess:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=600, check=False, env={**os.environ, **(environment or {})}
    )


def lockstep(job: argparse.Namespace, model: str, batch: int, steps: int, epochs: int, bf16: bool) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        command = [str(job.programs / model), "--device", "cuda", "--global-batch-size", str(batch)]
        command += ["--epochs", str(epochs), "--verbose", "0", "--model-dir", folder]
        if model == "keras_mnist":
            command += ["--steps-per-epoch", str(steps)]
        if bf16:
            command += ["--precision", "mixed_bfloat16"]
        if job.data_dir:
            command += ["--data-dir", job.data_dir]
        done = run(command, {"LD_LIBRARY_PATH": job.libraries} if job.libraries else None)
        if done.returncode:
            return {"error": done.stderr.strip()[-500:]}
        history = json.loads((Path(folder) / "history.json").read_text())
    epochs_of = history["epochs"]
    return {
        "device": history["world"]["device"],
        "epoch_seconds": [epoch["seconds"] for epoch in epochs_of],
        "accuracies": [epoch["val_accuracy"] for epoch in epochs_of if "val_accuracy" in epoch],
    }


def pytorch(job: argparse.Namespace, model: str, batch: int, steps: int, epochs: int, bf16: bool, way: str,
            channels_last: bool) -> dict:  # fmt: skip
    command = [sys.executable, str(HERE / "peer_pytorch.py"), "--model", model, "--batch", str(batch)]
    command += ["--steps", str(steps), "--epochs", str(epochs), "--way", way, "--data-dir", job.data_dir]
    command += ["--bf16"] * bf16 + ["--channels-last"] * channels_last
    done = run(command)
    if done.returncode:
        return {"error": done.stderr.strip()[-500:]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def seconds_to(accuracy: float, result: dict) -> float | None:
    elapsed = 0.0
    for seconds, reached in zip(result["epoch_seconds"], result["accuracies"]):
        elapsed += seconds
        if reached >= accuracy:
            return elapsed
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=Path, required=True, help="folder of keras_mnist, custom_training_mnist")
    parser.add_argument("--libraries", default="", help="LD_LIBRARY_PATH of the programs")
    parser.add_argument("--data-dir", default="", help="MNIST; without it accuracy means nothing")
    parser.add_argument("--batches", type=int, nargs="+", default=[64, 128, 1024, 8192])
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--quick", action="store_true", help="batch 128 and few ways only")
    parser.add_argument("--out", type=Path)
    job = parser.parse_args()
    if job.quick:
        job.batches, job.epochs = [128], 4

    measured = run([sys.executable, "-c", CEILINGS])
    if "ModuleNotFoundError" in measured.stderr:
        print(f"skipped: {sys.executable} has no PyTorch to compare with")
        sys.exit(77)
    if measured.returncode:
        sys.exit(f"bench.py: the ceilings could not be measured: {measured.stderr.strip()[-500:]}")
    ceilings = json.loads(measured.stdout)
    print(f"{ceilings['device']}: copies {ceilings['bytes_per_second'] / 1e12:.2f} TB/s, products "
          f"{ceilings['float32'] / 1e12:.0f} (float32) and {ceilings['bf16'] / 1e12:.0f} (bf16) TFLOP/s")  # fmt: skip
    peers = [("eager", False), ("eager", True), ("compiled", True), ("graph", False), ("graph", True)]
    if job.quick:
        peers = [("eager", False), ("graph", False), ("graph", True)]
    header = f"{'model':<22}{'batch':>6} {'precision':<9} {'program':<28}{'us/step':>9}{'images/s':>12}"
    print(header + f"{'s/epoch':>9}{'x floor':>8}{'s to 99 %':>10}")
    rows = []
    for model in MODELS:
        for batch in job.batches:
            steps = max(1, IMAGES // batch)
            for bf16 in (False, True):
                programs = [("Lockstep", lockstep(job, model, batch, steps, job.epochs, bf16))]
                for way, channels_last in peers:
                    name = f"PyTorch {way}" + (" channels-last" if channels_last else "")
                    programs.append((name, pytorch(job, model, batch, steps, job.epochs, bf16, way, channels_last)))
                for name, result in programs:
                    row = {"model": model, "batch": batch, "bf16": bf16, "program": name, **result}
                    rows.append(row)
                    start = f"{model:<22}{batch:>6} {'bf16' if bf16 else 'float32':<9} {name:<28}"
                    if "error" in result:
                        print(start + " failed: " + " ".join(result["error"].split())[-160:])
                        continue
                    epoch = statistics.median(result["epoch_seconds"][1:] or result["epoch_seconds"])
                    # custom_training_mnist trains the short last batch as well
                    trained = steps if model == "keras_mnist" or name != "Lockstep" else -(-IMAGES // batch)
                    step = epoch / trained
                    row["seconds_per_step"] = step
                    floor = floor_seconds(model, batch, bf16, ceilings)
                    reached = seconds_to(0.99, result) if job.data_dir else None
                    print(f"{start}{step * 1e6:>9.1f}{batch / step:>12.0f}{epoch:>9.3f}{step / floor:>8.1f}"
                          f"{'' if reached is None else f'{reached:.2f}':>10}", flush=True)  # fmt: skip
    if job.out:
        job.out.write_text(json.dumps({"ceilings": ceilings, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
