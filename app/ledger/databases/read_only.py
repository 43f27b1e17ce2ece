"""Queries a ledger that another process writes, each as of one moment, and checks it before."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, Select, Table

from ....profiling.base.errors import BackendError
from .base import check_empty, check_not_newer, check_noted, revision
from .digests import fault
from .open import database_at
from .tables import HEAD


class ReadOnly:
    """The ledger at ``url``. It may appear, grow and vanish between two queries."""

    def __init__(self, url: str) -> None:
        self.database = database_at(url)
        self._engine = self.database.reader()
        weakref.finalize(self, self._engine.dispose)

    def is_empty(self) -> bool:
        """Whether no scheduler has opened this ledger yet. LedgerDamaged if it lost rows."""
        if self.database.is_absent():
            return True
        with self.database.translate_errors(), self._engine.connect() as connection:
            if revision(connection) is not None:
                return False
            check_empty(self.database, connection)
            return True

    def rows(self, query: Select[Any], table: Table | None = None) -> Sequence[Row[Any]]:
        """The rows of ``query``, unchecked; ``table`` is the only one that it reads, where given.

        Only that one's structure is checked then. Raises BackendError where there is no ledger
        that can be read, and LedgerDamaged where it is not as it was written.
        """
        shown = self.database.shown
        if self.database.is_absent():
            raise BackendError(f"nothing has run here yet: there is no ledger at {shown}")
        noted = self.database.noted()  # read first: an event written meanwhile is newer
        with self.database.translate_errors(), self._engine.connect() as connection:
            if found := self.database.sampled_structure_fault(connection, table):
                raise self.database.damaged(found)
            at = revision(connection)
            if at is None:
                check_empty(self.database, connection)
                raise BackendError(f"nothing has run here yet: the ledger {shown} is empty")
            if at != HEAD:
                check_not_newer(self.database, connection, at)
                raise BackendError(
                    f"the ledger {shown} was written by an older Penstock (schema {int(at)}, this"
                    f" one reads {int(HEAD)}): start its scheduler once (penstock up)"
                )
            check_noted(self.database, connection, noted)
            return connection.execute(query).all()

    def whole(self, table: Table, query: Select[Any]) -> Sequence[Row[Any]]:
        """The rows of ``query``, whole rows of ``table`` alone, each checked."""
        rows = self.rows(query, table)
        if found := fault(table, rows):
            raise self.database.damaged(found)
        return rows
