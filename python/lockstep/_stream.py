"""Streams: how the batches of a caller's source reach the workers of the Keras engine, in memory that all share.

The caller writes each batch behind the one before it, and its end to the board. A worker reads its slice of each. The
batches since the last backup stay, so a restart trains on the same ones.
"""

from __future__ import annotations

import mmap
import os
import time
from dataclasses import dataclass
from enum import Enum
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from lockstep._caller import Data
from lockstep._job import Job, Message
from lockstep._native import DataError
from lockstep._sources import Batch, Source, bytes_of, examples_of

_WINDOW_BYTES = 1 << 30  # of batches that wait, or that a restart would need
_HEADER_BYTES = mmap.PAGESIZE
_POLL_S = 0.0005
_WORD = 8


class Found(Enum):
    """What a worker learns of a batch."""

    BATCH = 0
    END = 1  # the pass has ended before it
    STOP = 2  # the caller stops the training before it


class Board:
    """What the caller says of the current pass: its number, its batches so far, and where each of them ends.

    Only the caller writes. A batch is counted after all of it is there.
    """

    def __init__(self, descriptor: int, is_new: bool = False) -> None:
        self.descriptor = descriptor
        if is_new:
            os.ftruncate(descriptor, _HEADER_BYTES)
        self._header: NDArray[np.int64] = np.frombuffer(mmap.mmap(descriptor, _HEADER_BYTES), np.int64)
        if is_new:
            self._header[0] = -1  # no pass yet

    def begin(self, number: int) -> None:
        """Begin a pass."""
        self._header[1:3] = 0
        self._header[0] = number

    def add(self, count: int, end: int) -> None:
        """Say that there are `count` batches, the last of which ends before the example `end`."""
        os.pwrite(self.descriptor, np.int64(end).tobytes(), _HEADER_BYTES + _WORD * (count - 1))
        self._header[1] = count

    def finish(self, how: Found) -> None:
        """Say that no batch follows."""
        self._header[2] = how.value

    def wait(self, number: int, step: int) -> Found:
        """Wait until the batch of a step is there, or until it is known that there is none."""
        while True:
            current, how = int(self._header[0]), int(self._header[2])
            count = int(self._header[1])  # after `how`, which is set last
            if current > number:
                return Found.END  # that pass is over
            if current == number and count > step:
                return Found.BATCH
            if how == Found.STOP.value or (current == number and how == Found.END.value):
                return Found(how)
            time.sleep(_POLL_S)

    def examples(self, step: int) -> range:
        """Return the examples of a batch that is there, by their positions in the pass."""
        begin = 0 if step == 0 else self._end(step - 1)
        return range(begin, self._end(step))

    def _end(self, step: int) -> int:
        return int.from_bytes(os.pread(self.descriptor, _WORD, _HEADER_BYTES + _WORD * step), "little")


@dataclass(frozen=True)
class StreamedArray:
    """The memory file of an array, and what an example of it is."""

    descriptor: int
    kind: str
    shape: tuple[int, ...]

    def example_bytes(self) -> int:
        """Return the bytes of an example."""
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.kind).itemsize

    def write(self, array: NDArray[Any], begin: int) -> None:
        """Write examples behind `begin` others."""
        _transfer(os.pwritev, self.descriptor, np.ascontiguousarray(array), begin * self.example_bytes())

    def read(self, examples: range) -> NDArray[Any]:
        """Return examples."""
        array: NDArray[Any] = np.empty((len(examples), *self.shape), np.dtype(self.kind))
        _transfer(os.preadv, self.descriptor, array, examples.start * self.example_bytes())
        return array

    def forget(self, begin: int, end: int) -> None:
        """Give the memory of examples back."""
        first, last = (each * self.example_bytes() // mmap.PAGESIZE * mmap.PAGESIZE for each in (begin, end))
        if last > first:
            with mmap.mmap(self.descriptor, last - first, offset=first) as memory:
                memory.madvise(mmap.MADV_REMOVE)


@dataclass(frozen=True)
class Streamed:
    """What workers need to read a stream: the board's descriptor, and a structure of `StreamedArray`."""

    board: int
    arrays: Any


class Stream:
    """The caller's side of a stream.

    `keeps_all`: no backup frees the batches of a pass before its end, as in validation.
    """

    def __init__(self, job: Job, source: Source, workers: int, keeps_all: bool = False) -> None:
        self._source = source
        self._workers = workers
        self._board = Board(job.memory_file("board").descriptor, is_new=True)
        self._arrays = keras.tree.map_structure(
            lambda array: StreamedArray(job.memory_file("data").descriptor, array.dtype.name, array.shape[1:]),
            source.first,
        )
        # Backups are taken so often that the batches since the last but one fit in the window.
        self.save_freq = max(1, _WINDOW_BYTES // (2 * bytes_of(source.first)))
        self._window: float = float("inf") if keeps_all else 2 * self.save_freq
        self._pass: int | None = None
        self._ends: list[int] = []
        self._freed = 0  # batches
        self._is_reading = False
        self._held: Batch | None = None  # has too few examples for all workers, so it must be the last

    def describe(self) -> Streamed:
        """Return what the workers need."""
        return Streamed(self._board.descriptor, self._arrays)

    def begin(self, number: int, first_step: int) -> None:
        """Begin a pass of the workers, unless it goes on after a restart."""
        if self._pass is not None and (number, first_step) < (self._pass, self._freed):
            raise DataError(
                f"a worker was lost while the model held NaN or infinity, which is not backed up; the batches of "
                f"{self._source.what} since the last backup are gone, so start anew with a smaller learning rate, say"
            )
        if self._pass == number:
            return
        if self._is_reading:
            self._source.abandon_pass()
        for array in keras.tree.flatten(self._arrays):
            os.ftruncate(array.descriptor, 0)
        self._pass, self._ends, self._freed, self._held = number, [], first_step, None
        self._is_reading = True
        self._board.begin(number)

    def work(self) -> bool:
        """Read a batch, if there is room for it. Return whether there may be more to do."""
        if not self._is_reading or len(self._ends) - self._freed > self._window:
            return False
        batch = self._source.read()
        if batch is not None and self._held is not None:
            examples = examples_of(self._held)
            raise DataError(
                f"a batch of {self._source.what} has {examples} {'example' if examples == 1 else 'examples'} for "
                f"{self._workers} workers; only the last of a pass may have fewer than workers"
            )
        if batch is None:
            if self._held is not None:
                self._write(self._held)
            self._is_reading, self._held = False, None
            self._board.finish(Found.END)
        elif examples_of(batch) < self._workers:
            self._held = batch
        else:
            self._write(batch)
        return self._is_reading

    def free(self, step: int) -> None:
        """Give the memory of the batches before a step back: a backup has been taken there."""
        if self._freed < step <= len(self._ends):
            begin = self._ends[self._freed - 1] if self._freed else 0
            for array in keras.tree.flatten(self._arrays):
                array.forget(begin, self._ends[step - 1])
            self._freed = step

    def stop(self) -> None:
        """Stop the workers before the first batch that is not there."""
        self._is_reading = False
        self._board.finish(Found.STOP)

    def _write(self, batch: Batch) -> None:
        begin = self._ends[-1] if self._ends else 0
        if len(self._ends) >= self._freed:
            for array, values in zip(keras.tree.flatten(self._arrays), keras.tree.flatten(batch), strict=True):
                array.write(values, begin)
        self._ends.append(begin + examples_of(batch))
        self._board.add(len(self._ends), self._ends[-1])


class Streams(Data):
    """The streams of a training, by the names that workers call them."""

    def __init__(self, streams: dict[str, Stream]) -> None:
        self._streams = streams

    def work(self) -> bool:
        """Read a batch. Return whether there may be more to do."""
        return any([stream.work() for stream in self._streams.values()])

    def handle(self, message: Message) -> bool:
        """Do what a worker's message says; return whether it is one for the streams."""
        if message["event"] == "pass":
            self._streams[message["data"]].begin(message["pass"], message["step"])
        elif message["event"] == "backed_up":
            self._streams["training"].free(message["step"])
        else:
            return False
        return True

    def stop(self) -> None:
        """Stop the workers before the first batch that is not there."""
        for stream in self._streams.values():
            stream.stop()


def _transfer(call: Any, descriptor: int, array: NDArray[Any], offset: int) -> None:
    """Read or write a whole array: the system moves at most 2 GiB at once."""
    left = memoryview(array.reshape(-1).view(np.uint8).data)
    while left:
        moved = call(descriptor, [left], offset)
        if moved == 0:
            raise EOFError("a stream ended in the middle of a batch")
        left = left[moved:]
        offset += moved
