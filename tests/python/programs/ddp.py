"""A PyTorch program that knows nothing of Lockstep: DistributedDataParallel by env://. Rank 1 is killed once."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
marker = Path(sys.argv[1])
for step in range(5):
    optimizer.zero_grad()
    inputs = torch.full((2, 4), float(dist.get_rank() + 1))
    model(inputs).square().mean().backward()
    optimizer.step()
    if step == 2 and dist.get_rank() == 1 and not marker.exists():
        marker.write_text(os.environ["MASTER_PORT"])
        os.kill(os.getpid(), 9)
total = [torch.zeros(4) for _ in range(dist.get_world_size())]
dist.all_gather(total, model.module.weight.detach().flatten())
assert torch.equal(total[0], total[1])
if dist.get_rank() == 0:
    print(
        "trained", os.environ["WORLD_SIZE"], "fresh port:", os.environ["MASTER_PORT"] != marker.read_text(), flush=True
    )
dist.destroy_process_group()
