"""The table of trials that reports and pages show: its columns and the order of its rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup

from ...app.common.text import duration, number
from ...app.ledger.summary import ranked
from ...app.show.drawings.charts import colours
from ...app.show.drawings.columns import Column
from ...app.show.views.progress import told, violated
from ...app.show.views.spending import joules_of
from ...scheduler.model.trial import TOLD

if TYPE_CHECKING:
    from ...app.ledger.rows import EpochRow, StudyRow, TrialRow
    from ...scheduler.model.study import Objective, Scalar


def best_first(study: StudyRow, trials: Sequence[TrialRow]) -> list[TrialRow]:
    """Return all trials, with the best first and those without a result last."""
    first = ranked(study, trials)
    listed = {trial.id for trial in first}
    return first + [trial for trial in trials if trial.id not in listed]


def trial_columns(
    study: StudyRow,
    trials: Sequence[TrialRow],
    epochs: Sequence[EpochRow],
    name: Callable[[TrialRow], object] = lambda trial: trial.number,
) -> list[Column[TrialRow]]:
    """Return the columns of the table of ``trials``.

    ``epochs`` are the epochs of these trials. ``name`` returns the content of a trial's first cell.
    """
    seconds: defaultdict[str, float] = defaultdict(float)
    of_trial: defaultdict[str, list[EpochRow]] = defaultdict(list)
    for row in epochs:
        seconds[row.trial] += row.seconds
        of_trial[row.trial].append(row)
    joules = {of: joules_of(rows) for of, rows in of_trial.items()}
    colour = colours(study, trials)

    def named(trial: TrialRow) -> Markup:
        swatch = Markup('<i class="swatch" style="background:{}"></i>{}')
        return swatch.format(colour[trial.id], name(trial))

    def state(trial: TrialRow) -> Markup:
        return Markup('<i class="{0}">{0}</i>').format(trial.state)

    def trained(trial: TrialRow) -> str | None:
        return duration(seconds[trial.id]) if trial.id in seconds else None

    columns = [
        Column("Trial", named, "n", lambda t: t.number),
        Column("State", state, key=lambda t: t.state),
        *(_objective(index, each) for index, each in enumerate(study.objectives)),
        Column("Epochs", lambda t: t.epoch, "n", lambda t: t.epoch, "descending"),
    ]
    for param in dict.fromkeys(each for trial in trials for each in trial.params):
        numeric = all(_numeric(trial.params.get(param)) for trial in trials)
        columns.append(_parameter(param, "n" if numeric else ""))
    columns += [
        Column("Training", trained, "n", lambda t: seconds.get(t.id), "descending"),
        Column("Device", lambda t: t.device or None, key=lambda t: t.device or None),
    ]
    if any(each is not None for each in joules.values()):
        columns.append(
            Column("J", lambda t: _value(joules.get(t.id)), "n", lambda t: joules.get(t.id))
        )
    if any(trial.constraints for trial in trials):
        columns.append(Column("Violates", lambda t: violated(t) or None, key=violated))
    if any(trial.failure_kind for trial in trials):
        columns.append(Column("Failure", _failure, "why", lambda t: t.failure_kind))
    return columns


def _objective(index: int, objective: Objective) -> Column[TrialRow]:
    def value(trial: TrialRow) -> float | None:
        return trial.values[index] if trial.values else None

    better = "descending" if objective.direction == "maximize" else "ascending"
    return Column(objective.metric, lambda t: _value(value(t)), "n", value, better)


def _parameter(name: str, kind: str) -> Column[TrialRow]:
    return Column(name, lambda t: _value(t.params.get(name)), kind, lambda t: t.params.get(name))


def _value(value: Scalar) -> str | None:
    return None if value is None else number(value)


def _failure(trial: TrialRow) -> str:
    if not trial.failure_kind:
        return ""
    message = told(trial) if trial.failure_kind == TOLD else trial.failure_message or ""
    text = Markup("<b>{}</b> {}").format(trial.failure_kind, message)
    if not trial.failure_traceback:
        return text
    details = Markup("<details><summary>{}</summary><pre>{}</pre></details>")
    return details.format(text, trial.failure_traceback)


def _numeric(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
