"""PyTorch on a GPU, as fast as it gets from Python.

Dataset, order of examples and position stay on the device, the optimizers are fused, and the loss is read once per
epoch. Mode `eager` adds nothing to that. `compiled` runs forward and loss under torch.compile with CUDA graphs
(mode="reduce-overhead"). `graph` captures the whole step with its input pipeline in one CUDA graph. The program reads
one job per line, a JSON object, and answers each with a line: seconds and test accuracy of each epoch, or the error.
`--device cpu` tests this program without a GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import nn

from data import load_mnist
from peer_jobs import answer_jobs


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
    return net


class Peer:
    def __init__(self, device: str, data_dir: str) -> None:
        self.device = torch.device(device)
        (images, labels), (test_images, test_labels) = load_mnist(data_dir)
        self.pixels = torch.from_numpy(images).to(device).unsqueeze(1)
        self.answers = torch.from_numpy(labels).to(device)
        self.test_pixels = torch.from_numpy(test_images).to(device).unsqueeze(1).float().div_(255)
        self.test_answers = torch.from_numpy(test_labels).to(device)

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def run(
        self, model: str, batch: int, steps: int, epochs: int, precision: str, mode: str, channels_last: bool
    ) -> dict:
        bf16 = precision == "bf16"
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
        torch.manual_seed(0)
        torch._dynamo.reset()
        layout = torch.channels_last if channels_last else torch.contiguous_format
        net = build(model).to(self.device, memory_format=layout)
        capturable = {"capturable": True} if mode == "graph" else {}
        if model == "keras_mnist":
            optimizer = torch.optim.SGD(net.parameters(), lr=0.001, fused=True)
        else:
            optimizer = torch.optim.Adam(net.parameters(), lr=0.001, eps=1e-7, fused=True, **capturable)
        cross_entropy = nn.CrossEntropyLoss()
        totals = torch.zeros(2, device=self.device)
        order = torch.randint(len(self.answers), ((steps + 16) * batch,), device=self.device)
        position = torch.zeros(1, dtype=torch.int64, device=self.device)
        ramp = torch.arange(batch, device=self.device)

        def loss_of(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=bf16):
                logits = net(x)
            return cross_entropy(logits.float(), y), logits

        compute = torch.compile(loss_of, mode="reduce-overhead") if mode == "compiled" else loss_of

        def train() -> None:
            chosen = order[position + ramp]
            position.add_(batch)
            x = self.pixels[chosen].float().div_(255).contiguous(memory_format=layout)
            y = self.answers[chosen]
            optimizer.zero_grad(set_to_none=mode != "graph")
            loss, logits = compute(x, y)
            loss.backward()
            optimizer.step()
            totals[0] += loss.detach()
            totals[1] += (logits.detach().argmax(1) == y).sum()

        step = self.captured(train) if mode == "graph" else train
        for _ in range(5):
            step()
        self.synchronize()

        seconds = []
        accuracies = []
        for _ in range(epochs):
            began = time.perf_counter()
            drawn = torch.randperm(len(self.answers), device=self.device)[: steps * batch]
            order[: len(drawn)] = drawn
            position.zero_()
            totals.zero_()
            for _ in range(steps):
                step()
            totals.tolist()
            seconds.append(time.perf_counter() - began)
            accuracies.append(self.accuracy(net, layout))
        return {"version": torch.__version__, "epoch_seconds": seconds, "accuracies": accuracies}

    def captured(self, train: Callable[[], None]) -> Callable[[], None]:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                train()
        torch.cuda.current_stream().wait_stream(stream)
        recording = torch.cuda.CUDAGraph()
        with torch.cuda.graph(recording):
            train()
        return recording.replay

    def accuracy(self, net: nn.Module, layout: torch.memory_format) -> float:
        with torch.no_grad():
            right = sum(
                int((net(x.contiguous(memory_format=layout)).argmax(1) == y).sum())
                for x, y in zip(self.test_pixels.split(1000), self.test_answers.split(1000))
            )
        return right / len(self.test_answers)


if __name__ == "__main__":
    torch.backends.cudnn.benchmark = True
    answer_jobs(__doc__, Peer)
