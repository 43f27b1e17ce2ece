"""Shows in a study's status which tasks were sent for the study, and which could not be sent."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...app.common.text import count
from .events import Called

if TYPE_CHECKING:
    from ...app.ledger.reader import Reader
    from ...app.ledger.rows import StudyRow


def called(event: Called) -> str:
    """Return a sentence that says which task of which app was sent, or why it was not sent."""
    name = f"{event.occasion} ({event.task} of {event.app})"
    if not event.why:
        return f"{name} was sent as task {event.task_id}"
    tries = count(event.tries, "try") if event.tries == 1 else f"{event.tries} tries"
    return f"{name} could not be sent in {tries}: {event.why}"


def status_lines(reader: Reader, study: StudyRow) -> str:
    """Return the line in a study's status on its tasks; empty if no task was to be sent."""
    events = [event for _, event in reader.of_study(study.id, Called)]
    sentences = [*map(called, events), waiting(study, events)]
    return "; ".join(sentence for sentence in sentences if sentence)


def waiting(study: StudyRow, events: Sequence[Called]) -> str:
    """Return a sentence on the task of a finished study that is not sent yet.

    The result is empty if there is no such task. ``events`` has the outcomes of earlier calls.
    """
    if study.finished_at is None or any(event.at >= study.finished_at for event in events):
        return ""
    occasion = "on_error" if study.status == "failed" else "on_end"
    call = json.loads(study.spec_json).get(occasion)
    if not call:
        return ""
    target = json.loads(call)
    name = f"{occasion} ({target['signature']['task']} of {target['app']})"
    return f"{name} is not sent yet; the scheduler tries again, and its log says why"
