"""PyTorch on a GPU, as fast as its users can have it without a loop of their own in C++.

Data set and order of examples stay on the device, a batch is one index_select, the optimizers are the
fused ones, and the loss is read once an epoch. `compiled` is torch.compile with CUDA graphs
(mode="reduce-overhead") of forward and loss, `graph` one captured graph of the whole step.
Prints one JSON line: seconds of each epoch, test accuracy after each.
"""

from __future__ import annotations

import argparse
import json
import time

import torch
from torch import nn

from data import load_mnist


def build(model: str) -> nn.Module:
    if model == "keras_mnist":
        net = nn.Sequential(
            nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(21632, 128), nn.ReLU(), nn.Linear(128, 10)
        )
    else:
        net = nn.Sequential(
            nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(1600, 64), nn.ReLU(), nn.Linear(64, 10),
        )  # fmt: skip
    for layer in net:
        if hasattr(layer, "weight"):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
    return net.cuda()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=("keras_mnist", "custom_training_mnist"), required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True, help="steps an epoch")
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--way", choices=("eager", "compiled", "graph"), required=True)
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--data-dir", default="")
    job = parser.parse_args()

    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    layout = torch.channels_last if job.channels_last else torch.contiguous_format
    net = build(job.model).to(memory_format=layout)
    capturable = {"capturable": True} if job.way == "graph" else {}
    if job.model == "keras_mnist":
        optimizer = torch.optim.SGD(net.parameters(), lr=0.001, fused=True)
    else:
        optimizer = torch.optim.Adam(net.parameters(), lr=0.001, eps=1e-7, fused=True, **capturable)
    cross_entropy = nn.CrossEntropyLoss()

    (images, labels), (test_images, test_labels) = load_mnist(job.data_dir)
    pixels = torch.from_numpy(images).cuda().unsqueeze(1)
    answers = torch.from_numpy(labels).cuda()
    test_pixels = torch.from_numpy(test_images).cuda().unsqueeze(1).float().div_(255)
    test_answers = torch.from_numpy(test_labels).cuda()
    totals = torch.zeros(2, device="cuda")
    chosen = torch.zeros(job.batch, dtype=torch.int64, device="cuda")
    order = torch.empty(0, dtype=torch.int64, device="cuda")
    position = 0

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast("cuda", torch.bfloat16, enabled=job.bf16):
            logits = net(x)
        return cross_entropy(logits.float(), y), logits

    run = torch.compile(loss_of, mode="reduce-overhead") if job.way == "compiled" else loss_of

    def train() -> None:
        x = pixels[chosen].float().div_(255).contiguous(memory_format=layout)
        y = answers[chosen]
        optimizer.zero_grad(set_to_none=job.way != "graph")
        loss, logits = run(x, y)
        loss.backward()
        optimizer.step()
        totals[0] += loss.detach()
        totals[1] += (logits.detach().argmax(1) == y).sum()

    def draw() -> None:
        nonlocal order, position
        if position + job.batch > len(order):
            order, position = torch.randperm(len(answers), device="cuda"), 0
        chosen.copy_(order[position : position + job.batch])
        position += job.batch

    step = train
    if job.way == "graph":
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                draw()
                train()
        torch.cuda.current_stream().wait_stream(stream)
        recording = torch.cuda.CUDAGraph()
        with torch.cuda.graph(recording):
            train()
        step = recording.replay
    for _ in range(10):
        draw()
        step()
    torch.cuda.synchronize()

    seconds = []
    accuracies = []
    for _ in range(job.epochs):
        began = time.perf_counter()
        totals.zero_()
        for _ in range(job.steps):
            draw()
            step()
        totals.tolist()
        seconds.append(time.perf_counter() - began)
        with torch.no_grad():
            right = sum(
                int((net(x.contiguous(memory_format=layout)).argmax(1) == y).sum())
                for x, y in zip(test_pixels.split(1000), test_answers.split(1000))
            )
        accuracies.append(right / len(test_answers))
    print(json.dumps({"version": torch.__version__, "epoch_seconds": seconds, "accuracies": accuracies}))


if __name__ == "__main__":
    main()
