"""Prints the installed size of each peer and its dependencies as JSON, in megabytes.

Runs in the peers' environment. The sizes exclude Python itself and the CUDA libraries in PyTorch's wheel, which its
CPU-only wheel does not have.
"""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOTS = {"tensorflow": ["tensorflow-cpu", "tf_keras"], "pytorch": ["torch"], "jax": ["jax"]}
CUDA_PARTS = ("libtorch_cuda", "libc10_cuda", "libtorch_nvshmem", "libcaffe2_nvrtc")


def closure(names: list[str]) -> dict[str, metadata.Distribution]:
    """The installed distributions among `names` and their transitive requirements."""
    found: dict[str, metadata.Distribution] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name in found:
            continue
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        for line in found[name].requires or []:
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(requirement.name)
    return found


def megabytes(distribution: metadata.Distribution) -> float:
    total = 0
    for file in distribution.files or []:
        path = Path(distribution.locate_file(file))
        if path.is_file() and not path.name.startswith(CUDA_PARTS):
            total += path.stat().st_size
    return total / 1e6


if __name__ == "__main__":
    print(json.dumps({peer: round(sum(map(megabytes, closure(roots).values())), 1) for peer, roots in ROOTS.items()}))
