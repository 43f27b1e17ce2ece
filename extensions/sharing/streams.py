"""Batches that several trials of a lane read once.

Theory of operation. A key and the examples' indices decide a batch (``tasks.training.data``).
Trials with shared seeding have equal keys, so where they have one data set too, a batch that one
has read is what another one would read. It is kept for those at work in the lane that will come to
it, which is known from their epochs, and each gets a copy: code may change a batch in place. Nobody
waits for anybody. There is a bound in bytes and one in batches: then the oldest batch goes, and who
comes to it later reads it for itself, to the same bits. In a lane who finds its batches is soon
ahead of who reads them, and reads the next ones. So the trials stay close together by themselves.

What that saves each trial is measured (``reading``), so that the engine knows whether such trials
are to sit beside each other.
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
#: Of the bytes that ``capacity`` gives, this part.
PART = 4
#: What cannot be changed in place.
_UNCHANGING = (str, bytes, int, float, bool, type(None))


@dataclass(eq=False)
class _Reader:
    """A trial that reads, and what it has read in its epoch."""

    training: Training
    epoch: int = 0
    had: set[int] = field(default_factory=set)
    reading: Reading = field(default_factory=Reading)

    def come_to(self, name: int) -> None:
        """It has come to this batch."""
        if self.epoch != self.training.epoch:
            self.epoch, self.had = self.training.epoch, set()
            self.reading.begin()
        self.had.add(name)
        self.reading.batches += 1

    @property
    def group(self) -> tuple[Any, ...]:
        """Equal for trials that read the same batches."""
        run = self.training
        sizes = run.batch_size, run.code.eval_batch_size, run.shards
        return id(run.data.train), run.seed, run.number, sizes

    def wants(self, name: int, epoch: int) -> bool:
        """Whether it will come to this batch of ``epoch``, as far as can be told."""
        now = self.training.epoch
        return now == epoch - 1 or (now == epoch and not (self.epoch == now and name in self.had))


@dataclass
class _Kept:
    """A batch, the examples that it is of, who wants it, and its bytes."""

    data: Dataset[Any]
    indices: Tensor
    batch: Any
    wanted: set[_Reader]
    bytes: int
    #: Who has read it, in how many seconds, and for how many trials, itself included.
    reader: _Reader
    seconds: float
    party: int


class Streams:
    """The batches that trials of a trainer have in common. One has the turn at a time."""

    def __init__(self, capacity: Callable[[], int]) -> None:
        """``capacity``: bytes, of which a fourth may be kept."""
        self._capacity = capacity
        self._readers: dict[str, _Reader] = {}
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        self._bytes = 0
        #: Bytes that may be kept; None until a segment keeps a batch.
        self._most: int | None = None
        #: How many batches were found here.
        self.found = 0

    def join(self, trial: str, training: Training, of_node: Batches | None = None) -> None:
        """The trial reads batches from now on, until it is forgotten.

        What is not kept here it gets from ``of_node``; None: it reads it.
        """
        known = self._readers.get(trial)
        if known is None or known.training is not training:
            self.forget(trial)
            self._readers[trial] = _Reader(training)
        self._most = None
        training.batches = LaneBatches(self, self._readers[trial], of_node)

    def forget(self, trial: str) -> None:
        """The trial is not in memory any more."""
        if (gone := self._readers.pop(trial, None)) is not None:
            gone.training.batches = None
            for name, kept in list(self._kept.items()):
                kept.wanted.discard(gone)
                if not kept.wanted:
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
        """The batch that ``read`` would read, with the key ``name``."""
        reader.come_to(name)
        kept = self._kept.get(name)
        if kept is not None and kept.data is data and torch.equal(kept.indices, indices):
            self.found += 1
            return self._take(name, reader)
        began = time.perf_counter()
        made = read()
        seconds = time.perf_counter() - began
        reader.reading.read(seconds)
        others = set() if kept is not None else self._others(reader, name)
        if (others or reader.reading.races) and is_copyable(made):
            copy = _timed_copy(made, reader)
            if others:
                size, party = _bytes(made), 1 + len(others)
                self._keep(name, _Kept(data, indices, copy, others, size, reader, seconds, party))
        return made

    def shared(self, trial: str, seconds: float, at_most: float) -> tuple[int, float]:
        """For how many trials batches of the epoch were read once, itself included.

        0: that does not pay, since with two of them an epoch would take more than ``at_most`` of
        what it takes alone. Also what this one, which took ``seconds``, would have taken alone; 0
        if these.
        """
        reader = self._readers.get(trial)
        if reader is None or reader.epoch != reader.training.epoch:
            return 0, 0.0  # nothing was read here
        reading = reader.reading
        alone = reading.alone(seconds) if reading.party > 1 else 0.0
        return reading.party if reading.pays(seconds, at_most) else 0, alone

    def _others(self, reader: _Reader, name: int) -> set[_Reader]:
        """Those at work here that will come to the batch that this one has read."""
        readers = self._readers.values()
        at_work = [
            each for each in readers if each is not reader and each.training.turn is not None
        ]
        if not at_work:
            return set()
        group, epoch = reader.group, reader.epoch
        return {each for each in at_work if each.group == group and each.wants(name, epoch)}

    def _keep(self, name: int, kept: _Kept) -> None:
        if self._most is None:
            self._most = self._capacity() // PART
        if kept.bytes > self._most:
            return
        self._kept[name] = kept
        self._bytes += kept.bytes
        while self._bytes > self._most or len(self._kept) > BATCHES:
            self._drop(next(iter(self._kept)))

    def _take(self, name: int, reader: _Reader) -> Any:
        """A copy of what is kept; the last one that wants it gets the batch itself."""
        kept = self._kept[name]
        kept.wanted.discard(reader)
        reader.reading.found(kept.seconds, kept.party)
        kept.reader.reading.joined(kept.party)
        if kept.wanted:
            return _timed_copy(kept.batch, reader)
        self._drop(name)
        return kept.batch

    def _drop(self, name: int) -> None:
        self._bytes -= self._kept.pop(name).bytes


@dataclass(frozen=True)
class LaneBatches:
    """The batches of one trial (``tasks.training.data.Batches``)."""

    streams: Streams
    reader: _Reader
    of_node: Batches | None

    def get(
        self, data: Dataset[Any], items: Sequence[Item], i: int, read: Callable[[Item], Any]
    ) -> Any:
        """As ``Streams.batch``."""

        def made() -> Any:
            if self.of_node is None:
                return read(items[i])
            return self.of_node.get(data, items, i, read)

        number, indices = items[i]
        return self.streams.batch(self.reader, data, number, indices, read=made)


def is_copyable(batch: Any) -> bool:
    """Whether a copy of the batch has all that it has, and shares nothing that can change."""
    leaves = tree_leaves(batch)
    tensors = [each for each in leaves if isinstance(each, Tensor)]
    plain = all(type(each) is Tensor and not each.requires_grad for each in tensors)
    others = (each for each in leaves if not isinstance(each, Tensor))
    apart = len({each.untyped_storage().data_ptr() for each in tensors if each.nbytes}) == len(
        [each for each in tensors if each.nbytes]
    )
    return plain and apart and all(type(each) in _UNCHANGING for each in others)


def copied(batch: Any) -> Any:
    """A copy of a batch that is copyable."""
    return tree_map(lambda each: each.clone() if isinstance(each, Tensor) else each, batch)


def _timed_copy(batch: Any, reader: _Reader) -> Any:
    """A copy that ``reader`` makes."""
    began = time.perf_counter()
    copy = copied(batch)
    reader.reading.copied(time.perf_counter() - began)
    return copy


def _bytes(batch: Any) -> int:
    return sum(each.nbytes for each in tree_leaves(batch) if isinstance(each, Tensor))
