"""Compares several studies on one HTML page: best values over time, settings, and best trials.

The page has the style, the charts and the footer of a report. Only studies with the same metric and
direction can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from ...app.common.atomic_file import write_atomic
from ...app.common.text import duration, number
from ...app.ledger.codec import spec_from_json
from ...app.show.drawings.charts import STUDIES
from ...app.show.drawings.columns import Column
from ...app.show.drawings.page import moment, page
from ...app.show.views.progress import (
    StudyProgress,
    final_metrics,
    numbers_of,
    reached,
    study_progress,
)
from ...app.spec.space import parameter
from ...base.errors import UsageError
from ...scheduler.model.study import StudySpec
from ...scheduler.model.trial import TrialState
from . import figures
from .report import code_name, sampler_words, strategy_words

if TYPE_CHECKING:
    from ...app.ledger.reader import Reader
    from ...app.ledger.rows import EpochRow, StudyRow, TrialRow

#: Fields of ``StudySpec`` that the table of settings leaves out or shows in another form.
_NOT_SETTINGS = {"id", "name", "code", "space", "strategy", "sampler"}


@dataclass(frozen=True, slots=True)
class Compared:
    """A study in the comparison, with all its data from the ledger."""

    study: StudyRow
    spec: StudySpec
    #: All trials of the study, by number.
    trials: Sequence[TrialRow]
    #: All accepted epochs of the study, in order.
    epochs: Sequence[EpochRow]
    progress: StudyProgress
    #: The study's colour in the charts.
    colour: str


def write_comparison(reader: Reader, study_ids: Sequence[str], path: Path) -> Path:
    """Write the comparison of several studies to ``path``, and return ``path``.

    The folder of ``path`` is created if it is missing. Raises UsageError if a study is unknown, if
    the studies cannot be compared, or if the file cannot be written.
    """
    rows = [reader.study(each) for each in study_ids]
    check_comparable(rows)
    studies = []
    for index, row in enumerate(rows):
        trials, epochs = reader.trials(row.id), reader.epochs(row.id)
        spec = spec_from_json(row.spec_json)
        progress = study_progress(row, trials, epochs)
        colour = STUDIES[index % len(STUDIES)]
        studies.append(Compared(row, spec, trials, epochs, progress, colour))
    write_atomic(path, render(studies, datetime.now(UTC)), "report")
    return path


def check_comparable(rows: Sequence[StudyRow]) -> None:
    """Raise UsageError if the studies cannot be compared.

    Studies can be compared if each is given once and all have the same single objective.
    """
    ids = [row.id for row in rows]
    if len(set(ids)) < len(ids):
        raise UsageError.refuse("STUDY", ", ".join(ids), "each study once")
    several = [row.name for row in rows if row.further]
    if several:
        raise UsageError(f"studies of several objectives cannot be compared: {', '.join(several)}")
    if len({(row.metric, row.direction) for row in rows}) > 1:
        after = ", ".join(f"{row.name} to {row.direction} {row.metric}" for row in rows)
        raise UsageError(f"studies of different metrics or directions cannot be compared: {after}")


def render(studies: Sequence[Compared], now: datetime) -> str:
    """Return the page as HTML. ``now`` is the time of its creation, which the footer shows."""
    curves = [(s.study, s.colour, _progress(s)) for s in studies]
    charts = {
        "epochs": figures.best_so_far(curves, by="epochs"),
        "time": figures.best_so_far(curves, by="time"),
    }
    tables = (
        ("results", "Results", *_table(studies, [_results(each) for each in studies])),
        ("settings", "Settings that differ", *_table(studies, _differing(studies))),
        ("best", "Best trials", *_table(studies, [_best(each) for each in studies])),
    )
    names = ", ".join(each.study.name for each in studies)
    return page("report/compare.html", charts, now, studies=studies, names=names, tables=tables)


def _progress(of: Compared) -> list[tuple[int, float, float]]:
    """Return the points of a study's curve: (epochs so far, seconds since submission, value).

    Trials that failed or violate a constraint are left out, because they are never the best. If the
    objective reports no epochs, there is a point for each trial that is over.
    """
    out = {t.id for t in of.trials if t.state == TrialState.FAILED or not t.feasible}
    if of.epochs:
        points = [
            (index, row.at, row.value)
            for index, row in enumerate(sorted(of.epochs, key=lambda row: row.rowid), start=1)
            if row.trial not in out
        ]
    else:
        over = [t for t in of.trials if t.finished_at is not None and t.id not in out]
        points = [
            (0, t.finished_at or 0.0, math.nan if t.value is None else t.value)
            for t in sorted(over, key=lambda t: t.finished_at or 0.0)
        ]
    return [(n, at - of.study.created_at, value) for n, at, value in points if math.isfinite(value)]


def _results(of: Compared) -> dict[str, str]:
    study, progress = of.study, of.progress
    end = study.finished_at
    states = ", ".join(
        f"{progress.counts[state]} {state}" for state in TrialState if progress.counts[state]
    )
    return {
        "Status": study.status,
        "Trials": states,
        "Epochs": str(progress.epochs),
        "Training": duration(progress.busy),
        "Time, pauses included": "not over" if end is None else duration(end - study.created_at),
        "Submitted": moment(study.created_at),
    }


def _differing(studies: Sequence[Compared]) -> list[dict[str, str]]:
    settings = [_settings(each.spec) for each in studies]
    names = dict.fromkeys(name for each in settings for name in each)
    differ = [name for name in names if len({each.get(name) for each in settings}) > 1]
    return [{name: each[name] for name in differ if name in each} for each in settings]


def _settings(spec: StudySpec) -> dict[str, str]:
    """Return the study's settings, by the names that the table shows."""
    code = Markup("<code>{}</code> {}")
    settings = {
        "strategy": strategy_words(spec),
        "sampler": sampler_words(spec),
        "code": code.format(code_name(spec.code.target), spec.code.digest[:8]),
    }
    for field in fields(StudySpec):
        if field.name not in _NOT_SETTINGS:
            settings[field.name] = str(getattr(spec, field.name))
    for name, text in spec.space or ():
        settings[f"space: {name}"] = str(parameter(text))
    return settings


def _best(of: Compared) -> dict[str, str]:
    best = of.progress.best
    if best is None:
        return {}
    metrics = final_metrics(best, of.epochs)
    return {
        of.study.metric: Markup("<b>{}</b>").format(number(of.progress.best_mean, 5)),
        "trial": f"{numbers_of(of.progress.front)}, {reached(best)}",
        **{name: number(value) for name, value in best.params.items()},
        **{name: number(value) for name, value in metrics.items() if name != of.study.metric},
    }


def _table(
    studies: Sequence[Compared], cells: Sequence[Mapping[str, str]]
) -> tuple[list[Column[str]], list[str]]:
    """Return the columns and the row names of a table that compares the studies.

    The first column has the names of the rows, and each study has a further column.
    """
    title = Markup('<b class="swatch" style="background:{}"></b>{}')
    columns: list[Column[str]] = [Column("", str)]
    columns += [
        Column(title.format(each.colour, each.study.name), of.get)
        for each, of in zip(studies, cells, strict=True)
    ]
    return columns, list(dict.fromkeys(name for each in cells for name in each))
