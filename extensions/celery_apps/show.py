"""Shows in a study's status which tasks were sent for it, and which could not be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...app.common.text import count
from .events import Called

if TYPE_CHECKING:
    from ...app.ledger.reader import Reader
    from ...app.ledger.rows import StudyRow


def called(event: Called) -> str:
    """Return a sentence: which task was sent to which app, or why it was not."""
    name = f"{event.occasion} ({event.task} of {event.app})"
    if not event.why:
        return f"{name} was sent as task {event.task_id}"
    tries = count(event.tries, "try") if event.tries == 1 else f"{event.tries} tries"
    return f"{name} was not sent, in {tries}: {event.why}"


def status_lines(reader: Reader, study: StudyRow) -> str:
    """Return the line of a study's status on its tasks; empty where there was none."""
    return "; ".join(called(event) for _, event in reader.of_study(study.id, Called))
