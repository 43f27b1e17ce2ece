"""The report's charts of system parameters: profiles, workloads, batch sizes and speed gained.

Three of them correspond to PipeTune's figures 2 (events over epochs), 8 (clusters) and 3 (a knob
against the batch size). They are drawn from one study in the ledger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log10
from statistics import geometric_mean
from typing import TYPE_CHECKING

from markupsafe import Markup

from ....app.common.text import count, number
from ....app.show.drawings.charts import (
    LANE,
    MARGIN,
    STUDIES,
    UNRANKED,
    Figure,
    axis,
    lanes_height,
    shade,
)
from ....profiling.knobs.knobs import SystemConfig, config_text
from ....scheduler.model.study import number_of

if TYPE_CHECKING:
    from ....profiling.similarity.service import Similarity
    from ..races.measured import Profiled
    from .tried import TriedConfiguration


def heat(profiles: Sequence[Profiled]) -> Figure | None:
    """Draw counters (rows) by profiled epoch as a heat map, relative to each row's maximum."""
    if not profiles:
        return None
    names = sorted({name for each in profiles for name, _ in each.values}, reverse=True)
    values = [[dict(each.values).get(name) for each in profiles] for name in names]
    most = [max((abs(v) for v in row if v is not None), default=0.0) or 1.0 for row in values]
    trace = {
        "type": "heatmap",
        "x": [
            Markup("trial {}<br>epoch {}").format(number_of(each.trial), each.epoch)
            for each in profiles
        ],
        "y": names,
        "z": [
            [None if v is None else v / top for v in row]
            for row, top in zip(values, most, strict=True)
        ],
        "zmin": 0,
        "zmax": 1,
        "text": [["" if v is None else number(v) for v in row] for row in values],
        "hovertemplate": Markup("%{x}<br>%{y} %{text}<extra></extra>"),
        "colorscale": [[0, shade(0.0)], [0.5, shade(0.5)], [1, shade(1.0)]],
        "xgap": 2,
        "ygap": 1,
        "showscale": False,
    }
    layout = {
        "xaxis": {"type": "category"},
        "yaxis": {"type": "category"},
        "height": lanes_height(len(names)),
    }
    return {"data": [trace], "layout": layout}


def clusters(service: Similarity, own: frozenset[str]) -> Figure | None:
    """Return a chart with a dot for each workload of the history, coloured by cluster."""
    points = service.plane()
    if len(points) < 2:
        return None
    of = [service.clusters.get(name) for name in points]
    trace = {
        "type": "scatter",
        "mode": "markers",
        "x": [x for x, _ in points.values()],
        "y": [y for _, y in points.values()],
        "text": [
            Markup("workload {}{}<br>{}").format(
                name[:12],
                " of this study" if name in own else "",
                "in no cluster" if label is None else f"cluster {label}",
            )
            for name, label in zip(points, of, strict=True)
        ],
        "hovertemplate": Markup("%{text}<extra></extra>"),
        "marker": {
            "size": 12,
            "symbol": ["square" if name in own else "circle" for name in points],
            "color": [UNRANKED if n is None else STUDIES[n % len(STUDIES)] for n in of],
        },
    }
    layout = {
        "xaxis": axis("first principal component"),
        "yaxis": axis("second principal component"),
        "height": 360,
        "hovermode": "closest",
    }
    return {"data": [trace], "layout": layout}


def by_batch(ratios: Mapping[SystemConfig, Mapping[int, Sequence[float]]]) -> Figure | None:
    """Draw speed relative to the default against the batch size, a line for each configuration.

    ``ratios`` are windows' seconds per step divided by the default's, by configuration and batch
    size. Returns None if there is only one batch size.
    """
    sizes = sorted({size for by_size in ratios.values() for size in by_size})
    if len(sizes) < 2:
        return None
    traces = []
    for index, (config, by_size) in enumerate(ratios.items()):
        widths = sorted(by_size)
        colour = STUDIES[index % len(STUDIES)]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers+text",
                "x": widths,
                "y": [1 / geometric_mean(by_size[size]) for size in widths],
                "text": [""] * (len(widths) - 1) + [config_text(config)],
                "textposition": "top center",
                "customdata": [count(len(by_size[size]), "window") for size in widths],
                "hovertemplate": Markup(
                    "{}<br>batch size %{{x}}: %{{y:.2f}}, %{{customdata}}<extra></extra>"
                ).format(config_text(config)),
                "line": {"color": colour, "width": 2},
                "marker": {"size": 8, "color": colour},
            }
        )
    low, high = log10(sizes[0]), log10(sizes[-1])
    margin = (high - low) / 6  # for the names at the ends of the lines
    ticks = {"tickvals": sizes, "ticktext": [str(n) for n in sizes]}
    layout = {
        "xaxis": axis("batch size", type="log", range=[low - margin, high + margin], **ticks),
        "yaxis": axis("speed over the default's", type="log"),
        "height": 360,
        "hovermode": "closest",
    }
    return {"data": traces, "layout": layout}


def speedups(found: Sequence[TriedConfiguration]) -> Figure | None:
    """Draw a bar for each measured configuration: its speed relative to the default."""
    speeds = {config_text(each.config): each.speed for each in found if each.speed is not None}
    if not speeds:
        return None
    names = list(reversed(speeds))
    trace = {
        "type": "bar",
        "orientation": "h",
        "base": 1,
        "x": [speeds[name] - 1 for name in names],
        "y": names,
        "text": [f"{speeds[name]:.2f}" for name in names],
        "textposition": "auto",
        "hovertemplate": Markup("%{y}: %{text}<extra></extra>"),
        "marker": {"color": [shade(1.0) if speeds[name] > 1 else shade(0.0) for name in names]},
    }
    layout = {
        "xaxis": axis("speed over the default's"),
        "yaxis": {"type": "category"},
        "height": MARGIN + len(names) * LANE,
        "bargap": 0.3,
    }
    return {"data": [trace], "layout": layout}
