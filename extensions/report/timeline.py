"""Charts that show which trial was in which slot of a device over time."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from ...app.common.text import duration
from ...app.show.drawings.charts import (
    STUDIES,
    Figure,
    axis,
    colours,
    lanes_height,
    summary,
    unit_of,
)
from ...profiling.devices.device import slot_name
from ...scheduler.model.study import number_of, study_of_trial

if TYPE_CHECKING:
    from ...app.ledger.rows import EpochRow, StudyRow, TrialRow, Work

#: The most bars with the number of their trial inside; the longest bars get a number. To fit a
#: number into a bar costs a browser as much as to draw several bars.
NUMBERED = 40

#: The name of a device, and the number of one of its slots.
Slot = tuple[str, int]


def timeline(
    study: StudyRow, trials: Sequence[TrialRow], epochs: Sequence[EpochRow]
) -> Figure | None:
    """Return a chart of one study's trials in each slot over time, or None if no epoch was trained.

    A bar is the time from the first to the last epoch of one attempt.
    """
    epochs = [row for row in epochs if not row.taken_from]
    if not epochs:
        return None
    trial_of = {trial.id: trial for trial in trials}
    colour = colours(study, trials)
    # A gang's epochs are on the lanes of all its members.
    placed = [(slot, run) for run in _runs(epochs) for slot in run[0].slots]
    lane_of = _lanes({slot for slot, _ in placed})
    scale, unit = unit_of(max(row.at for row in epochs) - study.created_at)
    edges = [(run[0].at - run[0].seconds, run[-1].at) for _, run in placed]
    since = study.created_at
    spans = [((begin - since) / scale, (end - since) / scale) for begin, end in edges]
    names = [trial_of[run[0].trial] for _, run in placed]
    bars = _bars(
        [lane_of[slot] for slot, _ in placed],
        [trial.number for trial in names],
        [begin for begin, _ in spans],
        [end - begin for begin, end in spans],
        [colour[trial.id] for trial in names],
        [
            Markup("<br>").join((summary(trial), _words(run), f"{begin:.4g} to {end:.4g} {unit}"))
            for trial, (_, run), (begin, end) in zip(names, placed, spans, strict=True)
        ],
    )
    # The axis begins at the first epoch: a long start-up would squeeze the rest.
    begin, end = min(begin for begin, _ in spans), max(end for _, end in spans)
    edge = (end - begin) / 60
    title = f"time since submission ({unit})"
    return _figure(bars, axis(title, range=[begin - edge, end + edge]), lane_of)


def holdings(epochs: Sequence[EpochRow], works: Mapping[Slot, Work], now: float) -> Figure | None:
    """Return a chart of the trials of all studies in each slot over time.

    A bar is an attempt, in the colour of its study (``study_colours``). ``epochs`` are those of all
    studies, and ``works`` are the trials that run at ``now`` (seconds since 1970), by slot. Return
    None if there are no epochs and no running trials.
    """
    runs = _runs([row for row in epochs if not row.taken_from])
    spans = [
        (slot, run[0].trial, run[0].begin, run[-1].at, _words(run))
        for run in runs
        for slot in run[0].slots
    ]
    ends = {(slot, trial): end for slot, trial, _, end, _ in spans}
    for slot, work in works.items():
        # The epoch at work begins where the bar of those before it ends.
        starts = [ends.get((slot, work.trial)), work.since]
        begin = max((at for at in starts if at is not None), default=now)
        spans.append((slot, work.trial, begin, max(begin, now), f"epoch {work.epoch}, at work"))
    if not spans:
        return None
    lane_of = _lanes({slot for slot, *_ in spans})
    colour = study_colours(study_of_trial(trial) for _, trial, *_ in spans)
    bars = _bars(
        [lane_of[slot] for slot, *_ in spans],
        [number_of(trial) for _, trial, *_ in spans],
        [_date(begin) for _, _, begin, _, _ in spans],
        [1e3 * (end - begin) for _, _, begin, end, _ in spans],  # Plotly has dates in milliseconds
        [colour[study_of_trial(trial)] for _, trial, *_ in spans],
        [
            Markup("<b>{}</b><br>{}<br>{} from {}").format(
                trial, words, duration(end - begin), _date(begin)[11:19]
            )
            for _, trial, begin, end, words in spans
        ],
    )
    return _figure(bars, axis("time (UTC)", type="date"), lane_of)


def study_colours(ids: Iterable[str]) -> dict[str, str]:
    """Return a colour for each study's id, in the order of the ids.

    If there are more studies than colours, the colours repeat.
    """
    return dict(zip(sorted(set(ids)), itertools.cycle(STUDIES), strict=False))


def _runs(epochs: Sequence[EpochRow]) -> list[list[EpochRow]]:
    """Return the epochs of each attempt as a list, in order."""
    runs: list[list[EpochRow]] = []
    # By end time within a trial; ties (epochs reported together) in the order of the epochs.
    for row in sorted(epochs, key=lambda row: (row.trial, row.epoch)):
        before = runs[-1][-1] if runs else None
        if before and (before.trial, before.fence) == (row.trial, row.fence):
            runs[-1].append(row)
        else:
            runs.append([row])
    return runs


def _words(run: Sequence[EpochRow]) -> str:
    """Return the epochs of a bar as text, such as *epoch 2 to 5, attempt 17*."""
    last = f" to {run[-1].epoch}" if len(run) > 1 else ""
    return f"epoch {run[0].epoch}{last}, attempt {run[0].fence}"


def _lanes(slots: Collection[Slot]) -> dict[Slot, str]:
    """Return the label of each slot: the device's name, and a number if there are several slots."""
    several = {device for device, slot in slots if slot > 0}
    return {(device, slot): slot_name(device, slot, several) for device, slot in slots}


def _date(at: float) -> str:
    """Return a time in seconds since 1970 as a date (UTC) that Plotly reads."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")[:-6]


def _bars(  # noqa: PLR0917 - what a bar has, one list each
    lanes: Sequence[str],
    numbers: Sequence[int],
    begins: Sequence[float] | Sequence[str],
    lengths: Sequence[float],
    shades: Sequence[str],
    texts: Sequence[str],
) -> dict[str, Any]:
    """Return a Plotly trace of bars. The longest bars show the number of their trial.

    ``texts`` are the hover texts. All arguments have one entry for each bar.
    """
    longest = set(sorted(range(len(lengths)), key=lambda k: -lengths[k])[:NUMBERED])
    return {
        "type": "bar",
        "orientation": "h",
        "base": begins,
        "x": lengths,
        "y": lanes,
        "text": [str(number) if k in longest else "" for k, number in enumerate(numbers)],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "customdata": texts,
        "hovertemplate": Markup("%{customdata}<extra></extra>"),
        "marker": {"color": shades},
    }


def _figure(bars: dict[str, Any], x_axis: dict[str, Any], lane_of: Mapping[Slot, str]) -> Figure:
    lanes = [lane_of[slot] for slot in sorted(lane_of)]
    layout = {
        "xaxis": x_axis,
        "yaxis": {
            "type": "category",
            "categoryorder": "array",
            "categoryarray": lanes[::-1],
        },
        "height": lanes_height(len(lanes)),
        "bargap": 0.22,
        "barmode": "overlay",
        "hovermode": "closest",
        "uniformtext": {"minsize": 9, "mode": "hide"},
    }
    return {"data": [bars], "layout": layout}
