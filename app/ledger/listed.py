"""Reads the list of studies: one row of one table for each, and of what is over nothing else.

It imports nothing that knows events or specifications. The list is asked for most often, and
importing those takes longer than reading a thousand studies.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from .databases.read_only import ReadOnly
from .databases.schema import STUDY_COLUMNS

#: The status of a study that was deleted. Its name is free, and nobody finds it.
DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class Listed:
    """A study in the list."""

    id: str
    status: str
    #: When it ended, in seconds of the scheduler's clock; None until then.
    finished_at: float | None
    _summary: str

    @property
    def facts(self) -> dict[str, Any] | None:
        """What the list shows of it (``summary.facts_of``); None where only its rows say that."""
        facts: dict[str, Any] | None = json.loads(self._summary or "null")
        return facts


def read_listed(ledger: ReadOnly) -> list[Listed]:
    """All studies but those that were deleted, oldest first."""
    rows = [dict(zip(STUDY_COLUMNS, row, strict=True)) for row in ledger.studies()]
    return [
        Listed(row["id"], row["status"], row["finished_at"], row["summary"])
        for row in rows
        if row["status"] != DELETED
    ]
