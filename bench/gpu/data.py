"""Reads MNIST from IDX files, gzipped or not. Without a folder it makes random images, which train at the same
speed."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np


def read_idx(folder: Path, name: str) -> np.ndarray:
    gzipped = folder / f"{name}.gz"
    data = gzip.decompress(gzipped.read_bytes()) if gzipped.exists() else (folder / name).read_bytes()
    dimensions = data[3]
    shape = struct.unpack_from(f">{dimensions}I", data, 4)
    return np.frombuffer(data, dtype=np.uint8, offset=4 + 4 * dimensions).reshape(shape).copy()


def load_mnist(folder: str) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Training and test set, each images [n, 28, 28] uint8 and labels [n] int64."""
    if folder:
        path = Path(folder)
        return tuple(
            (read_idx(path, f"{kind}-images-idx3-ubyte"), read_idx(path, f"{kind}-labels-idx1-ubyte").astype(np.int64))
            for kind in ("train", "t10k")
        )
    random = np.random.default_rng(0)
    return tuple(
        (random.integers(0, 256, (count, 28, 28), np.uint8), random.integers(0, 10, count, np.int64))
        for count in (60000, 10000)
    )
