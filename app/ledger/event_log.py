"""Read the ledger's events and snapshots. The ledger's writer and its readers share this code."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Row, Select, Table, select

from ...scheduler.model.events import Event, StudyImported, StudyWritten
from . import codec
from .databases.digests import EVENTS, PAGE, fault
from .databases.tables import EVENT, IMPORTED, SNAPSHOT
from .summary import metric_names

if TYPE_CHECKING:
    from .databases.base import Database
    from .history import Rows


class EventLog(ABC):
    """Base class for access to the events and snapshots from which an engine is rebuilt.

    Methods raise BackendError if the database does not answer, and LedgerDamaged if a row differs
    from what was written.
    """

    _database: Database

    def replay(self, after: int = 0) -> Iterator[tuple[int, Event]]:
        """Yield the events with a sequence number above ``after``, in order.

        The events are read in pages, so they need not all fit in memory.
        """
        query = EVENTS.order_by(EVENT.c.seq).limit(PAGE)
        last = after
        while page := self._events(query.where(EVENT.c.seq > last)):
            yield from page
            last = page[-1][0]

    def latest_snapshot(self) -> tuple[int, str] | None:
        """Return the newest snapshot, or None if there is no snapshot.

        A snapshot is a pair: the number of the last event that the snapshot covers, and the text of
        the snapshot.
        """
        query = select(SNAPSHOT).order_by(SNAPSHOT.c.seq.desc()).limit(1)
        return next(((row.seq, row.body) for row in self._whole(SNAPSHOT, query)), None)

    @abstractmethod
    def _rows(self, query: Select[Any]) -> Sequence[Row[Any]]:
        """Return the rows of ``query`` without comparing their digests."""

    def _events(self, query: Select[Any]) -> list[tuple[int, Event]]:
        """Return the number and the event of each row of ``query``.

        The query must select whole rows of events, as ``EVENTS`` selects.
        """
        return [(row.seq, codec.decode(row.kind, row.body)) for row in self._whole(EVENT, query)]

    def _whole(self, table: Table, query: Select[Any], at: int = 0) -> Sequence[Row[Any]]:
        """Return the rows of ``query`` after comparing their digests.

        Raises LedgerDamaged if a row differs. Each row must contain a whole row of ``table``,
        beginning at index ``at``. A condition on a column without an index must also select damaged
        values, as the condition of ``of_kind`` does. Otherwise a row whose value in that column was
        changed would silently be left out.
        """
        rows = self._rows(query)
        if message := fault(table, rows, at):
            raise self._database.damaged(message)
        return rows


def of_kind(*kinds: type[Event]) -> ColumnElement[bool]:
    """Return a condition that selects events of ``kinds``.

    The condition also selects events of unknown kinds, which may be damaged rows.
    """
    names = [codec.name_of(kind) for kind in kinds]
    return EVENT.c.kind.in_(names) | EVENT.c.kind.not_in(codec.kinds())


def names_of(rows: Rows, study_id: str) -> tuple[str, ...]:
    """Return the names that the user gave to the values of a study's objectives.

    The result is empty if the user gave no names. ``rows`` reads whole rows.
    """
    events_query = EVENTS.where(EVENT.c.trial == study_id).order_by(EVENT.c.seq.desc())
    for row in rows(EVENT, events_query):
        event = codec.decode(row.kind, row.body)
        if isinstance(event, StudyWritten) and (names := metric_names(event.system_attrs)):
            return names
    imported = imports(rows, study_id)
    return next((metric_names(event.system_attrs) for _, event in imported), ())


def imports(rows: Rows, study_id: str | None = None) -> list[tuple[int, StudyImported]]:
    """Return the number and the event of each import of a study.

    If ``study_id`` is not None, only the import of that study is returned.
    """
    query = EVENTS.where(IMPORTED).order_by(EVENT.c.study, EVENT.c.seq)
    if study_id is not None:
        query = query.where(EVENT.c.study == study_id)
    events = ((row.seq, codec.decode(row.kind, row.body)) for row in rows(EVENT, query))
    return [(seq, event) for seq, event in events if isinstance(event, StudyImported)]
