"""Shows in a study's status which notices were sent and which of them failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...app.common.text import count
from .events import Told
from .letters import HAPPENED

if TYPE_CHECKING:
    from ...app.ledger.reader import Reader
    from ...app.ledger.rows import StudyRow


def told(event: Told) -> str:
    """Return a sentence on a notice: its address, its occasion, and the reason if it failed."""
    if not event.why:
        return f"{event.to} was told that it {HAPPENED[event.kind]}"
    tries = count(event.tries, "try") if event.tries == 1 else f"{event.tries} tries"
    return f"{event.to} could not be told that it {HAPPENED[event.kind]}, in {tries}: {event.why}"


def status_lines(reader: Reader, study: StudyRow) -> str:
    """Return the line in a study's status on its notices; empty if there were no notices."""
    return "; ".join(told(event) for _, event in reader.of_study(study.id, Told))
