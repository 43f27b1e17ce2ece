"""Writes the report of a study when a run ends."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...app.ledger.reader import Reader


def write_report(reader: Reader, study_id: str, path: Path) -> Path:
    """Write the report of the study with this id to ``path``, and return ``path``."""
    from . import report  # it imports NumPy

    return report.write_report(reader, study_id, path)
