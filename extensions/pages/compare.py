"""Draws the page that compares trials of a study: their curves, parameters, states and results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from ...app.common.text import duration, number
from ...app.show.drawings.charts import STUDIES, Figure
from ...app.show.drawings.columns import Column
from ...app.show.views.progress import failure_words, final_metrics, scores
from ...base.errors import UsageError
from ...scheduler.model.study import number_of
from ...scheduler.model.trial import FINAL
from ...scheduler.strategies.base import UNBOUNDED
from ..report import figures
from .follower import TIME, topic_of
from .frame import Content, Page
from .pieces import link, part
from .trials import numbers_in

if TYPE_CHECKING:
    from ...app.ledger.rows import EpochRow, StudyRow, TrialRow
    from .site import Site

#: Plotly's dash styles of the curves. All colours are used with the first style, then with the
#: second.
DASHES = ("solid", "dash")


def compare_page(site: Site, query: Mapping[str, str]) -> Page:
    """Return the page that compares some trials of a study.

    The query has the study's ``id``, and the trials' numbers in ``n`` (as ``3,7``). Raises
    UsageError if there is no such study.
    """
    study = site.reader.study(query.get("id", ""))
    head = Markup("<h1>Trials compared</h1><p>{}</p>").format(
        link("study", study.name, id=study.id)
    )
    draw = partial(_compared, site, study.id, numbers_in(query.get("n", "")))
    topics = (topic_of(study.id),) if study.finished_at else (topic_of(study.id), TIME)
    return Page(f"Trials of {study.name}", head, draw, topics, charts=True)


def _compared(site: Site, study_id: str, numbers: Sequence[int]) -> Content:
    view, epochs = site.look(study_id)
    by_number = {trial.number: trial for trial in view.trials}
    trials = [by_number[each] for each in numbers if each in by_number]
    if not trials:
        raise UsageError("no trial is chosen: tick some in the study's table, and press compare")
    trial_ids = {trial.id for trial in trials}
    rows = [row for row in epochs if row.trial in trial_ids]
    looks = _looks(trials)
    titles = [_title(view.study, trial, looks[trial.number]) for trial in trials]
    facts = [_facts(trial) for trial in trials]
    stands = [_standing(view.study, trial, rows) for trial in trials]
    main = part(
        "compare.html",
        differs=_table(titles, facts, only_differing=True),
        stands=_table(titles, stands, only_differing=False),
        again=link("study", "Choose others", id=study_id, chosen=",".join(map(str, numbers))),
    )
    return Content(main, {"curves": _curves(view.study, trials, rows, looks)})


def _looks(trials: Sequence[TrialRow]) -> dict[int, tuple[str, str]]:
    """Return the colour and the dash style of each trial's curve, by the trial's number.

    The colours can be told apart by readers with any colour vision.
    """
    return {
        trial.number: (STUDIES[k % len(STUDIES)], DASHES[k // len(STUDIES) % len(DASHES)])
        for k, trial in enumerate(trials)
    }


def _curves(
    study: StudyRow,
    trials: Sequence[TrialRow],
    epochs: Sequence[EpochRow],
    looks: Mapping[int, tuple[str, str]],
) -> Figure | None:
    """Return the learning curves of ``trials``, all equally thick.

    ``looks`` has the colour and the dash style of each trial.
    """
    figure = figures.learning_curves(study, trials, epochs)
    if figure is None:
        return None
    looks_by_name = {f"trial {n}": look for n, look in looks.items()}
    traces = []
    for trace in figure["data"]:
        colour, dash = looks_by_name[trace["name"]]
        line = {"color": colour, "dash": dash, "width": 2.2}
        traces.append({**trace, "line": line, "mode": "lines+markers", "opacity": 0.9})
    return {**figure, "data": traces}


def _title(study: StudyRow, trial: TrialRow, look: tuple[str, str]) -> Markup:
    kind = " dashed" if look[1] == DASHES[1] else ""
    swatch = Markup('<b class="swatch{}" style="background:{}"></b>{}')
    name = link("trial", f"trial {trial.number}", id=study.id, n=trial.number)
    return swatch.format(kind, look[0], name)


def _facts(trial: TrialRow) -> dict[str, str]:
    """Return the parameters, the origin and the system configuration of a trial, by label."""
    facts = {name: number(value, 12) for name, value in trial.params.items()}
    if trial.origin_trial is not None:
        of = number_of(trial.origin_trial)
        facts["goes on from"] = f"trial {of} after epoch {trial.origin_epoch}"
    return facts | {f"system: {name}": number(value) for name, value in trial.system}


def _standing(study: StudyRow, trial: TrialRow, epochs: Sequence[EpochRow]) -> dict[str, Any]:
    """Return the trial's state, progress and results, by label."""
    own = [row for row in epochs if row.trial == trial.id]
    ends = trial.state in FINAL or trial.target >= UNBOUNDED
    state = Markup('<i class="{0}">{0}</i>').format(trial.state)
    other_metrics = final_metrics(trial, own)
    return {
        "state": state,
        **({"why": failure_words(trial)} if trial.failure_kind else {}),
        "epoch": str(trial.epoch) if ends else f"{trial.epoch} of {trial.target}",
        "result": scores(study, trial) or None,
        **{name: number(value) for name, value in other_metrics.items() if name != study.metric},
        "training": duration(sum(row.seconds for row in own)),
        "device": trial.device or None,
    }


def _table(
    titles: Sequence[Markup], cells: Sequence[Mapping[str, Any]], *, only_differing: bool
) -> tuple[list[Column[Any]], list[list[Any]]]:
    """Return the columns and the rows of a table that has a row for each label in ``cells``.

    The first column has the labels, and each trial has a further column. With ``only_differing``,
    rows in which all trials agree are left out.
    """
    rows = []
    for name in dict.fromkeys(name for each in cells for name in each):
        values = [each.get(name) for each in cells]
        if not only_differing or len(set(values)) > 1:
            rows.append([name, *values])
    columns: list[Column[Any]] = [
        Column(title, itemgetter(k)) for k, title in enumerate(["", *titles])
    ]
    return columns, rows
