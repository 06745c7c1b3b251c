#!/usr/bin/env python3
"""Compares the memory of training ResNet-50 with PyTorch's: 224 x 224 pixels, batches of 32.

    python3 bench/memory.py [--binaries build/release/bin] [--size 224] [--batch 32]

Runs in a Python environment that has PyTorch and Keras; Keras makes the model's file. Both train a few steps of one
process with SGD and momentum on random pictures; Lockstep also evaluates and saves the model. It reports the largest
resident set of each process. PyTorch runs eagerly, channels last, with in-place ReLUs.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STEPS = 3

MAKE = """
import sys, keras, numpy as np
size, batch, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
model = keras.applications.ResNet50(weights=None, input_shape=(size, size, 3), classes=10)
model.compile(keras.optimizers.SGD(0.01, momentum=0.9), loss="sparse_categorical_crossentropy")
model.save(folder + "/resnet50.keras")
x, y = np.random.default_rng(0).random((batch, size, size, 3), np.float32), np.arange(batch) % 10
np.savez(folder + "/data.npz", x_train=x, y_train=y, x_test=x[:1], y_test=y[:1])
"""

TRAIN = """
import sys, torch
from torch import nn
from torch.nn import functional as F

def normalized(*convolution, **options):
    return nn.Sequential(nn.Conv2d(*convolution, bias=False, **options), nn.BatchNorm2d(convolution[1]))

class Bottleneck(nn.Module):
    def __init__(self, channels, width, stride, widens):
        super().__init__()
        self.first, self.middle = normalized(channels, width, 1), normalized(width, width, 3, stride, padding=1)
        self.last, self.relu = normalized(width, 4 * width, 1), nn.ReLU(inplace=True)
        self.shortcut = normalized(channels, 4 * width, 1, stride) if widens else None

    def forward(self, x):
        y = self.last(self.relu(self.middle(self.relu(self.first(x)))))
        y += x if self.shortcut is None else self.shortcut(x)
        return self.relu(y)

size, batch, steps = map(int, sys.argv[1:4])
layers, channels = [normalized(3, 64, 7, 2, padding=3), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)], 64
for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
    for block in range(blocks):
        layers.append(Bottleneck(channels, width, stride if block == 0 else 1, block == 0))
        channels = 4 * width
model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))
model = model.to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
x, y = torch.rand(batch, 3, size, size).contiguous(memory_format=torch.channels_last), torch.arange(batch) % 10
for step in range(steps):
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
"""


def peak_mb(pid: int) -> float:
    """The largest resident set so far; 0 if the process is gone."""
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0
    return int(found[1]) / 1024 if found else 0


def run(command: list[str]) -> float:
    """The process's peak in MB."""
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=os.environ | {"KERAS_BACKEND": "torch"})
        peak = 0.0
        while process.poll() is None:
            peak = max(peak, peak_mb(process.pid))
            time.sleep(0.02)
        if process.returncode != 0:
            output.seek(0)
            sys.exit(f"{command[0]} ended with {process.returncode}:\n{output.read()}")
    return peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binaries", type=Path, default=ROOT / "build" / "release" / "bin")
    parser.add_argument("--size", type=int, default=224, help="pixels of a side")
    parser.add_argument("--batch", type=int, default=32)
    options = parser.parse_args()
    sizes = [str(options.size), str(options.batch)]
    with tempfile.TemporaryDirectory() as folder:
        run([sys.executable, "-c", MAKE, *sizes, folder])
        command = [str(options.binaries / "lockstep"), "train", "--model", f"{folder}/resnet50.keras"]
        command += ["--data-dir", f"{folder}/data.npz", "--model-dir", folder, "--global-batch-size", sizes[1]]
        peak = run([*command, "--epochs", str(STEPS), "--backup-save-freq", "never"])
    peer = run([sys.executable, "-c", TRAIN, *sizes, str(STEPS)])
    print(f"PyTorch {peer:,.0f} MB, Lockstep {peak:,.0f} MB: {peak / peer:.2f} of it")


if __name__ == "__main__":
    main()
