"""Batches that are read once for several trials of a lane.

Theory of operation. A batch is determined by a key and the examples' indices
(``tasks.training.data``). Trials with shared seeding have equal keys, so if they also have the same
data set, they would all read the same batches. A batch is kept for those trials running in the lane
that will still need it, which is known from their epochs. Each gets a copy, since code may change a
batch in place. No trial waits for another. The kept batches are limited in bytes and in number.
Beyond the limit the oldest batch is dropped, and a trial that needs it later reads it again, with
the same bits. A trial that finds its batches soon overtakes the trial that reads them, and then
reads the next ones. So the trials stay close together by themselves.

The time saved for each trial is measured (``reading``), so that the engine can decide if such
trials should share a lane.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from .reading import Reading

if TYPE_CHECKING:
    from torch.utils.data import Dataset

    from ...tasks.training.data import Batches, Item
    from ...tasks.training.training import Training

#: The most batches that are kept, of all data sets together.
BATCHES = 256
#: Kept batches may take 1 / ``PART`` of the bytes that ``capacity`` gives.
PART = 4
#: Types that cannot be changed in place.
_UNCHANGING = (str, bytes, int, float, bool, type(None))


@dataclass(eq=False)
class _Reader:
    """A trial that reads batches, and the names of the batches it has reached in its epoch."""

    training: Training
    epoch: int = 0
    had: set[int] = field(default_factory=set)
    reading: Reading = field(default_factory=Reading)

    def come_to(self, name: int) -> None:
        """Note that the trial has reached the batch ``name``."""
        if self.epoch != self.training.epoch:
            self.epoch, self.had = self.training.epoch, set()
            self.reading.begin()
        self.had.add(name)
        self.reading.batches += 1

    @property
    def group(self) -> tuple[Any, ...]:
        """A key that is equal for trials that read the same batches."""
        run = self.training
        sizes = run.batch_size, run.code.eval_batch_size, run.shards
        return id(run.data.train), run.seed, run.number, sizes

    def wants(self, name: int, epoch: int) -> bool:
        """Return True if the trial will still need batch ``name`` of ``epoch``, as known now."""
        now = self.training.epoch
        return now == epoch - 1 or (now == epoch and not (self.epoch == now and name in self.had))


@dataclass
class _Kept:
    """A kept batch, its data set and indices, the trials that still need it, and its bytes."""

    data: Dataset[Any]
    indices: Tensor
    batch: Any
    wanted: set[_Reader]
    bytes: int
    #: The trial that read the batch, the seconds that it took, and the number of trials for which
    #: the batch was read, this one included.
    reader: _Reader
    seconds: float
    readers: int


class Streams:
    """The batches that trials of a trainer share. Only the trial in turn calls the methods."""

    def __init__(self, capacity: Callable[[], int]) -> None:
        """Start without readers. A fourth of the bytes that ``capacity`` gives may be kept."""
        self._capacity = capacity
        self._readers: dict[str, _Reader] = {}
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        self._bytes = 0
        #: Bytes that may be kept; None until a segment keeps a batch.
        self._most: int | None = None
        #: Number of batches that were found among the kept ones.
        self.found = 0

    def join(self, trial: str, training: Training, of_node: Batches | None = None) -> None:
        """Let the trial get its batches here, until ``forget`` is called for it.

        Batches that are not kept here come from ``of_node``, or are read if it is None.
        """
        existing = self._readers.get(trial)
        if existing is None or existing.training is not training:
            self.forget(trial)
            self._readers[trial] = _Reader(training)
        self._most = None
        training.batches = LaneBatches(self, self._readers[trial], of_node)

    def forget(self, trial: str) -> None:
        """Drop a trial that is no longer in memory, and batches that only this trial needed."""
        if (reader := self._readers.pop(trial, None)) is not None:
            reader.training.batches = None
            for name, entry in list(self._kept.items()):
                entry.wanted.discard(reader)
                if not entry.wanted:
                    self._drop(name)

    def batch(
        self,
        reader: _Reader,
        data: Dataset[Any],
        name: int,
        indices: Tensor,
        *,
        read: Callable[[], Any],
    ) -> Any:
        """Return the batch with the key ``name``: a kept one, or the result of ``read``."""
        reader.come_to(name)
        entry = self._kept.get(name)
        if entry is not None and entry.data is data and torch.equal(entry.indices, indices):
            self.found += 1
            return self._take(name, reader)
        began = time.perf_counter()
        batch = read()
        seconds = time.perf_counter() - began
        reader.reading.read(seconds)
        other_readers = set() if entry is not None else self._others(reader, name)
        if (other_readers or reader.reading.races) and is_copyable(batch):
            copy = _timed_copy(batch, reader)
            if other_readers:
                size, readers = _bytes(batch), 1 + len(other_readers)
                self._keep(
                    name, _Kept(data, indices, copy, other_readers, size, reader, seconds, readers)
                )
        return batch

    def shared(self, trial: str, seconds: float, at_most: float) -> tuple[int, float]:
        """Return the number of trials that shared an epoch's batches, and the epoch's time alone.

        The number includes the trial itself. It is 0 if sharing does not pay: with two trials, an
        epoch would take more than ``at_most`` times its time alone. The time alone is the number of
        seconds that this epoch, which took ``seconds``, would have taken without sharing. It is 0.0
        if no batch was shared.
        """
        reader = self._readers.get(trial)
        if reader is None or reader.epoch != reader.training.epoch:
            return 0, 0.0  # nothing was read here
        reading = reader.reading
        alone = reading.alone(seconds) if reading.readers > 1 else 0.0
        return reading.readers if reading.pays(seconds, at_most) else 0, alone

    def _others(self, reader: _Reader, name: int) -> set[_Reader]:
        """Return the running trials that still need the batch that ``reader`` has read."""
        readers = self._readers.values()
        at_work = [
            each for each in readers if each is not reader and each.training.turn is not None
        ]
        if not at_work:
            return set()
        group, epoch = reader.group, reader.epoch
        return {each for each in at_work if each.group == group and each.wants(name, epoch)}

    def _keep(self, name: int, entry: _Kept) -> None:
        if self._most is None:
            self._most = self._capacity() // PART
        if entry.bytes > self._most:
            return
        self._kept[name] = entry
        self._bytes += entry.bytes
        while self._bytes > self._most or len(self._kept) > BATCHES:
            self._drop(next(iter(self._kept)))

    def _take(self, name: int, reader: _Reader) -> Any:
        """Return a copy of a kept batch. The last trial that needs it gets the batch itself."""
        entry = self._kept[name]
        entry.wanted.discard(reader)
        reader.reading.found(entry.seconds, entry.readers)
        entry.reader.reading.joined(entry.readers)
        if entry.wanted:
            return _timed_copy(entry.batch, reader)
        self._drop(name)
        return entry.batch

    def _drop(self, name: int) -> None:
        self._bytes -= self._kept.pop(name).bytes


@dataclass(frozen=True)
class LaneBatches:
    """The batches of one trial in a lane (``tasks.training.data.Batches``)."""

    streams: Streams
    reader: _Reader
    of_node: Batches | None

    def get(
        self, data: Dataset[Any], items: Sequence[Item], i: int, read: Callable[[Item], Any]
    ) -> Any:
        """Return the batch ``items[i]`` of ``data``, like ``Streams.batch``."""

        def made() -> Any:
            if self.of_node is None:
                return read(items[i])
            return self.of_node.get(data, items, i, read)

        number, indices = items[i]
        return self.streams.batch(self.reader, data, number, indices, read=made)


def is_copyable(batch: Any) -> bool:
    """Return True if ``copied`` makes a complete copy that shares nothing mutable."""
    leaves = tree_leaves(batch)
    tensors = [each for each in leaves if isinstance(each, Tensor)]
    plain = all(type(each) is Tensor and not each.requires_grad for each in tensors)
    other_leaves = (each for each in leaves if not isinstance(each, Tensor))
    apart = len({each.untyped_storage().data_ptr() for each in tensors if each.nbytes}) == len(
        [each for each in tensors if each.nbytes]
    )
    return plain and apart and all(type(each) in _UNCHANGING for each in other_leaves)


def copied(batch: Any) -> Any:
    """Return a copy of a batch that ``is_copyable``."""
    return tree_map(lambda each: each.clone() if isinstance(each, Tensor) else each, batch)


def _timed_copy(batch: Any, reader: _Reader) -> Any:
    """Return a copy of a batch, and add the time of copying to ``reader``."""
    began = time.perf_counter()
    copy = copied(batch)
    reader.reading.copied(time.perf_counter() - began)
    return copy


def _bytes(batch: Any) -> int:
    return sum(each.nbytes for each in tree_leaves(batch) if isinstance(each, Tensor))
