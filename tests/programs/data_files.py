"""Small deterministic datasets in the formats that programs read."""

import io
import random
import struct
import zipfile
from pathlib import Path

TRAIN_IMAGES = "train-images-idx3-ubyte"
TRAIN_LABELS = "train-labels-idx1-ubyte"
TEST_IMAGES = "t10k-images-idx3-ubyte"
TEST_LABELS = "t10k-labels-idx1-ubyte"


def idx(extents: tuple[int, ...], values: bytes) -> bytes:
    """An IDX file of bytes. The dimensions need not match the values."""
    return bytes([0, 0, 8, len(extents)]) + b"".join(struct.pack(">I", extent) for extent in extents) + values


def digits(count: int, seed: int, side: int = 28) -> tuple[bytes, bytes]:
    """Learnable images and labels: each class is a square with its own position and brightness, with noise."""
    chance = random.Random(seed)
    images, labels = bytearray(), bytearray()
    for _ in range(count):
        label = chance.randrange(10)
        image = bytearray(value >> 2 for value in chance.randbytes(side * side))
        for row in range(side // 4):
            start = (row + 2 * (label % 5)) * side + side // 3 * (label // 5)
            image[start : start + side // 4] = bytes([255 - 10 * label]) * (side // 4)
        images += image
        labels.append(label)
    return bytes(images), bytes(labels)


def write_idx(directory: Path, train: int = 100, test: int = 40, seed: int = 1, side: int = 28) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    parts = ((train, TRAIN_IMAGES, TRAIN_LABELS, seed), (test, TEST_IMAGES, TEST_LABELS, seed + 1000))
    for count, images_name, labels_name, part_seed in parts:
        images, labels = digits(count, part_seed, side)
        (directory / images_name).write_bytes(idx((count, side, side), images))
        (directory / labels_name).write_bytes(idx((count,), labels))
    return directory


def write_cifar10(directory: Path, batch: int = 20, test: int = 20) -> Path:
    """CIFAR-10's binary files, of pictures that each class' colour tells apart."""
    directory.mkdir(parents=True, exist_ok=True)
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
    for seed, name in enumerate(names):
        chance = random.Random(seed)
        records = bytearray()
        for _ in range(test if name == "test_batch.bin" else batch):
            label = chance.randrange(10)
            records.append(label)
            for channel in range(3):
                level = 25 * ((label >> channel) % 5)
                records += bytes(level + (value >> 1) for value in chance.randbytes(32 * 32))
        (directory / name).write_bytes(records)
    return directory


def npy(extents: tuple[int, ...], values: bytes, kind: str = "|u1") -> bytes:
    header = f"{{'descr': {kind!r}, 'fortran_order': False, 'shape': {extents!r}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + values


def npz(train: int = 100, test: int = 40, leave_out: str = "", one_hot: bool = False) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for part, count, seed in (("train", train, 1), ("test", test, 1001)):
            images, labels = digits(count, seed)
            vectors = b"".join(bytes(label == i for i in range(10)) for label in labels)
            targets = npy((count, 10), vectors) if one_hot else npy((count,), labels)
            for name, array in ((f"x_{part}", npy((count, 28, 28), images)), (f"y_{part}", targets)):
                if name != leave_out:
                    archive.writestr(f"{name}.npy", array)
    return file.getvalue()
