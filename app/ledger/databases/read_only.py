"""Query a ledger that another process writes. Each query sees one moment, after a check.

The list of studies is read without SQLAlchemy if the database allows this.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ....base.errors import BackendError
from .base import Ask, Newest, asking, check_empty, check_not_newer, check_noted, revision
from .going import Going, read_going
from .open import database_at
from .row_digest import first_fault
from .schema import HEAD, STUDY_COLUMNS

if TYPE_CHECKING:
    from sqlalchemy import Engine, Row, Select, Table

_STUDIES = f"SELECT {', '.join(STUDY_COLUMNS)} FROM study ORDER BY created_at, id"  # noqa: S608 - constants


class ReadOnly:
    """Read-only access to the ledger at ``url``, which may appear, grow and vanish at any time."""

    def __init__(self, url: str) -> None:
        self.database = database_at(url)

    @cached_property
    def _engine(self) -> Engine:
        engine = self.database.reader()
        weakref.finalize(self, engine.dispose)
        return engine

    def is_empty(self) -> bool:
        """Return True if no scheduler has opened this ledger yet.

        Raises LedgerDamaged if data were lost.
        """
        if self.database.is_absent():
            return True
        with self.database.translate_errors(), self._asking() as ask:
            if revision(self.database, ask) is not None:
                return False
            check_empty(self.database, ask)
            return True

    def rows(self, query: Select[Any], table: Table | None = None) -> Sequence[Row[Any]]:
        """Return the rows of ``query`` without comparing their digests.

        If ``table`` is not None, the query reads only that table, and only the structure of that
        table is checked. Raises BackendError if there is no readable ledger, and LedgerDamaged if
        the ledger differs from what was written.
        """
        newest = self._newest()
        with self.database.translate_errors(), self._engine.connect() as connection:
            self._check(asking(connection), newest, None if table is None else table.name)
            return connection.execute(query).all()

    def whole(self, table: Table, query: Select[Any]) -> Sequence[Row[Any]]:
        """Return the rows of ``query`` after comparing their digests.

        The query must select whole rows of ``table``. Raises the same errors as ``rows``.
        """
        from .digests import fault

        rows = self.rows(query, table)
        if message := fault(table, rows):
            raise self.database.damaged(message)
        return rows

    def studies(self) -> Sequence[Sequence[Any]]:
        """Return the whole rows of all studies (``STUDY_COLUMNS``), oldest first.

        The digests of the rows are compared. Raises the same errors as ``rows``.
        """
        newest = self._newest()
        with self.database.translate_errors(), self._asking() as ask:
            self._check(ask, newest, "study")
            rows = ask(_STUDIES)
        if message := first_fault("study", rows):
            raise self.database.damaged(message)
        return rows

    def going(self, recent: int) -> Going | None:
        """Return the rows about unfinished studies, with the last ``recent`` epochs of each study.

        The digests of the rows are compared. The result is None if the database cannot be read
        without SQLAlchemy. Raises the same errors as ``rows``.
        """
        newest, direct = self._newest(), self.database.direct()
        if direct is None:
            return None
        with self.database.translate_errors(), direct as ask:
            self._check(ask, newest, "study")
            rows = read_going(ask, recent)
        if isinstance(rows, str):
            raise self.database.damaged(rows)
        return rows

    @contextmanager
    def _asking(self) -> Iterator[Ask]:
        """Open the database for reading, without SQLAlchemy if that is possible."""
        direct = self.database.direct()
        if direct is not None:
            with direct as ask:
                yield ask
        else:
            with self._engine.connect() as connection:
                yield asking(connection)

    def _newest(self) -> Newest | None:
        """Return the newest event that the ledger must contain, or None if no event is noted.

        Call this method before reading rows, since events that are written in between are newer.
        Raises BackendError if there is no ledger.
        """
        if self.database.is_absent():
            url = self.database.shown
            raise BackendError(f"nothing has run here yet: there is no ledger at {url}")
        return self.database.noted()

    def _check(self, ask: Ask, noted: Newest | None, table: str | None) -> None:
        """Check that the ledger can be read and, as far as a reader can tell, was not altered.

        Raises BackendError if the ledger cannot be read, and LedgerDamaged if it was altered.
        """
        url = self.database.shown
        if message := self.database.sampled_structure_fault(ask, table):
            raise self.database.damaged(message)
        at = revision(self.database, ask)
        if at is None:
            check_empty(self.database, ask)
            raise BackendError(f"nothing has run here yet: the ledger {url} is empty")
        if at != HEAD:
            check_not_newer(self.database, ask, at)
            raise BackendError(
                f"the ledger {url} was written by an older Penstock (schema {int(at)}, this"
                f" one reads {int(HEAD)}): start its scheduler once (penstock up)"
            )
        check_noted(self.database, ask, noted)
