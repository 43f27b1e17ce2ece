"""Shows users' edits of a study in the study's status, on its page and in its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...app.common.text import count, duration
from ...scheduler.model.events import Event
from .events import Change, Edited

if TYPE_CHECKING:
    from ...app.ledger.reader import Reader
    from ...app.ledger.rows import StudyRow, TrialRow
    from ...app.show.drawings.charts import Section
    from ...scheduler.model.study import StudySpec

#: The text that a stored specification contains if the study was edited.
_EDITED = '"edits":{'


class _Edit(NamedTuple):
    """A row in the report's table of edits: one change."""

    change: Change
    #: The number of trials that had begun before the edit.
    begun: int
    event: Edited


def status_lines(reader: Reader, study: StudyRow) -> str:
    """Return the line in a study's status on its newest edit; empty if there was no edit."""
    if _EDITED not in study.spec_json:
        return ""
    edits = [event for _, event in reader.of_study(study.id, Edited)]
    if not edits:  # it was imported
        return ""
    newest = edits[-1]
    words = "; ".join(f"{each.name} {each.before} → {each.after}" for each in newest.changes)
    why = f": {newest.why}" if newest.why else ""
    before = f" ({count(len(edits) - 1, 'edit')} before)" if len(edits) > 1 else ""
    return f"{newest.who or 'a user'} edited it{why}: {words}{before}"


def report_section(reader: Reader, spec: StudySpec, trials: Sequence[TrialRow]) -> Section:
    """Return the report's section with a table of all edits.

    The section is empty if there are none.
    """
    from markupsafe import Markup

    from ...app.show.drawings.charts import Section
    from ...app.show.drawings.columns import Column
    from ...app.show.drawings.page import filled

    edits = [] if spec.edits is None else [e for _, e in reader.of_study(spec.id, Edited)]
    if not edits:
        return Section(Markup())
    first = min((trial.created_at for trial in trials), default=edits[0].at)
    began = dict[str, float]()
    for epoch in reader.epochs(spec.id):
        began.setdefault(epoch.trial, epoch.at - epoch.seconds)
    rows = [
        _Edit(change, sum(at < event.at for at in began.values()), event)
        for event in edits
        for change in event.changes
    ]
    columns: list[Column[_Edit]] = [
        Column("after", lambda each: duration(max(0.0, each.event.at - first)), "n"),
        Column("trials begun", lambda each: each.begun, "n"),
        Column("changed", lambda each: each.change.name),
        Column("from", lambda each: each.change.before),
        Column("to", lambda each: each.change.after),
        Column("by", lambda each: each.event.who or None),
        Column("reason", lambda each: each.event.why or None),
    ]
    return Section(filled("editing/edits.html", columns=columns, edits=rows))


OCCASIONS: Mapping[type[Event], str] = {Edited: "its study was edited"}
