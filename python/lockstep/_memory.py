"""Memory files: how arrays reach workers without a copy for each, and leave nothing behind on any disk."""

from __future__ import annotations

import mmap
import os
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray


class MemoryFile:
    """A file in memory that processes share by its descriptor. It ends with the last of them, however they end."""

    def __init__(self, name: str) -> None:
        self.descriptor = os.memfd_create(f"lockstep-{name}", os.MFD_CLOEXEC)

    @property
    def path(self) -> str:
        """A path by which this process and those that inherit the descriptor open the file."""
        return f"/proc/self/fd/{self.descriptor}"

    def write(self, array: NDArray[Any], kind: str) -> dict[str, Any]:
        """Copy an array to the file, converted to a type. Return what a worker needs to map it."""
        write(self.descriptor, array, kind)
        return {"descriptor": self.descriptor, "type": np.dtype(kind).name, "shape": list(array.shape)}

    def read(self, shape: tuple[int, ...], kind: str) -> NDArray[Any]:
        """Return the file's content as an array of its own."""
        array: NDArray[Any] = np.empty(shape, np.dtype(kind))
        if array.nbytes:
            with mmap.mmap(self.descriptor, array.nbytes, access=mmap.ACCESS_READ) as memory:
                array[...] = np.frombuffer(memory, array.dtype).reshape(shape)
        return array

    def close(self) -> None:
        """Close this process' descriptor."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __enter__(self) -> MemoryFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def write(descriptor: int, array: NDArray[Any], kind: str) -> None:
    """Replace the content of a memory file by an array, converted to a type."""
    wanted = np.dtype(kind)
    size = int(array.size) * wanted.itemsize
    os.ftruncate(descriptor, size)
    if size:
        with mmap.mmap(descriptor, size) as memory:
            view: NDArray[Any] = np.ndarray(array.shape, wanted, buffer=memory)
            with np.errstate(over="ignore"):  # the workers name an infinite example
                np.copyto(view, array, casting="unsafe")
            del view  # the memory cannot be unmapped before
