"""Passes over a source for the native engine: each is collected, and takes the place of the one before it.

The workers have mapped the memory. They wait while an epoch begins, after the last backup has been written: so a
restart repeats the epoch whose data is there.
"""

from __future__ import annotations

from collections.abc import Sequence

from lockstep._caller import Data
from lockstep._examples import Examples, collect, rewrite_examples
from lockstep._job import Message
from lockstep._native import DataError
from lockstep._sources import Source


class Passes(Data):
    """The passes over one source.

    Parameters
    ----------
    source
        What is read.
    first
        The pass that was collected to begin with, for the first epoch that needs one.
    written
        Where it is, as `write_examples` says.
    trains
        Whether the batches are trained on, and must be as long as those of the first pass.
    every
        Epochs for each of which there is a pass: every so many.
    """

    def __init__(self, source: Source, first: Examples, written: Message, trains: bool, every: int = 1) -> None:
        self._source = source
        self._examples = len(first)
        self._written = written
        self._trains = trains
        self._every = every
        self._epoch: int | None = None  # whose data is there

    def prepare(self, epoch: int) -> None:
        """Collect the data of an epoch, unless it is there already."""
        if (epoch + 1) % self._every or epoch == self._epoch:
            return
        if self._epoch is not None:
            data = collect(self._source, self._trains)
            if len(data) != self._examples:
                raise DataError(
                    f"{self._source.what} has {len(data)} examples in epoch {epoch + 1}, but {self._examples} before; "
                    "give equally many in every pass, or use engine='keras'"
                )
            rewrite_examples(self._written, data)
        self._epoch = epoch


class AllPasses(Data):
    """The passes over all sources of a training."""

    def __init__(self, passes: Sequence[Passes]) -> None:
        self._passes = passes

    def prepare(self, epoch: int) -> None:
        """Collect the data of an epoch, if it is not there."""
        for each in self._passes:
            each.prepare(epoch)
