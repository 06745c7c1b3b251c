"""Trains a model's file on Keras' torch backend with PyTorch's DistributedDataParallel over gloo.

    lockstep launch --workers N -- python train_keras_ddp.py FOLDER BATCH STEPS EPOCHS

Knows nothing of Lockstep: it reads RANK, WORLD_SIZE and MASTER_ADDR, as under torchrun. The Keras model is an
nn.Module, so DDP wraps it as it is. The loop and the optimizer are PyTorch's: torch.optim.SGD(fused=True) in place of
Keras' optimizer, which is slower, and gradients as views of the buckets with a static graph, as in train_pytorch.py.
BatchNormalization sees each worker's slice of the batch, as with Lockstep. The loss is summed for an epoch's mean, as
fit does. Each worker has one core. BATCH is the global batch. Rank 0 prints the epochs' times as JSON.
"""

from __future__ import annotations

from pinning import pin

pin()

import json  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from typing import Any  # noqa: E402

import keras  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from common import peak_memory_mb  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402


def main() -> None:
    folder, batch, steps, epochs = sys.argv[1], *map(int, sys.argv[2:5])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, workers = dist.get_rank(), dist.get_world_size()
    source: Any = keras.models.load_model(f"{folder}/model.keras", compile=False)
    model = DistributedDataParallel(source, gradient_as_bucket_view=True, static_graph=True)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(parameters, 0.01, momentum=0.9, fused=True)
    data = np.load(f"{folder}/data.npz")
    assert len(data["y_train"]) == batch * steps
    x, y = torch.from_numpy(data["x_train"]), torch.from_numpy(data["y_train"])
    random = torch.Generator().manual_seed(1)  # alike on all workers
    local = batch // workers
    seconds, loss_sum = [], torch.zeros(())
    for _ in range(epochs):
        begun = time.perf_counter()
        order = torch.randperm(len(y), generator=random)
        loss_sum.zero_()
        for step in range(steps):
            chosen = order[step * batch + rank * local :][:local]
            optimizer.zero_grad(set_to_none=True)
            loss = functional.cross_entropy(model(x[chosen], training=True), y[chosen])
            loss.backward()
            optimizer.step()
            loss_sum += loss.detach()
        mean = float(loss_sum) / steps
        seconds.append(time.perf_counter() - begun)
    kernel = parameters[0].detach().contiguous()
    kernels = [torch.empty_like(kernel) for _ in range(workers)]
    dist.all_gather(kernels, kernel)
    assert all(torch.equal(kernel, each) for each in kernels)
    if rank == 0:
        print(json.dumps({"epoch_seconds": seconds, "peak_memory_mb": peak_memory_mb(), "loss": mean}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
