"""Shows users' commands for single trials in stories, in the status, in reports and on pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...app.common.text import duration, in_shell
from ...scheduler.model.events import Event
from ...scheduler.model.study import number_of
from ...scheduler.model.trial import FINAL
from .events import Steered

if TYPE_CHECKING:
    from ...app.ledger.reader import Reader
    from ...app.ledger.rows import StudyRow, TrialRow
    from ...app.show.drawings.charts import Section
    from ...scheduler.model.study import StudySpec

_DONE = {
    "stop": "stopped it",
    "pause": "paused it at the end of its epoch",
    "resume": "resumed it",
    "retry": "retried it from its newest state",
}


def steered(event: Steered) -> str:
    """Return a sentence on a user's command for a trial, with the user's reason if there is one."""
    to = f"epoch {event.to}" if event.to else "its next rung"
    did = _DONE.get(event.verb, f"promoted it to {to}, before other trials")
    return f"{event.who or 'a user'} {did}{f': {event.why}' if event.why else ''}"


def status_lines(reader: Reader, study: StudyRow) -> str:
    """Return a line for the study's status that names the trials which users have paused.

    The result is empty if no trial is paused or if the study is over.
    """
    if study.finished_at is not None:
        return ""
    newest = {event.trial: event for _, event in reader.of_trials(study.id, Steered)}
    paused = {name: event for name, event in newest.items() if event.verb == "pause"}
    trials = reader.trials(study.id) if paused else []
    typed = in_shell(study.name, study.id)
    return "; ".join(
        f"trial {trial.number}: {steered(paused[trial.id])}"
        f" (penstock trial resume {typed}/{trial.number})"
        for trial in trials
        if trial.id in paused and trial.state not in FINAL
    )


def report_section(reader: Reader, spec: StudySpec, trials: Sequence[TrialRow]) -> Section:
    """Return the report's section with a table of the commands that users gave for single trials.

    The section is empty if there are none.
    """
    from markupsafe import Markup

    from ...app.show.drawings.charts import Section
    from ...app.show.drawings.columns import Column
    from ...app.show.drawings.page import filled

    decisions = [event for _, event in reader.of_trials(spec.id, Steered)]
    if not decisions:
        return Section(Markup())
    begun = min(trial.created_at for trial in trials)
    columns: list[Column[Steered]] = [
        Column("after", lambda each: duration(max(0.0, each.at - begun)), "n"),
        Column("trial", lambda each: number_of(each.trial), "n"),
        Column("decision", lambda each: each.verb + (f" to {each.to}" if each.to else "")),
        Column("by", lambda each: each.who or None),
        Column("reason", lambda each: each.why or None),
    ]
    return Section(filled("steering/decisions.html", columns=columns, decisions=decisions))


SENTENCES: Mapping[type[Event], Callable[[Any], str]] = {Steered: steered}
OCCASIONS: Mapping[type[Event], str] = {Steered: "a user decided about a trial"}
