"""Tools for all charts: figures as plain JSON values, colours, axes, units and lanes.

The page sets the colours of text, grid and background, for light and dark. This module sets the
colour of a trial, which is the same in all charts. The colours run by rank, from sand (worst) over
green to blue (best). Plotly interprets some HTML in labels. So the texts of a figure, except
``Markup``, are escaped when the figure is put into a page.
"""

from __future__ import annotations

import html
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from ...common.text import count, number
from ...ledger.summary import ranked

if TYPE_CHECKING:
    from markupsafe import Markup

    from ...ledger.rows import StudyRow, TrialRow


Figure = dict[str, Any]

#: Colour stops from the worst trial to the best. Colour-blind readers can tell these colours apart,
#: on a light page and on a dark page.
SCALE = ((0.0, (222, 178, 98)), (0.5, (74, 170, 158)), (1.0, (48, 112, 214)))
UNRANKED = "#98a2ad"
#: Colours of the studies in a chart. Colour-blind readers can tell these colours apart (M. Okabe,
#: K. Ito).
STUDIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
#: Heights in pixels: a narrow lane, a normal lane, the two margins together, and the least height
#: of a chart. A lane is a row of a chart here.
NARROW_LANE, LANE, MARGIN, LEAST_HEIGHT = 18, 34, 96, 170
#: The largest number of lanes of normal height. If a chart has more lanes, all its lanes are
#: narrow.
WIDE_LANES = 16
#: The factor between the largest and the smallest value above which an axis of positive values is
#: logarithmic.
LOG_SPAN = 50.0


def labelled(value: Any) -> Any:
    """Return a value of a figure with all texts escaped, so that Plotly shows the texts unchanged.

    Texts of the type ``Markup`` are not escaped.
    """
    if isinstance(value, Mapping):
        return {name: labelled(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [labelled(each) for each in value]
    if isinstance(value, str) and not isinstance(value, Markup):
        return html.escape(value, quote=False)
    return value


def colours(study: StudyRow, trials: Sequence[TrialRow]) -> dict[str, str]:
    """Return the colour of each trial, by the id of the trial.

    The colour depends on the trial's rank. Trials without a value are grey.
    """
    order = ranked(study, trials)
    by_trial = {trial.id: UNRANKED for trial in trials}
    for index, trial in enumerate(order):
        by_trial[trial.id] = shade(1.0 - index / max(1, len(order) - 1))
    return by_trial


def shade(share: float) -> str:
    """Return the colour at ``share`` of the way from the worst trial (0) to the best trial (1).

    Raises ValueError if ``share`` is above 1.
    """
    for (low, dark), (high, light) in itertools.pairwise(SCALE):
        if share <= high:
            part = (share - low) / (high - low)
            mixed = (round(a + (b - a) * part) for a, b in zip(dark, light, strict=True))
            return "#{:02x}{:02x}{:02x}".format(*mixed)
    raise ValueError(f"{share} is not a share between 0 and 1")


def unit_of(span: float) -> tuple[float, str]:
    """Return the length (in seconds) and the name of the unit that suits ``span`` seconds."""
    for seconds, name in ((3600.0, "h"), (60.0, "min")):
        if span >= 3 * seconds:
            return seconds, name
    return 1.0, "s"


def is_log(values: Sequence[float]) -> bool:
    """Return True if an axis of ``values`` should be logarithmic."""
    return bool(values) and min(values) > 0 and max(values) / min(values) > LOG_SPAN


def lanes_height(lanes: int) -> int:
    """Return the height in pixels of a chart with the given number of lanes."""
    return max(LEAST_HEIGHT, MARGIN + lanes * (LANE if lanes <= WIDE_LANES else NARROW_LANE))


def axis(title: str, **more: Any) -> dict[str, Any]:
    """Return the JSON of a Plotly axis with the given title and with the settings ``more``."""
    return {"title": {"text": title}, **more}


def summary(trial: TrialRow) -> Markup:
    """Return the hover text of a trial: number, state and epochs, and a line for each parameter."""
    epochs = count(trial.epoch, "epoch")
    head = Markup("<b>trial {}</b> · {} · {}").format(trial.number, trial.state, epochs)
    params = (f"{name} = {number(value)}" for name, value in trial.params.items())
    return Markup("<br>").join([head, *params])


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a page: its HTML, and its charts by the names of their places in the HTML."""

    html: Markup
    charts: dict[str, Figure | None] = field(default_factory=dict)
