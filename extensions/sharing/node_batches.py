"""Batches that trials in several trainers of a node read once.

Theory of operation. With shared seeding a batch is decided by its key and its examples, whoever
reads it (``streams``). Trainers of a node put what they have read into a cache (``node_cache``). A
trainer that finds its batch being read by another one reads a later one meanwhile, which that one
will find. So each reads its part, and nobody waits for long. Who is behind finds its batches and
catches up; who is alone, or has batches that are read as fast as they are found, reads for itself.
Both ways are timed all along, so each trial has its own race, and says how it comes out.

Two trainers call ``data()`` apart, so what they get must be the same data. Names in the cache have
in them the study, its code, the parameters that ``data()`` has read, the machine, and the digest of
two examples. Inputs that change between two calls, other than in these examples, are not noticed,
as they are not when a trial moves.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

import torch

from ...tasks.contracts.rng import key
from .node_cache import NodeCache, can_be_put, digest, token

if TYPE_CHECKING:
    from torch.utils.data import Dataset

    from ...tasks.training.data import Item

#: How many batches ahead one is read while another trainer reads the next.
AHEAD = 4
#: So many batches are read before it is known what reading takes.
TIMED = 4
#: Seconds between two looks at who else reads.
LOOK_EVERY = 0.5
#: Reading must take so many times as long as putting a batch there or finding one.
PAYS = 8.0
#: A batch that another trainer reads is awaited for so many times as long as reading takes.
PATIENCE = 2.0
#: After so many batches it is judged what they took: less than this part of what reading them
#: would have. Else so many are read alone, and twice as many the next time.
JUDGED, FASTER = 32, 0.95
#: Seconds between two looks whether it is there.
PAUSE = 0.0005
_LAST = 32


class NodeBatches:
    """The batches of one trial, some read by trials in other trainers of the node."""

    def __init__(
        self,
        cache: NodeCache,
        study: str,
        source: str,
        *,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """``source``: what decides the data of this trial of ``study``, but for their content.

        ``clock`` has seconds, and ``sleep`` waits for so many.
        """
        self._cache = cache
        self._clock = clock
        self._sleep = sleep
        self._study = token(study)
        self._source = self._study + _short(source)
        #: The first part of its batches' names, by the ``id`` of their data set.
        self._groups: dict[int, str] = {}
        self._reads: deque[float] = deque(maxlen=_LAST)
        self._handled: deque[float] = deque(maxlen=_LAST)
        self._looked = -math.inf
        self._company = False
        self._possible = True
        #: Why it reads each batch itself though others read the same, or did so for a while.
        self.apart = ""
        self._found = False
        #: The batches that it has read ahead, by name.
        self._ahead: set[str] = set()
        #: Batches since it was judged, and their seconds; batches that are still to be read alone,
        #: and the next time.
        self._count, self._seconds = 0, 0.0
        self._alone, self._next_alone = 0, JUDGED

    def get(
        self, data: Dataset[Any], items: Sequence[Item], i: int, read: Callable[[Item], Any]
    ) -> Any:
        """The batch ``items[i]`` of ``data``, which ``read`` would read. More may be read ahead."""
        if not self._pays(data, read):
            return self._timed(read, items[i])
        began = self._clock()
        found = self._shared(self._groups[id(data)], items, i, read)
        self._judge(self._clock() - began)
        return found

    def found(self) -> bool:
        """Whether others have read some of the epoch's batches. The next epoch begins."""
        found, self._found = self._found, False
        return found

    def _shared(
        self, group: str, items: Sequence[Item], i: int, read: Callable[[Item], Any]
    ) -> Any:
        name = _name(group, items[i])
        until = self._clock() + PATIENCE * median(self._reads)
        while (found := self._find(name)) is None:
            if self._cache.claim(name) or self._clock() > until:
                return self._read_for_all(read, items[i], name)
            if not self._read_ahead(group, items[i + 1 : i + 1 + AHEAD], read):
                self._sleep(PAUSE)
        self._found = self._found or name not in self._ahead
        self._ahead.discard(name)
        return found[0]

    def _judge(self, seconds: float) -> None:
        """A batch took so long to have."""
        self._count += 1
        self._seconds += seconds
        if self._count == JUDGED:
            if self._seconds > FASTER * JUDGED * median(self._reads):
                self._alone, self._next_alone = self._next_alone, 2 * self._next_alone
                self.apart = "handing them over between trainers took as long as reading them"
            else:
                self._next_alone = JUDGED
            self._count, self._seconds = 0, 0.0

    def _pays(self, data: Dataset[Any], read: Callable[[Item], Any]) -> bool:
        """Whether others are there, and what they have read is had sooner than read."""
        if not self._possible or len(self._reads) < TIMED:
            return False
        if self._alone:
            self._alone -= 1
            return False
        if (now := self._clock()) - self._looked >= LOOK_EVERY:
            self._looked = now
            self._possible = self._cache.open()
            self._company = self._possible and self._cache.others(self._source)
        if not self._company:
            return False
        if id(data) not in self._groups:
            self._groups[id(data)] = self._named(data, read)
        if not self._possible:
            return False
        reads, handled = median(self._reads), median(self._handled) if self._handled else 0.0
        if reads > PAYS * handled:
            self.apart = ""
            return True
        times = f"{1e3 * reads:.1f} ms, and handed over between trainers in {1e3 * handled:.1f} ms"
        self.apart = f"one is read in {times}"
        return False

    def _named(self, data: Dataset[Any], read: Callable[[Item], Any]) -> str:
        """The first part of the names of batches of ``data``, from two of its examples."""
        count = len(data)  # type: ignore[arg-type]  # it has a length (``materialise``)
        chosen = [key("node batches", self._source, n) % count for n in range(2)]
        sample = read((key("node batches", self._source), torch.tensor(chosen)))
        self._check(sample)
        said = f"{self._source} {count} {digest(sample) if self._possible else ''}"
        return self._study + _short(said)

    def _check(self, batch: Any) -> None:
        """See whether batches such as this one can be handed over."""
        if not can_be_put(batch):
            self._possible = False
            self.apart = "they are not plain tensors, texts and numbers"

    def _find(self, name: str) -> tuple[Any] | None:
        began = self._clock()
        found = self._cache.find(name)
        if found is not None:
            self._handled.append(self._clock() - began)
        return found

    def _read_for_all(self, read: Callable[[Item], Any], item: Item, name: str) -> Any:
        try:
            made = self._timed(read, item)
            self._check(made)
            if self._possible:
                began = self._clock()
                self._cache.put(name, made)
                self._handled.append(self._clock() - began)
        finally:
            self._cache.release(name)
        return made

    def _read_ahead(self, group: str, items: Sequence[Item], read: Callable[[Item], Any]) -> bool:
        """Read the first of ``items`` that nobody has read or reads. False: there is none."""
        for item in items:
            name = _name(group, item)
            if not self._cache.has(name) and self._cache.claim(name):
                self._read_for_all(read, item, name)
                self._ahead.add(name)
                return True
        return False

    def _timed(self, read: Callable[[Item], Any], item: Item) -> Any:
        began = self._clock()
        made = read(item)
        self._reads.append(self._clock() - began)
        return made


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _name(group: str, item: Item) -> str:
    number, indices = item
    said = hashlib.blake2b(f"{number} {torch.get_num_threads()} ".encode(), digest_size=16)
    said.update(indices.numpy().data)
    return f"{group}.{said.hexdigest()}"
