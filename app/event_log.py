"""The ledger's events and snapshots, as its writer and its readers read them alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Row, Select, select

from ..scheduler.events import Event
from . import codec
from .tables import EVENT, SNAPSHOT

#: Events replayed a page at a time, so that the history need not fit in memory.
_PAGE = 1000


class EventLog(ABC):
    """What an engine is rebuilt from. ``BackendError`` when the storage does not answer."""

    def replay(self, after: int = 0) -> Iterator[tuple[int, Event]]:
        """The events with a sequence number above ``after``, in order."""
        query = select(EVENT.c.seq, EVENT.c.kind, EVENT.c.body).order_by(EVENT.c.seq).limit(_PAGE)
        seen = after
        while rows := self._rows(query.where(EVENT.c.seq > seen)):
            for row in rows:
                yield row.seq, codec.decode(row.kind, row.body)
            seen = rows[-1].seq

    def latest_snapshot(self) -> tuple[int, str] | None:
        """The newest snapshot: the last event that it covers, and its text."""
        query = select(SNAPSHOT.c.seq, SNAPSHOT.c.body).order_by(SNAPSHOT.c.seq.desc()).limit(1)
        return next(((row.seq, row.body) for row in self._rows(query)), None)

    @abstractmethod
    def _rows(self, query: Select[Any]) -> Sequence[Row[Any]]: ...
