#!/usr/bin/env python3
"""Compares Lockstep with PyTorch and JAX on one GPU: both models, several batch sizes and precisions, all execution
modes of PyTorch, and JAX's jitted step.

An epoch is 60,000 images. A program's speed is that of its median epoch after the first. The floor of a step is
computed: the bytes that it must move and the operations that it must do, divided by the measured rates of a large
copy and a large matrix product. The program prints each row when it is measured, the most important ones first, and
finally Lockstep's speed relative to theirs. --out saves everything as JSON after each row. A peer that is not installed
is skipped by name; without PyTorch there is no floor. With --quick, or --minutes 9, it takes about ten minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

IMAGES = 60000
MODELS = ("keras_mnist", "custom_training_mnist")
HERE = Path(__file__).resolve().parent

# For each model: parameters, activations (floats per image), multiplications of the forward pass per image.
COUNTS = {
    "keras_mnist": (2_770_634, 28 * 28 + 26 * 26 * 32 + 128 + 10, 26 * 26 * 32 * 9 + 21632 * 128 + 1280),
    "custom_training_mnist": (
        121_930,
        28 * 28 + 26 * 26 * 32 + 13 * 13 * 32 + 11 * 11 * 64 + 5 * 5 * 64 + 64 + 10,
        26 * 26 * 32 * 9 + 11 * 11 * 64 * 288 + 1600 * 64 + 640,
    ),
}
PRECISIONS = {"float32": (), "tf32": ("--allow-tf32",), "bf16": ("--precision", "mixed_bfloat16")}
SLOTS = {"keras_mnist": 0, "custom_training_mnist": 2}  # optimizer slots per parameter: SGD, Adam

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
def product(kind, tf32=False):
    torch.backends.cuda.matmul.allow_tf32 = tf32
    x = torch.randn(8192, 8192, device="cuda", dtype=kind); y = torch.randn_like(x)
    return 2 * 8192**3 / seconds(lambda: x @ y)
print(json.dumps({"device": torch.cuda.get_device_name(), "bytes_per_second": bandwidth,
                  "float32": product(torch.float32), "tf32": product(torch.float32, True),
                  "bf16": product(torch.bfloat16)}))
"""


def floor_seconds(model: str, batch: int, precision: str, ceilings: dict) -> float:
    """The larger of bytes over bandwidth and operations over the rate of matrix products, in seconds per step.

    Forward and backward read each weight; backward writes its gradient; the update reads the gradient and reads and
    writes the weight and its slots. Each activation is written once and read twice (by the next layer and for the
    weight gradient); the same holds for its gradient.
    """
    weights, activations, products = COUNTS[model]
    size = 2 if precision == "bf16" else 4
    moved = weights * (2 * size + 8 + 8 + 8 * SLOTS[model]) + batch * activations * 6 * size
    done = 6 * products * batch  # multiplication and addition, once forward and twice backward
    return max(moved / ceilings["bytes_per_second"], done / ceilings[precision])


class Peer:
    """A process that runs one job per line of its input. Restarted if a job has killed it."""

    def __init__(self, job: argparse.Namespace, name: str, script: str) -> None:
        self.name = name
        self.command = [sys.executable, str(HERE / script), "--data-dir", job.data_dir]
        self.command += ["--device", job.device]
        self.process: subprocess.Popen | None = None

    def run(self, **job: object) -> dict:
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        return json.loads(answer) if answer else {"error": f"{self.name} ended with {self.process.wait()}"}

    def end(self) -> None:
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()


def lockstep(job: argparse.Namespace, model: str, batch: int, steps: int, epochs: int, precision: str) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        command = [str(job.programs / model), "--device", job.device, "--global-batch-size", str(batch)]
        command += ["--epochs", str(epochs), "--verbose", "0", "--model-dir", folder, "--backup-save-freq", "never"]
        if model == "keras_mnist":
            command += ["--steps-per-epoch", str(steps)]
        command += PRECISIONS[precision]
        if job.data_dir:
            command += ["--data-dir", job.data_dir]
        environment = {**os.environ, **({"LD_LIBRARY_PATH": job.libraries} if job.libraries else {})}
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)
        except (OSError, subprocess.TimeoutExpired) as error:
            return {"error": str(error)}
        if done.returncode:
            return {"error": done.stderr.strip()[-500:]}
        history = json.loads((Path(folder) / "history.json").read_text())
    epochs_of = history["epochs"]
    return {
        "device": history["world"]["device"],
        "epoch_seconds": [epoch["seconds"] for epoch in epochs_of],
        "accuracies": [epoch["val_accuracy"] for epoch in epochs_of if "val_accuracy" in epoch],
    }


def seconds_to(accuracy: float, result: dict) -> float | None:
    elapsed = 0.0
    for seconds, reached in zip(result["epoch_seconds"], result["accuracies"]):
        elapsed += seconds
        if reached >= accuracy:
            return elapsed
    return None


def missing_jax(device: str) -> str:
    """Why JAX cannot be measured; empty if it can."""
    finds = "import sys, jax; jax.devices(sys.argv[1])"
    tried = subprocess.run([sys.executable, "-c", finds, "gpu" if device == "cuda" else device], capture_output=True,
                           text=True, check=False)  # fmt: skip
    if tried.returncode == 0:
        return ""
    return "has no JAX" if "ModuleNotFoundError" in tried.stderr else "has a JAX that finds no GPU"


def measure_ceilings() -> dict | None:
    """Returns None if PyTorch is not installed."""
    measured = subprocess.run([sys.executable, "-c", CEILINGS], capture_output=True, text=True, check=False)
    if "ModuleNotFoundError" in measured.stderr:
        return None
    if measured.returncode:
        sys.exit(f"bench.py: cannot measure the GPU's ceilings: {measured.stderr.strip()[-500:]}")
    return json.loads(measured.stdout)


def kinds_of_runs(job: argparse.Namespace) -> list[tuple[str, int, str]]:
    """(model, batch, precision) of all rows; float32 with batch 128 first."""
    first = [(model, batch, "float32") for batch in job.batches if batch == 128 for model in MODELS]
    every = [(model, batch, precision) for precision in PRECISIONS for batch in job.batches for model in MODELS]
    return first + [kind for kind in every if kind not in first]


def epochs_for(job: argparse.Namespace, model: str, batch: int) -> int:
    """Enough epochs for 99 % test accuracy, for the model that reaches it."""
    return max(job.epochs, 12) if model == "custom_training_mnist" and batch <= 128 and job.data_dir else job.epochs


def print_summary(rows: list[dict]) -> None:
    print("\nLockstep's speedup over PyTorch in its faster layout, and over JAX")
    columns = ("eager", "graphs", "jit")
    print(f"{'model':<22}{'batch':>6} {'precision':<9}{'eager':>8}{'with CUDA graphs':>18}{'JAX':>8}")
    kinds = dict.fromkeys((row["model"], row["batch"], row["precision"]) for row in rows)
    for kind in kinds:
        model, batch, precision = kind
        steps: dict[str, list[float]] = {column: [] for column in ("", *columns)}
        for row in rows:
            if (row["model"], row["batch"], row["precision"]) == kind and "seconds_per_step" in row:
                steps[row["mode"] if row["mode"] in steps else "graphs"].append(row["seconds_per_step"])
        if not steps[""]:
            continue
        eager, graphs, jit = (f"{min(steps[c]) / steps[''][0]:.1f}" if steps[c] else "" for c in columns)
        print(f"{model:<22}{batch:>6} {precision:<9}{eager:>8}{graphs:>18}{jit:>8}")


def write(job: argparse.Namespace, ceilings: dict | None, rows: list[dict]) -> None:
    if job.out:
        job.out.write_text(json.dumps({"ceilings": ceilings, "rows": rows}, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=Path, required=True, help="folder with keras_mnist, custom_training_mnist")
    parser.add_argument("--libraries", default="", help="LD_LIBRARY_PATH of the programs")
    parser.add_argument("--data-dir", default="", help="MNIST; without it accuracy is meaningless")
    parser.add_argument("--batches", type=int, nargs="+", default=[64, 128, 1024, 8192])
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--quick", action="store_true", help="four epochs, and only PyTorch's usually fastest modes")
    parser.add_argument("--minutes", type=float, default=0, help="skip rows that would begin after this time; 0: never")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--device", default="cuda", help="cpu tests this program without a GPU, in eager mode only")
    job = parser.parse_args()
    began = time.monotonic()
    modes = [(mode, layout) for mode in ("eager", "compiled", "graph") for layout in (False, True)]
    if job.quick:
        job.epochs = min(job.epochs, 4)
        modes = [("eager", False), ("compiled", True), ("graph", False), ("graph", True)]
    if job.device == "cpu":
        ceilings = {"device": "CPU", "bytes_per_second": 1e10, **dict.fromkeys(PRECISIONS, 1e11)}
        modes = [("eager", False)]
    else:
        ceilings = measure_ceilings()
    if ceilings is None:
        print(f"{sys.executable} has no PyTorch: its rows and the floor are skipped")
        modes = []
    else:
        products = ", ".join(f"{ceilings[precision] / 1e12:.0f} ({precision})" for precision in PRECISIONS)
        print(f"{ceilings['device']}: copy {ceilings['bytes_per_second'] / 1e12:.2f} TB/s, matrix product in TFLOP/s: "
              f"{products}")  # fmt: skip
    if problem := missing_jax(job.device):
        print(f"{sys.executable} {problem}: its rows are skipped")
    else:
        modes = [*modes, ("jit", False)]
    header = f"{'model':<22}{'batch':>6} {'precision':<9} {'program':<31}{'us/step':>9}{'examples/s':>12}"
    print(header + f"{'s/epoch':>9}{'x floor':>8}{'s to 99 %':>10}", flush=True)
    pytorch, jax = Peer(job, "PyTorch", "peer_pytorch.py"), Peer(job, "JAX", "peer_jax.py")
    rows: list[dict] = []
    left_out = 0
    for model, batch, precision in kinds_of_runs(job):
        steps = max(1, IMAGES // batch)
        epochs = epochs_for(job, model, batch)
        for mode, channels_last in [("", False), *modes]:
            if job.minutes and time.monotonic() - began > 60 * job.minutes:
                left_out += 1
                continue
            peer = jax if mode == "jit" else pytorch
            name = f"{peer.name} {mode}" + (" channels-last" if channels_last else "") if mode else "Lockstep"
            if mode:
                result = peer.run(model=model, batch=batch, steps=steps, epochs=epochs, precision=precision, mode=mode,
                                  channels_last=channels_last)  # fmt: skip
            else:
                result = lockstep(job, model, batch, steps, epochs, precision)
            row = {"model": model, "batch": batch, "precision": precision, "program": name, "mode": mode, **result}
            rows.append(row)
            start = f"{model:<22}{batch:>6} {precision:<9} {name:<31}"
            if "error" in result:
                print(start + " failed: " + " ".join(result["error"].split())[-160:], flush=True)
                write(job, ceilings, rows)
                continue
            epoch = statistics.median(result["epoch_seconds"][1:] or result["epoch_seconds"])
            # custom_training_mnist also trains on the short last batch
            trained = steps if model == "keras_mnist" or mode else -(-IMAGES // batch)
            row["seconds_per_step"] = step = epoch / trained
            row["floor_seconds"] = floor_seconds(model, batch, precision, ceilings) if ceilings else None
            row["seconds_to_99"] = reached = seconds_to(0.99, result) if job.data_dir else None
            floor = f"{step / row['floor_seconds']:.1f}" if ceilings else ""
            print(f"{start}{step * 1e6:>9.1f}{batch / step:>12.0f}{epoch:>9.3f}{floor:>8}"
                  f"{'' if reached is None else f'{reached:.2f}':>10}", flush=True)  # fmt: skip
            write(job, ceilings, rows)
    pytorch.end()
    jax.end()
    if modes:
        print_summary(rows)
    if left_out:
        print(f"{left_out} rows were skipped after --minutes {job.minutes:g}")
    if not any("seconds_per_step" in row for row in rows if not row["mode"]):
        sys.exit("bench.py: all runs of Lockstep failed")


if __name__ == "__main__":
    main()
