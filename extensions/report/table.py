"""The table of trials in reports and pages. Text is escaped here."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from ...app.common.text import count, duration, number
from ...app.drawings.charts import colours
from ...app.ledger.summary import front_of, ranked
from ...app.views.progress import told, violated
from ...app.views.spending import joules_of
from ...scheduler.model.trial import TOLD, TrialState

if TYPE_CHECKING:
    from ...app.ledger.rows import EpochRow, StudyRow, TrialRow
    from ...scheduler.model.study import Objective, Scalar

NOTHING = '<span class="stopped">—</span>'


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table: its head, the sort key of a trial (None: last), and the cell's HTML.

    ``first`` is the direction of the first click. ``kind`` is the CSS class, ``n`` for numbers.
    """

    title: str
    key: Callable[[TrialRow], object]
    show: Callable[[TrialRow], str]
    kind: str = ""
    first: str = "ascending"

    def head(self, *, chosen: bool) -> str:
        sort = f' aria-sort="{self.first}"' if chosen else ""
        return (
            f'<th tabindex="0" class="{self.kind}" data-first="{self.first}"{sort}>'
            f"{escape(self.title)}</th>"
        )

    def cell(self, trial: TrialRow) -> str:
        key = self.key(trial)
        absent = key is None or (isinstance(key, float) and not math.isfinite(key))
        sortable = "" if absent else escape(str(key))
        return f'<td class="{self.kind}" data-key="{sortable}">{self.show(trial)}</td>'


def table(study: StudyRow, trials: Sequence[TrialRow], epochs: Sequence[EpochRow]) -> str:
    """All trials, best first and those without a result last, with controls to filter and sort."""
    if not trials:
        return '<p class="none">No trial was proposed yet.</p>'
    order = ranked(study, trials)
    listed = {trial.id for trial in order}
    columns = trial_columns(study, trials, epochs)
    heads = "".join(
        column.head(chosen=bool(listed) and index == 2) for index, column in enumerate(columns)
    )
    best = front_of(study, trials)
    rows = [table_row(trial, columns, best=trial in best) for trial in order]
    rows += [table_row(trial, columns) for trial in trials if trial.id not in listed]
    states = [state for state in TrialState if any(trial.state == state for trial in trials)]
    chips = "".join(
        f'<button data-state="{state}" aria-pressed="false">{state}</button>'
        for state in (states if len(states) > 1 else ())
    )
    return (
        '<div class="tools"><input type="search" aria-label="filter trials"'
        ' placeholder="Filter by any text in a row">'
        '<span class="choice" role="group" aria-label="state">'
        f'<button data-state="" aria-pressed="true">all</button>{chips}</span>'
        f'<span class="count">{count(len(trials), "trial")}</span></div>'
        f'<div class="scroll"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def table_row(trial: TrialRow, columns: Sequence[Column], *, best: bool = False) -> str:
    """The trial as a row of the table; ``best`` ones stand out."""
    top = ' class="top"' if best else ""
    cells = "".join(column.cell(trial) for column in columns)
    return f'<tr{top} data-of="{trial.state}">{cells}</tr>'


def trial_columns(
    study: StudyRow,
    trials: Sequence[TrialRow],
    epochs: Sequence[EpochRow],
    name: Callable[[TrialRow], str] = lambda trial: str(trial.number),
) -> list[Column]:
    """The columns of the table of ``trials``; ``name`` is the HTML that names one."""
    seconds: defaultdict[str, float] = defaultdict(float)
    of_trial: defaultdict[str, list[EpochRow]] = defaultdict(list)
    for row in epochs:
        seconds[row.trial] += row.seconds
        of_trial[row.trial].append(row)
    joules = {of: joules_of(rows) for of, rows in of_trial.items()}
    colour = colours(study, trials)

    def named(trial: TrialRow) -> str:
        return f'<i class="swatch" style="background:{colour[trial.id]}"></i>{name(trial)}'

    def trained(trial: TrialRow) -> str:
        return duration(seconds[trial.id]) if trial.id in seconds else NOTHING

    columns = [
        Column("Trial", lambda t: t.number, named, "n"),
        Column("State", lambda t: t.state, lambda t: f'<i class="{t.state}">{t.state}</i>'),
        *(_objective(index, each) for index, each in enumerate(study.objectives)),
        Column("Epochs", lambda t: t.epoch, lambda t: str(t.epoch), "n", "descending"),
    ]
    for param in dict.fromkeys(each for trial in trials for each in trial.params):
        numeric = all(_numeric(trial.params.get(param)) for trial in trials)
        columns.append(_parameter(param, "n" if numeric else ""))
    columns += [
        Column("Training", lambda t: seconds.get(t.id), trained, "n", "descending"),
        Column("Device", lambda t: t.device or None, lambda t: escape(t.device) or NOTHING),
    ]
    if any(each is not None for each in joules.values()):
        columns.append(
            Column("J", lambda t: joules.get(t.id), lambda t: _value(joules.get(t.id)), "n")
        )
    if any(trial.constraints for trial in trials):
        columns.append(Column("Violates", lambda t: violated(t) or None, _violated))
    if any(trial.failure_kind for trial in trials):
        columns.append(Column("Failure", lambda t: t.failure_kind, _failure, "why"))
    return columns


def _objective(index: int, objective: Objective) -> Column:
    def value(trial: TrialRow) -> float | None:
        return trial.values[index] if trial.values else None

    better = "descending" if objective.direction == "maximize" else "ascending"
    return Column(objective.metric, value, lambda t: _value(value(t)), "n", better)


def _violated(trial: TrialRow) -> str:
    return escape(violated(trial)) or NOTHING


def _parameter(name: str, kind: str) -> Column:
    return Column(name, lambda t: t.params.get(name), lambda t: _value(t.params.get(name)), kind)


def _value(value: Scalar) -> str:
    return NOTHING if value is None else escape(number(value))


def _failure(trial: TrialRow) -> str:
    if not trial.failure_kind:
        return ""
    message = told(trial) if trial.failure_kind == TOLD else trial.failure_message or ""
    text = f"<b>{escape(trial.failure_kind)}</b> {escape(message)}"
    if not trial.failure_traceback:
        return text
    trace = f"<pre>{escape(trial.failure_traceback)}</pre>"
    return f"<details><summary>{text}</summary>{trace}</details>"


def _numeric(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
