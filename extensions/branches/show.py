"""Shows branches in stories and in reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...app.common.text import count, number
from ...app.show.views.progress import changes
from ...scheduler.model.events import Event
from ...scheduler.model.study import number_of
from .events import Branched

if TYPE_CHECKING:
    from ...app.ledger.reader import Reader
    from ...app.ledger.rows import TrialRow
    from ...app.show.drawings.charts import Section
    from ...scheduler.model.study import StudySpec

#: The indent of a branch of a branch, once for each level.
_INDENT = "\u2003"


def branched(event: Branched) -> str:
    """Return a sentence about a branching: the user, the branches, and the reason."""
    values = ", ".join(f"{name} {number(value)}" for name, value in event.changed)
    under = f" with {values}" if values else ""
    beyond = f" ({', '.join(event.outside)} outside of the space)" if event.outside else ""
    branches = "a branch" if event.copies == 1 else count(event.copies, "branch") + "es"
    why = f": {event.why}" if event.why else ""
    user = event.who or "a user"
    return f"{user} made {branches} of it after epoch {event.epoch}{under}{beyond}{why}"


class _Branch(NamedTuple):
    """A branch in the report's table."""

    level: int
    trial: TrialRow
    values: str
    event: Branched | None


def report_section(reader: Reader, spec: StudySpec, trials: Sequence[TrialRow]) -> Section:
    """Return the report's section with the tree of branches; empty if there are none."""
    from markupsafe import Markup

    from ...app.show.drawings.charts import Section
    from ...app.show.drawings.columns import Column
    from ...app.show.drawings.page import filled

    if not any(trial.replaces == "" for trial in trials):
        return Section(Markup())
    events = [event for _, event in reader.of_trials(spec.id, Branched)]
    branches = [
        each
        for trial in trials
        if trial.replaces != ""
        for each in _tree(trial, trials, events, level=0)
    ]
    columns: list[Column[_Branch]] = [
        Column("branch", lambda each: f"{_INDENT * each.level}trial {each.trial.number}"),
        Column("of trial", lambda each: number_of(each.trial.origin_trial or ""), "n"),
        Column("after epoch", lambda each: each.trial.origin_epoch, "n"),
        Column("values", lambda each: each.values or "as before"),
        Column(spec.metric, lambda each: each.trial.value, "n"),
        Column("by", lambda each: (each.event and each.event.who) or None),
        Column("reason", lambda each: (each.event and each.event.why) or None),
    ]
    return Section(filled("branches/branches.html", columns=columns, branches=branches))


def _tree(
    parent: TrialRow, trials: Sequence[TrialRow], events: Sequence[Branched], level: int
) -> Iterator[_Branch]:
    """Yield the branches of ``parent``, each followed by its own branches."""
    for trial in trials:
        if trial.origin_trial == parent.id and trial.replaces == "":
            branchings = (
                e for e in events if e.trial == parent.id and e.epoch == trial.origin_epoch
            )
            event = next((e for e in branchings if dict(e.params) == dict(trial.params)), None)
            differ = changes(trial, trials)
            values = ", ".join(f"{name} {old} → {new}" for name, old, new in differ)
            yield _Branch(level, trial, values, event)
            yield from _tree(trial, trials, events, level + 1)


SENTENCES: Mapping[type[Event], Callable[[Any], str]] = {Branched: branched}
OCCASIONS: Mapping[type[Event], str] = {Branched: "a user branched a trial"}
