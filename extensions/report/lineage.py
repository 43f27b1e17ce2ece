"""Draws which trials continue other trials: forks of a population, and branches.

Each trial has a line along its own epochs. An arrow leads from the trial whose state was taken to
the trial that continues from that state, at the epoch of the state. At the arrow of a branch, the
changed hyperparameters are written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from ...app.show.drawings.charts import Figure, colours, lanes_height, summary
from ...app.show.views.progress import changes
from ...scheduler.model.study import number_of

if TYPE_CHECKING:
    from ...app.ledger.rows import StudyRow, TrialRow


def lineage(study: StudyRow, trials: Sequence[TrialRow]) -> Figure | None:
    """Return the chart of a study's trials and their origins, or None if no trial was forked."""
    forked = [trial for trial in trials if trial.origin_trial is not None]
    if not forked:
        return None
    colour = colours(study, trials)
    traces = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "x": [trial.origin_epoch or 0, trial.epoch],
            "y": [trial.number, trial.number],
            "text": summary(trial),
            "hovertemplate": Markup("%{text}<br>epoch %{x}<extra></extra>"),
            "line": {"color": colour[trial.id], "width": 4},
            "marker": {"size": 6},
        }
        for trial in trials
    ]
    arrows: list[dict[str, Any]] = [
        {
            "x": trial.origin_epoch,
            "y": trial.number,
            "ax": trial.origin_epoch,
            "ay": number_of(trial.origin_trial or ""),
            "xref": "x",
            "yref": "y",
            "axref": "x",
            "ayref": "y",
            "text": ", ".join(f"{name} {new}" for name, _, new in changes(trial, trials)),
            "showarrow": True,
            "arrowhead": 2,
            "arrowwidth": 1.3,
            "arrowcolor": colour[trial.id],
        }
        for trial in forked
    ]
    layout = {
        "xaxis": {"title": {"text": "epoch"}, "rangemode": "tozero"},
        "yaxis": {"title": {"text": "trial"}, "autorange": "reversed"},
        "height": lanes_height(len(trials)),
        "annotations": arrows,
        "hovermode": "closest",
    }
    return {"data": traces, "layout": layout}
