"""MNIST for all peers: reads the IDX files, or makes random images if there are none.

Uses only numpy and the standard library, so that all peers get the same bytes.
"""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np

IMAGES = "train-images-idx3-ubyte"
LABELS = "train-labels-idx1-ubyte"
UNSIGNED_BYTE = 8


def read_idx(folder: Path, name: str) -> np.ndarray:
    """The array of an IDX file of unsigned bytes, gzipped or not."""
    gzipped = folder / f"{name}.gz"
    data = gzip.decompress(gzipped.read_bytes()) if gzipped.exists() else (folder / name).read_bytes()
    zero, element, dimensions = struct.unpack_from(">HBB", data)
    if zero != 0 or element != UNSIGNED_BYTE:
        raise ValueError(f"{folder / name}: not an IDX file of unsigned bytes")
    shape = struct.unpack_from(f">{dimensions}I", data, 4)
    values = np.frombuffer(data, dtype=np.uint8, offset=4 + 4 * dimensions)
    if values.size != np.prod(shape):
        raise ValueError(f"{folder / name}: {values.size} values, its header says {shape}")
    return values.reshape(shape)


def has_mnist(folder: str) -> bool:
    return bool(folder) and any((Path(folder) / f"{IMAGES}{end}").exists() for end in ("", ".gz"))


def load_mnist(folder: str) -> tuple[np.ndarray, np.ndarray]:
    """60,000 images [n, 28, 28] uint8 and labels [n] int64; random ones if the folder has no MNIST."""
    if has_mnist(folder):
        path = Path(folder)
        return read_idx(path, IMAGES), read_idx(path, LABELS).astype(np.int64)
    random = np.random.default_rng(0)
    return random.integers(0, 256, (60000, 28, 28), np.uint8), random.integers(0, 10, 60000, np.int64)
