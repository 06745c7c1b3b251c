"""Each rank's slice of every global batch, in an order that depends only on seed and pass."""

from __future__ import annotations

import weakref
import zlib
from typing import Any, Protocol

import keras
import numpy as np
from numpy.typing import NDArray

from lockstep._native import UsageError
from lockstep._world import rank, size

_BLOCK_BYTES = 16 << 20  # of an array, which are on the host and digested at once


class Shard(Protocol):
    """A dataset of which each rank has its slice of every global batch."""

    next_pass: int
    first_step: int  # of the next pass, if it continues one that was interrupted

    def examples_in(self, step: int) -> float:
        """Return the examples of this rank's slice in a step since the pass began or continued."""

    def has_step(self, step: int) -> bool:
        """Return whether the pass has a step, on all ranks together."""

    def describe(self) -> dict[str, Any]:
        """Return facts by which other ranks and a restart know the dataset."""


class Feed:
    """The sharded datasets of this program, and the pass over one of them that trains now.

    A reducer asks it for the weight of its next gradient: the examples in this rank's slice of the batch.
    """

    def __init__(self) -> None:
        self.shards: list[weakref.ref[Any]] = []  # in the order of their construction
        self.current: Shard | None = None
        self.passes = 0  # begun so far, over any data
        self.is_active = False  # between the begin and the end of a pass

    def begin(self, data: Shard) -> None:
        """Begin a pass."""
        self.current = data
        self.passes += 1
        self.is_active = True

    def end(self) -> None:
        """End the pass. Its last steps may still run."""
        self.is_active = False

    def weight(self, step: int) -> float:
        """Return the examples of this rank in a step of the current pass; 1 where they are not known."""
        return 1.0 if self.current is None else self.current.examples_in(step)

    def position(self) -> dict[str, Any]:
        """Return the next pass of every dataset and the dataset that trains now, for `restore`."""
        alive = [each() for each in self.shards]
        return {
            "next_passes": [0 if data is None else data.next_pass for data in alive],
            "current": alive.index(self.current) if self.current is not None else None,
        }

    def describe(self) -> list[Any]:
        """Return facts of every dataset, by which other ranks and a restart know it; None for one that is gone."""
        alive = [each() for each in self.shards]
        return [None if data is None else data.describe() for data in alive]

    def describe_current(self) -> list[Any]:
        """Return facts of the dataset that trains now; None if it is not sharded."""
        return [self.current.describe() if self.current is not None and self.is_active else None]

    def restore(self, position: dict[str, Any], step: int) -> None:
        """Continue with `step` of the pass that trained, or with the next pass if it is 0."""
        for reference, next_pass in zip(self.shards, position["next_passes"], strict=False):
            data = reference()
            if data is not None:
                data.next_pass = next_pass
        if step > 0 and position["current"] is not None:
            data = self.shards[position["current"]]()
            if data is not None:
                data.next_pass -= 1
                data.first_step = step


feed = Feed()


class ShardedData(keras.utils.PyDataset):  # type: ignore[misc]
    """The rank's slices of the global batches of some arrays, or of another dataset. See `shard`.

    With ``shuffle=True``, Keras asks for the batches of a PyDataset in a random order of its own, a different one
    on every rank. That is refused. Iterations may overlap, since TensorFlow fetches ahead.
    """

    def __init__(self, arrays: Any, batches: Any, batch_size: int, shuffle: bool, seed: int) -> None:
        super().__init__()
        self.arrays = arrays
        self.batches = batches
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.next_pass = 0
        self.first_step = 0  # of the next pass, if it continues one that was interrupted
        self._offset = 0
        self._asked = {-1}  # indices in this pass
        self._pass = 0
        self.digests: dict[str, str] | None = None  # of the arrays, by their names; made when they are needed
        self._order: tuple[int, NDArray[np.intp]] | None = None
        feed.shards.append(weakref.ref(self))

    @property
    def examples(self) -> int:
        """The number of examples, on all ranks together."""
        return len(keras.tree.flatten(self.arrays)[0])

    @property
    def global_batches(self) -> int:
        """The number of global batches in a pass."""
        return -(-self.examples // self.batch_size) if self.batches is None else int(self.batches.num_batches)

    @property
    def num_batches(self) -> int:
        """The number of this rank's batches in the pass. Its slice of a short last batch may be empty."""
        total = self.global_batches
        if self.batches is None and not len(self._slice(total - 1)):
            total -= 1
        return total - self._offset

    def _slice(self, batch: int) -> range:
        """Return the positions of this rank's slice of a global batch in the pass' order."""
        begin = batch * self.batch_size
        return slice_of(range(begin, min(begin + self.batch_size, self.examples)))

    def examples_in(self, step: int) -> float:
        """Return the examples of this rank's slice in a step since the pass began or continued."""
        if self.batches is not None:
            return 1.0
        return float(len(self._slice(self._offset + step)))

    def has_step(self, step: int) -> bool:
        """Return whether the pass has a step, on all ranks together."""
        return step < self.global_batches

    def order(self, number: int) -> NDArray[np.intp]:
        """Return the order of examples in a pass."""
        if self._order is None or self._order[0] != number:
            order = np.arange(self.examples)
            if self.shuffle:
                order = np.random.Generator(np.random.PCG64([self.seed, number])).permutation(order)
            self._order = (number, order)
        return self._order[1]

    def describe(self) -> dict[str, Any]:
        """Return facts by which other ranks and a restart know the dataset. The first call reads all of it."""
        if self.batches is not None:
            count = self.batches.num_batches
            return {"class": type(self.batches).__name__, "batches": None if count is None else int(count)}
        leaves = keras.tree.flatten(self.arrays)
        if self.digests is None:
            self.digests = _digest(self.arrays)
        return {
            "batch_size": int(self.batch_size),
            "shuffle": bool(self.shuffle),
            "seed": int(self.seed) if self.shuffle else None,
            "examples": self.examples,
            "types": [str(leaf.dtype) for leaf in leaves],
            "shapes": [[int(extent) for extent in leaf.shape[1:]] for leaf in leaves],
            "digest": self.digests,
        }

    def __getitem__(self, index: int) -> Any:
        if index - 1 not in self._asked:
            raise UsageError("pass shuffle=False to fit: lockstep.shard shuffles by itself, alike on all workers")
        self._asked.add(index)
        index += self._offset
        if self.batches is not None:
            batch = self.batches[index]
            return keras.tree.map_structure(lambda array: array[_as_slice(slice_of(range(len(array))))], batch)
        own = self.order(self._pass)[_as_slice(self._slice(index))]
        return keras.tree.map_structure(lambda array: array[own], self.arrays)

    def on_epoch_begin(self) -> None:
        """Begin the next pass. Keras calls this."""
        self._pass = self.next_pass
        self._offset = self.first_step
        self._asked = {-1}
        self.next_pass += 1
        self.first_step = 0
        if self.batches is not None:
            self.batches.on_epoch_begin()
        feed.begin(self)

    def on_epoch_end(self) -> None:
        """End the pass. Keras calls this."""
        self._offset = 0
        feed.end()
        if self.batches is not None:
            self.batches.on_epoch_end()


def slice_of(whole: range) -> range:
    """Return this rank's contiguous slice; sizes differ by at most one, and the larger ones come first."""
    quotient, rest = divmod(len(whole), size())
    begin = rank() * quotient + min(rank(), rest)
    return whole[begin : begin + quotient + (rank() < rest)]


def _on_host(array: Any) -> NDArray[Any]:
    return np.asarray(keras.ops.convert_to_numpy(array))


def _digest(arrays: tuple[Any, ...]) -> dict[str, str]:
    """Return a checksum of each array, by its name: of all its bytes, since a sample would miss other examples."""
    digests = {}
    for (part, *path), leaf in keras.tree.flatten_with_path(arrays):
        name = ("x", "y", "sample_weight")[part] + "".join(f"[{key!r}]" for key in path)
        # Within a step that is compiled, a slice of a tensor would be part of the step.
        array = _on_host(leaf) if keras.ops.is_tensor(leaf) else leaf
        block = max(1, _BLOCK_BYTES // max(1, _on_host(array[:1]).nbytes))
        checksum = 0
        for begin in range(0, len(array), block):
            values = _on_host(array[begin : begin + block])
            content = repr(values.tolist()).encode() if values.dtype.hasobject else values.tobytes()
            checksum = zlib.crc32(content, checksum)
        digests[name] = f"{checksum:08x}"
    return digests


def _as_slice(positions: range) -> slice:
    return slice(positions.start, positions.stop)


def shard(
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    batch_size: int = 32,
    shuffle: bool = True,
    seed: int = 0,
) -> Any:
    """Give each rank its slice of every batch. Pass the result to Keras' ``fit`` as `x`, without `batch_size`.

    Pass `shuffle=False` to ``fit``, too: the order is that of `shard`.

    Training on other arrays or arguments than rank 0's is refused on all ranks: by the callbacks of
    `lockstep.callbacks` when it begins, and by `lockstep.DistributedOptimizer` in its first step. Arrays are read once
    for that, at about a second for each GB.

    The order of examples depends only on `seed` and the number of the pass, so any number of workers trains on the same
    batches, and `lockstep.callbacks.BackupAndRestore` can continue in the middle of an epoch.

    Parameters
    ----------
    x, y, sample_weight
        NumPy arrays, or tuples and dicts of them, with equally many examples; equal on all ranks. Or `x` alone: a
        `keras.utils.PyDataset` of global batches, each of which is sliced.
    batch_size
        Examples of a global batch, on all ranks together.
    shuffle
        Whether every pass has another order.
    seed
        Of the order.
    """
    if isinstance(x, keras.utils.PyDataset):
        if y is not None or sample_weight is not None:
            raise UsageError("a PyDataset has its own targets and weights; pass it alone")
        return ShardedData(None, x, 0, False, seed)
    arrays = (x,) if y is None else (x, y) if sample_weight is None else (x, y, sample_weight)
    leaves = keras.tree.flatten(arrays)
    wrong = next((leaf for leaf in leaves if not hasattr(leaf, "__len__") or not hasattr(leaf, "shape")), None)
    if wrong is not None:
        raise UsageError(
            f"shard takes arrays or a PyDataset, not {type(wrong).__name__}; give each rank its part of other data "
            "yourself, for example dataset.shard(lockstep.size(), lockstep.rank())"
        )
    lengths = {len(leaf) for leaf in leaves}
    if len(lengths) != 1 or 0 in lengths:
        raise UsageError(
            f"the arrays have {', '.join(map(str, sorted(lengths)))} examples; give all equally many, and some"
        )
    if batch_size < size():
        raise UsageError(
            f"batch_size is {batch_size} on all ranks together, less than one example for {size()} workers"
        )
    return ShardedData(arrays, None, batch_size, shuffle, seed)
