"""Charts of results. Each function turns rows of the ledger into a Plotly figure of JSON values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup

from ...app.ledger.summary import front_of, ranked, sign
from ...app.show.drawings.charts import Figure, axis, colours, is_log, summary, unit_of
from ...app.show.views.progress import best_of, scores

if TYPE_CHECKING:
    from ...app.ledger.rows import EpochRow, StudyRow, TrialRow

#: The most trials of a Pareto front that have a label in the chart.
NAMED = 40
#: The most learning curves that are drawn with a dot at each epoch. With more curves the dots show
#: nothing, and drawing the dots costs a browser as much as the lines.
DOTTED = 20


def history(
    study: StudyRow, trials: Sequence[TrialRow], epochs: Sequence[EpochRow], *, by: str
) -> Figure | None:
    """Return a chart of each trial's value and of the best value so far.

    The x axis is the time of a trial's last epoch if ``by`` is "time", or the trial's number if
    ``by`` is "trial". Return None if no trial has a value.
    """
    last_at = {row.trial: row.at for row in epochs}
    scale, unit = unit_of(max((at - study.created_at for at in last_at.values()), default=0.0))
    points = [
        (
            (last_at.get(t.id, t.created_at) - study.created_at) / scale
            if by == "time"
            else t.number,
            t,
        )
        for t in ranked(study, trials)
    ]
    if not points:
        return None
    points.sort(key=lambda point: (point[0], point[1].number))
    values = [float(trial.value or 0.0) for _, trial in points]
    best = _running_best(study, [t.value if t.feasible else None for _, t in points])
    colour = colours(study, trials)
    xs = [x for x, _ in points]
    dots = {
        "type": "scatter",
        "mode": "markers",
        "name": "trial",
        "x": xs,
        "y": values,
        "text": [summary(trial) for _, trial in points],
        "hovertemplate": Markup("%{{text}}<br>{} = %{{y:.5g}}<extra></extra>").format(
            study.shown_metric
        ),
        "marker": {"color": [colour[t.id] for _, t in points], "size": 10},
    }
    line = {
        "type": "scatter",
        "mode": "lines",
        "name": "best so far",
        "x": xs,
        "y": best,
        "line": {"shape": "hv", "width": 2, "color": "ink"},
        "hovertemplate": Markup("best so far %{y:.5g}<extra></extra>"),
    }
    x_axis = axis(f"time since submission ({unit})") if by == "time" else axis("trial")
    y_axis = axis(study.shown_metric, type="log" if is_log(values) else "linear")
    return {"data": [line, dots], "layout": {"xaxis": x_axis, "yaxis": y_axis, "height": 380}}


def pareto(study: StudyRow, trials: Sequence[TrialRow]) -> Figure | None:
    """Return a chart of the trials by their first two objectives.

    A line follows the Pareto front, but only if there are no further objectives. Markers of
    infeasible trials are hollow. Further objectives are shown only in the hover text, so a trial of
    the front may look dominated. Return None if there is only one objective or if no trial has
    values.
    """
    order = ranked(study, trials)
    if not study.further or not order:
        return None
    first, second = study.objectives[:2]
    colour, ahead = colours(study, trials), front_of(study, trials)
    coordinates = [[trial.values[axis] for trial in order] for axis in (0, 1)]
    dots = {
        "type": "scatter",
        "mode": "markers",
        "name": "trial",
        "x": coordinates[0],
        "y": coordinates[1],
        "text": [
            Markup("{}<br>{}").format(summary(trial), scores(study, trial)) for trial in order
        ],
        "hovertemplate": Markup("%{text}<extra></extra>"),
        "marker": {
            "color": [colour[trial.id] for trial in order],
            "size": [13 if trial in ahead else 8 for trial in order],
            "symbol": ["circle" if trial.feasible else "circle-open" for trial in order],
        },
    }
    line = {
        "type": "scatter",
        "mode": "lines",
        "name": "Pareto front",
        "x": [trial.values[0] for trial in ahead],
        "y": [trial.values[1] for trial in ahead],
        "line": {"shape": "hv", "width": 2, "color": "ink"},
        "hoverinfo": "skip",
    }
    names = {
        "type": "scatter",
        "mode": "text",
        "name": "trials of the front",
        "x": [trial.values[0] for trial in ahead[:NAMED]],
        "y": [trial.values[1] for trial in ahead[:NAMED]],
        "text": [f" trial {trial.number}" for trial in ahead[:NAMED]],
        "textposition": "bottom right",
        "hoverinfo": "skip",
    }
    axes = []
    for objective, values in zip((first, second), coordinates, strict=True):
        title = f"{objective.metric} ({objective.direction})"
        axes.append(axis(title, type="log" if is_log(values) else "linear"))
    lines = [line] if len(study.objectives) == 2 else []
    layout = {"xaxis": axes[0], "yaxis": axes[1], "height": 420, "hovermode": "closest"}
    return {"data": [*lines, dots, names], "layout": layout}


def best_so_far(
    curves: Sequence[tuple[StudyRow, str, Sequence[tuple[int, float, float]]]], *, by: str
) -> Figure | None:
    """Return a chart with one line for each study: its best value so far.

    The x axis is the epochs of training if ``by`` is "epochs", otherwise the time. ``curves`` has
    each study, its colour and its points (epochs so far, seconds, value) in order. Return None if
    no line can be drawn.
    """
    if by == "epochs":
        scale, title = 1.0, "epochs of training"
    else:
        scale, unit = unit_of(max((p[1] for _, _, points in curves for p in points), default=0.0))
        title = f"time since submission ({unit})"
    traces, plotted = [], []
    for study, colour, points in curves:
        visible = [point for point in points if by != "epochs" or point[0]]
        best = _running_best(study, [value for _, _, value in visible])
        if best:
            plotted += [value for value in best if value is not None]
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "name": study.name,
                    "x": [n if by == "epochs" else at / scale for n, at, _ in visible],
                    "y": best,
                    "line": {"shape": "hv", "width": 2.5, "color": colour},
                    "hovertemplate": Markup("{}: %{{y:.5g}}<extra></extra>").format(study.name),
                }
            )
    if not traces:
        return None
    y_axis = axis(curves[0][0].metric, type="log" if is_log(plotted) else "linear")
    return {"data": traces, "layout": {"xaxis": axis(title), "yaxis": y_axis, "height": 380}}


def _running_best(study: StudyRow, values: Iterable[float | None]) -> list[float | None]:
    """Return a list that has, for each index, the best of ``values`` up to that index.

    None is never the best.
    """
    best: float | None = None
    best_values = []
    for value in values:
        if value is not None and (best is None or sign(study) * value > sign(study) * best):
            best = value
        best_values.append(best)
    return best_values


def learning_curves(
    study: StudyRow, trials: Sequence[TrialRow], epochs: Sequence[EpochRow]
) -> Figure | None:
    """Return a chart of the metric over epochs, with one line for each trial.

    The line of the best trial is thickest and is drawn last. If the chart has up to ``DOTTED``
    lines, each line has a dot at each epoch. Return None if no epoch has a finite value.
    """
    curves: dict[str, list[EpochRow]] = {}
    for row in sorted(epochs, key=lambda row: row.epoch):
        if math.isfinite(row.value):
            curves.setdefault(row.trial, []).append(row)
    if not curves:
        return None
    colour = colours(study, trials)
    rank = {trial.id: position for position, trial in enumerate(ranked(study, trials))}
    winner = best_of(study, trials)
    top = winner.id if winner else ""
    worst_first = sorted(
        (trial for trial in trials if trial.id in curves),
        key=lambda trial: (trial.id == top, -rank.get(trial.id, len(trials))),
    )
    traces, dotted = [], len(worst_first) <= DOTTED
    hover = Markup("%{{text}}<br>epoch %{{x}}: {} = %{{y:.5g}}<extra></extra>")
    hover = hover.format(study.shown_metric)
    for trial in worst_first:
        rows, best = curves[trial.id], trial.id == top
        traces.append(
            {
                "type": "scatter",
                # A curve of one point has no line.
                "mode": "lines+markers" if dotted or best or len(rows) == 1 else "lines",
                "name": f"trial {trial.number}",
                "x": [row.epoch for row in rows],
                "y": [row.value for row in rows],
                "text": summary(trial),
                "hovertemplate": hover,
                "line": {"color": colour[trial.id], "width": 3.5 if best else 1.4},
                "marker": {"size": 8 if best else 5},
                "opacity": 1.0 if best else 0.75,
            }
        )
    everything = [row.value for rows in curves.values() for row in rows]
    longest = max(rows[-1].epoch for rows in curves.values())
    x_axis = axis("epoch", **({"dtick": 1} if longest <= 12 else {}))
    y_axis = axis(study.shown_metric, type="log" if is_log(everything) else "linear")
    layout = {"xaxis": x_axis, "yaxis": y_axis, "height": 420, "hovermode": "closest"}
    return {"data": traces, "layout": layout}
