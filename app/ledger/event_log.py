"""The ledger's events and snapshots, as its writer and its readers read them alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Row, Select, Table, select

from ...scheduler.model.events import Event
from . import codec
from .databases.digests import EVENTS, PAGE, fault
from .databases.tables import EVENT, SNAPSHOT

if TYPE_CHECKING:
    from .databases.base import Database


class EventLog(ABC):
    """What an engine is rebuilt from. ``BackendError`` when the storage does not answer.

    Of what it reads every row is as it was written, or it raises ``LedgerDamaged``.
    """

    _database: Database

    def replay(self, after: int = 0) -> Iterator[tuple[int, Event]]:
        """The events with a sequence number above ``after``, in order.

        They are read a page at a time, so that the history need not fit in memory.
        """
        query = EVENTS.order_by(EVENT.c.seq).limit(PAGE)
        seen = after
        while rows := self._whole(EVENT, query.where(EVENT.c.seq > seen)):
            for row in rows:
                yield row.seq, codec.decode(row.kind, row.body)
            seen = rows[-1].seq

    def latest_snapshot(self) -> tuple[int, str] | None:
        """The newest snapshot: the last event that it covers, and its text."""
        query = select(SNAPSHOT).order_by(SNAPSHOT.c.seq.desc()).limit(1)
        return next(((row.seq, row.body) for row in self._whole(SNAPSHOT, query)), None)

    @abstractmethod
    def _rows(self, query: Select[Any]) -> Sequence[Row[Any]]:
        """The rows of ``query``, as they are."""

    def _whole(self, table: Table, query: Select[Any], at: int = 0) -> Sequence[Row[Any]]:
        """The rows of ``query``, which selects whole rows of ``table`` from place ``at`` on.

        A condition on what no index holds must let through what is damaged (``of_kind``): else a
        row whose value there has changed would not be missed.
        """
        rows = self._rows(query)
        if found := fault(table, rows, at):
            raise self._database.damaged(found)
        return rows


def of_kind(*kinds: type[Event]) -> ColumnElement[bool]:
    """That an event is of one of ``kinds``, or of none that there is: that one is damaged."""
    names = [kind.__name__ for kind in kinds]
    return EVENT.c.kind.in_(names) | EVENT.c.kind.not_in(codec.KINDS)
