"""A worker's side of a stream: its slices of the batches that the caller reads from a source."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
from keras.src.trainers.data_adapters import data_adapter_utils
from keras.src.trainers.data_adapters.data_adapter import DataAdapter

from lockstep._data import feed, slice_of
from lockstep._stream import Board, Found, Streamed, StreamedArray


class StreamedData(DataAdapter):  # type: ignore[misc]
    """The rank's slice of every batch of a stream, for Keras' ``fit`` and ``evaluate``.

    It is an adapter of Keras' and not a PyDataset, because a rank may have no part of the last batch, whose size nobody
    knows before it is there.

    Parameters
    ----------
    streamed
        Names the stream.
    request
        Asks the caller for a pass: its number, and the first step that this training needs of it.
    stop
        Ends this training on all ranks before a step, which the caller does not give.
    """

    def __init__(self, streamed: Streamed, request: Callable[[int, int], None], stop: Callable[[int], None]) -> None:
        self._arrays = streamed.arrays
        self._board = Board(streamed.board)
        self._request = request
        self._stop = stop
        self.is_started = False  # before, Keras asks for a batch to build the model by its shapes
        self.next_pass = 0
        self.first_step = 0  # of the next pass, if it continues one that was interrupted
        self._offset = 0
        self._pass = 0
        feed.shards.append(weakref.ref(self))

    def example(self) -> Any:
        """Return a batch of one example, of zeros."""
        return self._map(lambda array: np.zeros((1, *array.shape), array.kind))

    def has_step(self, step: int) -> bool:
        """Wait until it is known whether the pass has a step, and return that."""
        found = self._board.wait(self._pass, step)
        if found is Found.STOP:
            self._stop(step)
        return found is Found.BATCH

    def examples_in(self, step: int) -> float:
        """Return the examples of this rank's slice in a step since the pass began or continued."""
        return float(len(slice_of(self._board.examples(self._offset + step))))

    def describe(self) -> dict[str, Any]:
        """Return nothing: the caller knows with what this training began."""
        return {}

    def on_epoch_begin(self) -> None:
        """Begin the next pass. Keras calls this."""
        if not self.is_started:
            return
        self._pass, self._offset = self.next_pass, self.first_step
        self.next_pass += 1
        self.first_step = 0
        feed.begin(self)
        self._request(self._pass, self._offset)
        self.has_step(self._offset)

    def on_epoch_end(self) -> None:
        """End the pass. Keras calls this."""
        feed.end()

    def get_numpy_iterator(self) -> Iterator[Any]:
        """Return the batches from now on."""
        return self._batches()

    def get_jax_iterator(self) -> Iterator[Any]:
        """Return the batches from now on."""
        return self._batches()

    def get_torch_dataloader(self) -> Any:
        """Return the batches from now on."""
        return data_adapter_utils.get_torch_dataloader(self._batches())

    def get_tf_dataset(self) -> Any:
        """Return the batches from the begin of the next pass on."""
        import tensorflow as tf

        signature = self._map(lambda array: tf.TensorSpec((None, *array.shape), array.kind))
        return tf.data.Dataset.from_generator(self._batches, output_signature=signature).prefetch(tf.data.AUTOTUNE)

    @property
    def num_batches(self) -> int:
        """More than there are: Keras would take None for the number in its first pass, which may be part of one."""
        return sys.maxsize

    @property
    def batch_size(self) -> None:
        """None, since batches differ."""
        return None

    def _map(self, function: Callable[[Any], Any]) -> Any:
        return keras.tree.map_structure(function, self._arrays)

    def _batches(self) -> Iterator[Any]:
        if not self.is_started:
            yield self.example()
            return
        number, step = self._pass, self._offset
        while self._board.wait(number, step) is Found.BATCH:
            own = slice_of(self._board.examples(step))
            if not own:
                return  # of the last batch
            yield self._map(functools.partial(StreamedArray.read, examples=own))
            step += 1
