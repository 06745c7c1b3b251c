"""PyTorch in eager mode: one process, or DistributedDataParallel over gloo.

The dataset is one resident tensor and a batch is one index_select, so there is no DataLoader overhead. The optimizers
are fused. The model with two convolutions uses channels_last, which is up to a quarter faster; the other model is
slower with it. Other DDP bucket sizes and the bfloat16 compression hook make no difference over gloo. Initial weights
are those of Keras (Glorot uniform, zero bias).
"""

from __future__ import annotations

from common import Job, Stopwatch, parse_job
from mnist import load_mnist


def sequential(nn, job: Job):
    if job.model == "keras_mnist":
        model = nn.Sequential(
            nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(21632, 128), nn.ReLU(), nn.Linear(128, 10)
        )
    else:
        model = nn.Sequential(
            nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(1600, 64), nn.ReLU(), nn.Linear(64, 10),
        )  # fmt: skip
    for layer in model:
        if hasattr(layer, "weight"):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
    return model


def train(job: Job) -> None:
    watch = Stopwatch(job)
    import torch
    from torch import nn

    torch.set_num_threads(job.threads)
    torch.manual_seed(0)
    model = sequential(nn, job)
    layout = torch.contiguous_format if job.model == "keras_mnist" else torch.channels_last
    model = model.to(memory_format=layout)
    net = model
    if job.workers > 1:
        host = job.addresses[0]
        torch.distributed.init_process_group(
            "gloo", init_method=f"tcp://{host}", rank=job.worker, world_size=job.workers
        )
        net = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True)
    if job.model == "keras_mnist":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.001, fused=True)
    else:
        optimizer = torch.optim.Adam(model.parameters(), lr=0.001, eps=1e-7, fused=True)
    cross_entropy = nn.CrossEntropyLoss()

    images, labels = load_mnist(job.data_dir)
    pixels = torch.from_numpy(images.copy()).unsqueeze(1)
    answers = torch.from_numpy(labels)
    order = torch.empty(0, dtype=torch.int64)
    position = 0
    random = torch.Generator().manual_seed(1)

    def next_batch():
        """This worker's shard of the next global batch. All workers draw the same order."""
        nonlocal order, position
        if position + job.batch > len(order):
            order, position = torch.randperm(len(answers), generator=random), 0
        local = order[position + job.worker * job.local_batch :][: job.local_batch]
        position += job.batch
        return pixels[local].float().div_(255.0), answers[local]

    totals = torch.zeros(2)  # sums of losses and correct predictions, read once per epoch

    def step() -> None:
        x, y = next_batch()
        x = x.contiguous(memory_format=layout)
        with torch.autocast("cpu", torch.bfloat16, enabled=job.half):
            logits = net(x)
        loss = cross_entropy(logits.float(), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        totals[0] += loss.detach()
        totals[1] += (logits.detach().argmax(1) == y).sum()

    step()
    watch.first_step()
    for _ in range(job.warmup):
        step()
    last_loss = 0.0
    for _ in range(job.steps // job.steps_per_epoch):
        watch.begin()
        totals.zero_()
        for _ in range(job.steps_per_epoch):
            step()
        last_loss = float(totals[0]) / job.steps_per_epoch
        watch.end()
    watch.report("pytorch", torch.__version__, last_loss)
    if job.workers > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    train(parse_job(__doc__))
