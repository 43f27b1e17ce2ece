"""Charts of hyperparameters: the importance of each, and each trial's values with its result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from ...app.common.text import number
from ...app.ledger.summary import ranked
from ...app.show.drawings.charts import LANE, MARGIN, SCALE, Figure, axis, is_log, shade

if TYPE_CHECKING:
    from ...app.ledger.rows import StudyRow, TrialRow
    from ...app.server.optuna_bridge.importances import Importances

#: The most distinct numbers for which an axis spaces them evenly, as it does for choices.
MAX_EVEN_TICKS = 6


def importances(found: Importances) -> Figure:
    """Return a bar chart of the importances, with the most important hyperparameter on top."""
    names = list(reversed(found.shares))
    shares = list(reversed(found.shares.values()))
    trace = {
        "type": "bar",
        "orientation": "h",
        "x": shares,
        "y": names,
        "text": [f"{100 * share:.0f} %" for share in shares],
        "textposition": "auto",
        "hovertemplate": Markup("%{y}: %{x:.3f}<extra></extra>"),
        "marker": {"color": shade(1.0)},
    }
    layout = {
        "xaxis": axis("share", range=[0, 1], tickformat=".0%"),
        "yaxis": {"type": "category"},
        "height": MARGIN + len(names) * LANE,
        "bargap": 0.3,
    }
    return {"data": [trace], "layout": layout}


def parallel(study: StudyRow, trials: Sequence[TrialRow]) -> Figure | None:
    """Return a chart that draws the parameters and the result of each trial as a line across axes.

    Return None if fewer than two trials have a result.
    """
    order = ranked(study, trials)[::-1]
    if len(order) < 2:
        return None
    names = dict.fromkeys(name for trial in trials for name in trial.params)
    dimensions = [
        _dimension(name, [trial.params.get(name) for trial in order])
        # A parameter with the same value everywhere explains nothing.
        for name in names
        if len({repr(trial.params.get(name)) for trial in order}) > 1
    ]
    for index, objective in enumerate(study.objectives):
        dimensions.append(_dimension(objective.metric, [trial.values[index] for trial in order]))
    shares = [index / (len(order) - 1) for index in range(len(order))]
    stops = [[at, "rgb({},{},{})".format(*rgb)] for at, rgb in SCALE]
    trace = {
        "type": "parcoords",
        "dimensions": dimensions,
        "line": {"color": shares, "colorscale": stops, "cmin": 0, "cmax": 1},
    }
    return {"data": [trace], "layout": {"height": 430}}


def _dimension(name: str, values: Sequence[Any]) -> dict[str, Any]:
    """Return an axis of the chart as Plotly's ``parcoords`` takes it.

    Choices and a few distinct numbers are evenly spaced. A wide range of numbers is logarithmic.
    """
    numbers = [float(v) for v in values if _is_number(v)]
    if len(numbers) < len(values) or len(set(numbers)) <= MAX_EVEN_TICKS:
        texts = {number(v): v for v in values}
        order = sorted(
            texts, key=lambda text: (not _is_number(texts[text]), _sort_key(texts[text]))
        )
        ticks = {text: index for index, text in enumerate(order)}
        return {
            "label": name,
            "values": [ticks[number(v)] for v in values],
            "tickvals": list(ticks.values()),
            "ticktext": order,
            "range": [-0.15, len(order) - 0.85],
        }
    if is_log(numbers):
        low, high = math.log10(min(numbers)), math.log10(max(numbers))
        powers = range(math.ceil(low), math.floor(high) + 1)
        return {
            "label": name,
            "values": [math.log10(value) for value in numbers],
            "tickvals": list(powers),
            "ticktext": [f"{10.0**power:g}" for power in powers],
            "range": [low, high],
        }
    return {"label": name, "values": numbers}


def _sort_key(value: Any) -> tuple[float, str]:
    return (float(value), "") if _is_number(value) else (0.0, str(value))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
