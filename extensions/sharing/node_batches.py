"""Batches that are read once for trials in several trainers of a node.

Theory of operation. With shared seeding a batch is determined by its key and its examples, no
matter which trial reads it (``streams``). Trainers of a node put the batches that they have read
into a cache (``node_cache``). If another trainer is just reading a trainer's next batch, the
trainer reads a later batch meanwhile, which the other will find. So each reads a part, and no
trainer waits for long. A trial that is behind finds its batches and catches up. A trial reads all
batches itself if it is alone, or if reading a batch is as fast as finding it. Both are timed
throughout, so each trial decides for itself, and reports the result.

Two trainers call ``data()`` separately, and must get the same data. Names in the cache include the
study, its code, the parameters that ``data()`` has read, the machine, and the digest of two
examples. If the data change between two calls, but not in these examples, this is not noticed, just
as when a trial moves to another trainer.
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

#: Number of later batches, one of which is read while another trainer reads the next batch.
AHEAD = 4
#: Number of batches that a trial reads before the time of reading is taken as known.
TIMED = 4
#: Seconds between two checks for other readers.
LOOK_EVERY = 0.5
#: Least ratio of the time of reading a batch to the time of putting or finding one for which
#: sharing pays.
PAYS = 8.0
#: Longest wait for a batch that another trainer reads, divided by the time of reading one.
PATIENCE = 2.0
#: Number of batches after which their time is judged, and the largest ratio of that time to the
#: time of reading them. If the ratio is larger, this number of batches is read alone, and twice as
#: many the next time.
JUDGED, FASTER = 32, 0.95
#: Seconds between two checks for a batch that another trainer reads.
PAUSE = 0.0005
_LAST = 32


class NodeBatches:
    """The batches of one trial. Trials in other trainers of the node read some of them."""

    def __init__(
        self,
        cache: NodeCache,
        study: str,
        source: str,
        *,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Prepare the batches of one trial.

        Args:
            cache: The batches of the node's trainers.
            study: Name of the trial's study.
            source: Text of all that determines the trial's data, except its content.
            clock: Returns the time in seconds.
            sleep: Waits for a number of seconds.
        """
        self._cache = cache
        self._clock = clock
        self._sleep = sleep
        self._study = token(study)
        self._source = self._study + _short(source)
        #: The first part of the batches' names, by the ``id`` of their data set.
        self._groups: dict[int, str] = {}
        self._reads: deque[float] = deque(maxlen=_LAST)
        self._handled: deque[float] = deque(maxlen=_LAST)
        self._looked = -math.inf
        self._company = False
        self._possible = True
        #: Reason why this trial reads all batches itself, or did so for a while, although other
        #: trainers read the same batches; empty if there is none.
        self.apart = ""
        self._found = False
        #: Names of the batches that this trial has read ahead.
        self._ahead: set[str] = set()
        #: Number of batches since the last judgement, and their seconds; number of batches still to
        #: be read alone, and that number for the next time.
        self._count, self._seconds = 0, 0.0
        self._alone, self._next_alone = 0, JUDGED

    def get(
        self, data: Dataset[Any], items: Sequence[Item], i: int, read: Callable[[Item], Any]
    ) -> Any:
        """Return the batch ``items[i]`` of ``data``, found or read. More may be read ahead."""
        if not self._pays(data, read):
            return self._timed(read, items[i])
        began = self._clock()
        batch = self._shared(self._groups[id(data)], items, i, read)
        self._judge(self._clock() - began)
        return batch

    def found(self) -> bool:
        """Return True if other trainers have read batches of this epoch; call it once an epoch."""
        is_shared, self._found = self._found, False
        return is_shared

    def _shared(
        self, group: str, items: Sequence[Item], i: int, read: Callable[[Item], Any]
    ) -> Any:
        name = _name(group, items[i])
        until = self._clock() + PATIENCE * median(self._reads)
        while (entry := self._find(name)) is None:
            if self._cache.claim(name) or self._clock() > until:
                return self._read_for_all(read, items[i], name)
            if not self._read_ahead(group, items[i + 1 : i + 1 + AHEAD], read):
                self._sleep(PAUSE)
        self._found = self._found or name not in self._ahead
        self._ahead.discard(name)
        return entry[0]

    def _judge(self, seconds: float) -> None:
        """Count a batch that took ``seconds`` to get. Judge the last ones if there are enough."""
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
        """Return True if other trainers read the same data, and if finding batches pays."""
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
        """Return the first part of the names of ``data``'s batches, from two of its examples."""
        count = len(data)  # type: ignore[arg-type]  # it has a length (``materialise``)
        sample_indices = [key("node batches", self._source, n) % count for n in range(2)]
        sample = read((key("node batches", self._source), torch.tensor(sample_indices)))
        self._check(sample)
        description = f"{self._source} {count} {digest(sample) if self._possible else ''}"
        return self._study + _short(description)

    def _check(self, batch: Any) -> None:
        """Note the reason if batches like this one cannot be handed to other trainers."""
        if not can_be_put(batch):
            self._possible = False
            self.apart = "they are not plain tensors, texts and numbers"

    def _find(self, name: str) -> tuple[Any] | None:
        began = self._clock()
        entry = self._cache.find(name)
        if entry is not None:
            self._handled.append(self._clock() - began)
        return entry

    def _read_for_all(self, read: Callable[[Item], Any], item: Item, name: str) -> Any:
        try:
            batch = self._timed(read, item)
            self._check(batch)
            if self._possible:
                began = self._clock()
                self._cache.put(name, batch)
                self._handled.append(self._clock() - began)
        finally:
            self._cache.release(name)
        return batch

    def _read_ahead(self, group: str, items: Sequence[Item], read: Callable[[Item], Any]) -> bool:
        """Read the first of ``items`` that no trainer has read or reads; return False if none."""
        for item in items:
            name = _name(group, item)
            if not self._cache.has(name) and self._cache.claim(name):
                self._read_for_all(read, item, name)
                self._ahead.add(name)
                return True
        return False

    def _timed(self, read: Callable[[Item], Any], item: Item) -> Any:
        began = self._clock()
        batch = read(item)
        self._reads.append(self._clock() - began)
        return batch


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _name(group: str, item: Item) -> str:
    number, indices = item
    digest_of_item = hashlib.blake2b(
        f"{number} {torch.get_num_threads()} ".encode(), digest_size=16
    )
    digest_of_item.update(indices.numpy().data)
    return f"{group}.{digest_of_item.hexdigest()}"
