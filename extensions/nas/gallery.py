"""The report's gallery of architectures: the best of a study whose model has choices, drawn."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from ...app.common.text import count, number
from ...app.drawings.charts import STUDIES
from ...app.ledger.summary import front_of, ranked
from ...app.views.progress import scores
from .events import Derived
from .pictures.outline import Box, boxes_of, primitive_words, shortened
from .pictures.picture import picture

if TYPE_CHECKING:
    from ...app.ledger.rows import StudyRow, TrialRow

#: How many architectures are shown, and the most characters of what is said of one.
SHOWN, LONGEST = 6, 400
#: A picture wider than this (pixels) has two columns, or all of them.
COLUMN = 320


def section(study: StudyRow, trials: Sequence[TrialRow], derived: Iterable[Derived]) -> str:
    """The section as HTML; empty for a study whose models make no choices, or cannot be traced.

    Equal architectures are shown once, with the best trial that has one.
    """
    newest = {event.trial: event for event in derived}
    shown = _best(study, trials, newest)
    if not shown:
        return ""
    labels = dict.fromkeys(box.label for _, boxes in shown for box in boxes if box.label)
    colours = {label: STUDIES[n % len(STUDIES)] for n, label in enumerate(labels)}
    cards = "".join(_card(study, trial, newest[trial.id], boxes, colours) for trial, boxes in shown)
    distinct = len({event.digest for event in newest.values()})
    which = (
        "The only one" if distinct == 1 else f"The best {len(shown)} of {distinct} different ones"
    )
    lead = (
        f"{which}, of {count(len(newest), 'trial')}. What a choice put there has its colour, what a"
        " mutator changed is dashed."
    )
    return (
        f'<section id="architectures"><div class="head"><h2>Architectures</h2><p>{lead}</p></div>'
        f'<div class="gallery">{cards}</div></section>'
    )


def _best(
    study: StudyRow, trials: Sequence[TrialRow], newest: Mapping[str, Derived]
) -> list[tuple[TrialRow, list[Box]]]:
    """The best trials of different architectures that can be drawn, with the boxes of each."""
    first = front_of(study, trials)
    order = [*first, *(trial for trial in ranked(study, trials) if trial not in first)]
    shown: list[tuple[TrialRow, list[Box]]] = []
    seen: set[str] = set()
    for trial in order:
        event = newest.get(trial.id)
        if event is None or event.digest in seen or len(shown) == SHOWN:
            continue
        if boxes := boxes_of(event.outline):
            seen.add(event.digest)
            shown.append((trial, boxes))
    return shown


def _card(
    study: StudyRow,
    trial: TrialRow,
    event: Derived,
    boxes: Sequence[Box],
    colours: Mapping[str, str],
) -> str:
    params = ", ".join(f"{name} {number(value, 3)}" for name, value in trial.params.items())
    said = f"<p>{escape(shortened(params, LONGEST))}</p>"
    if done := json.loads(event.log):
        words = "; ".join(map(primitive_words, done))
        said += f"<p>{escape(shortened(words, LONGEST))}</p>"
    svg, width = picture(boxes, colours, f"the architecture of trial {trial.number}")
    kind = "" if width <= COLUMN else ' class="wide"' if width <= 2 * COLUMN else ' class="whole"'
    return (
        f"<figure{kind}><figcaption><b>trial {trial.number}</b>, {escape(scores(study, trial))}"
        f"{said}</figcaption>{svg}</figure>"
    )
