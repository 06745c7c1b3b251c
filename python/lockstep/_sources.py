"""Sources of batches: Python generators, `keras.utils.PyDataset`, `tf.data.Dataset` and torch's ``DataLoader``.

Keras' own adapters read them, in the caller's process, so they mean what they mean in Keras' ``fit``.
"""

from __future__ import annotations

import os
import types
import warnings
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from keras.src.trainers import data_adapters
from keras.src.trainers.epoch_iterator import EpochIterator

from lockstep import _bridge
from lockstep._arrays import as_array
from lockstep._native import DataError, UsageError

Batch = Any  # a structure of arrays of equal length, such as (x, y): what Keras gives to ``train_step``

_INFINITE = -1  # tf.data's cardinality
_RAN_OUT = "Your input ran out of data"


def is_source(data: Any) -> bool:
    """Return whether data comes in batches of its own."""
    return (
        isinstance(data, (types.GeneratorType, keras.utils.PyDataset))
        or data_adapters.is_tf_dataset(data)
        or data_adapters.is_torch_dataloader(data)
    )


def examples_of(batch: Batch) -> int:
    """Return the number of examples in a batch."""
    return len(keras.tree.flatten(batch)[0])


def bytes_of(batch: Batch) -> int:
    """Return the size of a batch."""
    return sum(int(array.nbytes) for array in keras.tree.flatten(batch))


def max_collected_bytes() -> int:
    """Return the size up to which a pass over a source is collected: a quarter of the machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4


class Source:
    """Passes over a source of batches, whose arrays are checked.

    Parameters
    ----------
    data
        Of a kind that `is_source` knows.
    what
        What messages call it.
    steps
        Batches of a pass; without them it ends with the data. Then the next one begins where this one ended.
    steps_name
        The argument that gives `steps`.
    passes
        Epochs of a training, which have a pass each. Without them there is one pass, for which a generator needs no
        `steps`.
    shuffle_seed
        Of the order of a PyDataset's batches, another one in each pass. None: its own order.
    class_weight
        As in Keras. Batches have sample weights then.
    validates
        Begin each pass as Keras' fit begins a validation. Of a generator, it repeats the first two batches.
    """

    def __init__(
        self,
        data: Any,
        what: str,
        steps: int | None = None,
        *,
        steps_name: str = "steps_per_epoch",
        passes: int | None = None,
        shuffle_seed: int | None = None,
        class_weight: dict[int, float] | None = None,
        validates: bool = False,
    ) -> None:
        self.what = what
        self._kind = type(data).__name__
        self.steps_name = steps_name
        is_generator = isinstance(data, types.GeneratorType)
        if steps is None and ((is_generator and passes is not None) or _is_endless(data)):
            thing = "a generator" if is_generator else f"{what}, which has no end,"
            raise UsageError(f"{thing} needs {steps_name}: the number of batches in a pass")
        if shuffle_seed is not None and isinstance(data, keras.utils.PyDataset) and data.num_batches is not None:
            data = _Shuffled(data, shuffle_seed)
        self._epochs = EpochIterator(data, steps_per_epoch=steps, class_weight=class_weight)
        self._validates = validates
        if steps is not None:
            self._require_whole_passes(steps, 1 if validates or passes is None else passes)
        known = self._epochs.num_batches
        self.steps: int | None = None if known is None else int(known)
        self._batches: Iterator[Any] | None = None  # of the pass that is being read
        self._count = 0  # of its batches that were read
        self._layout: Any = None
        self._read_ahead: list[Batch] = []
        first = self.read()
        if first is None:
            raise DataError(f"{what} holds no batches")
        self._read_ahead.append(first)
        self.first: Batch = first

    def _require_whole_passes(self, steps: int, passes: int) -> None:
        """Refuse data that ends within a pass, if it says how many batches it has. Keras makes a shorter epoch."""
        held = self._epochs.data_adapter.num_batches
        if held is None or held % steps == 0 or steps * passes <= held:
            return
        raise DataError(
            f"{self.what} has {held} batches, so pass {held // steps + 1} of {self.steps_name}={steps} would have "
            f"{held % steps}; give {self.steps_name} that divides {held}, or data that goes on, as tf.data's repeat() "
            "makes it"
        )

    def read(self) -> Batch | None:
        """Return the next batch of the pass, or None at its end. The next call begins another pass."""
        if self._read_ahead:
            return self._read_ahead.pop()
        if self._batches is None:
            if self._layout is None or self._validates:
                self._epochs.reset()  # as Keras does: a PyDataset may shuffle in on_epoch_end
            self._epochs._num_batches = self._epochs.data_adapter.num_batches  # Keras' own count is of the first pass
            self._batches = iter(self._epochs)
            self._count = 0
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=_RAN_OUT)
                _, _, (batch,) = next(self._batches)
        except StopIteration:
            self._batches = None
            if self._count == 0 and self._layout is not None:
                raise DataError(
                    f"{self.what} has no batches after its first pass; give data that can be read again, or "
                    f"{self.steps_name} with data that goes on"
                ) from None
            if self._count < (self.steps or 0):
                raise DataError(
                    f"{self.what} ended after {self._count} of {self.steps} batches; give {self.steps_name}="
                    f"{self._count}, or data that goes on, as tf.data's repeat() makes it"
                ) from None
            return None
        self._count += 1
        return self._check(batch)

    def abandon_pass(self) -> None:
        """Begin another pass with the next batch."""
        self._batches = None
        self._read_ahead = []

    def describe(self) -> Any:
        """Return facts by which a restart of the caller knows the source, as bytes in an array."""
        layout = [(str(array.dtype), array.shape[1:]) for array in keras.tree.flatten(self.first)]
        return np.frombuffer(f"{self._kind} {self.steps} {layout}".encode(), np.uint8)

    def _check(self, batch: Any) -> Batch:
        """Return a batch as arrays of its own, with floats as Keras has them."""
        where = f"batch {self._count} of {self.what}"
        if isinstance(batch, list):
            batch = tuple(batch)
        if type(batch) is tuple:
            while len(batch) > 1 and batch[-1] is None:
                batch = batch[:-1]
            if not 1 <= len(batch) <= 3:
                raise DataError(f"{where} is a tuple of {len(batch)}; give (x,), (x, y) or (x, y, sample_weight)")
        arrays = keras.tree.map_structure(lambda value: _to_array(value, where), batch)
        lengths = [len(array) for array in keras.tree.flatten(arrays)]
        if len(set(lengths)) != 1:
            raise DataError(
                f"the arrays of {where} have {', '.join(map(str, lengths))} examples; give arrays of equal length"
            )
        if lengths[0] == 0:
            raise DataError(f"{where} holds no examples; leave empty batches out")
        layout = keras.tree.map_structure(lambda array: (array.dtype.name, *array.shape[1:]), arrays)
        if self._layout is None:
            self._layout = layout
        elif layout != self._layout:
            raise DataError(
                f"{where} has the types and shapes {_show(layout)}, those before it {_show(self._layout)}; give "
                "batches that differ in the number of examples only"
            )
        return arrays


class _Shuffled(keras.utils.PyDataset):  # type: ignore[misc]
    """The batches of a PyDataset in another order in each pass. The last one, which may be shorter, stays the last."""

    def __init__(self, data: Any, seed: int) -> None:
        super().__init__(data.workers, data.use_multiprocessing, data.max_queue_size)
        self._data = data
        self._seed = seed
        self._passes = 0
        self._order = self._draw()

    @property
    def num_batches(self) -> int:
        """The number of batches."""
        return int(self._data.num_batches)

    def __getitem__(self, index: int) -> Any:
        return self._data[self._order[index]]

    def on_epoch_begin(self) -> None:
        """Begin a pass. Keras calls this."""
        self._data.on_epoch_begin()

    def on_epoch_end(self) -> None:
        """Draw the order of the next pass: processes that read it may be forked before it begins."""
        self._data.on_epoch_end()
        self._passes += 1
        self._order = self._draw()

    def _draw(self) -> list[int]:
        draw = np.random.Generator(np.random.PCG64([self._seed, self._passes]))
        return [*draw.permutation(self.num_batches - 1).tolist(), self.num_batches - 1]


def _show(layout: Any) -> str:
    """Return types and shapes as text: ("float32 (28, 28)", "int64 ()")."""
    return str(layout).replace("'", "")


def _is_endless(data: Any) -> bool:
    if isinstance(data, keras.utils.PyDataset):
        return data.num_batches is None
    return data_adapters.is_tf_dataset(data) and int(data.cardinality()) == _INFINITE


def _to_array(value: Any, what: str) -> Any:
    if _bridge.framework_of(value) == "torch":
        value = _bridge.to_numpy(value)
    array = as_array(value, f"an array of {what}")
    return array.astype(keras.config.floatx(), copy=False) if array.dtype.kind == "f" else array
