"""The report's gallery of architectures: drawings of a study's best models that make choices."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup

from ...app.common.text import count, number
from ...app.ledger.summary import front_of, ranked
from ...app.show.drawings.charts import STUDIES
from ...app.show.drawings.page import filled
from ...app.show.views.progress import scores
from .events import Derived
from .pictures.outline import Box, boxes_of, primitive_words, shortened
from .pictures.picture import picture

if TYPE_CHECKING:
    from ...app.ledger.rows import StudyRow, TrialRow

#: The number of architectures shown, and the greatest number of characters of an architecture's
#: text.
SHOWN, LONGEST = 6, 400
#: Width of a column of the gallery (pixels). A wider picture takes two columns, or all of them.
COLUMN = 320


class Card(NamedTuple):
    """An architecture: the number of its trial, its scores, its text, and its picture."""

    number: int
    scores: str
    words: list[str]
    picture: Markup
    #: The columns of the gallery that the picture takes: ``one``, ``wide`` (two), ``whole``.
    columns: str


def section(study: StudyRow, trials: Sequence[TrialRow], derived: Iterable[Derived]) -> Markup:
    """Return the section as HTML; empty if the models have no choices or cannot be traced.

    Equal architectures are shown once, with the best of their trials.
    """
    newest = {event.trial: event for event in derived}
    best = _best(study, trials, newest)
    if not best:
        return Markup()
    labels = dict.fromkeys(box.label for _, boxes in best for box in boxes if box.label)
    colours = {label: STUDIES[n % len(STUDIES)] for n, label in enumerate(labels)}
    cards = [_card(study, trial, newest[trial.id], boxes, colours) for trial, boxes in best]
    distinct = len({event.digest for event in newest.values()})
    which = (
        "The only one" if distinct == 1 else f"The best {len(best)} of {distinct} different ones"
    )
    lead = (
        f"{which}, of {count(len(newest), 'trial')}. What a choice put there has its colour, what a"
        " mutator changed is dashed."
    )
    return filled("nas/gallery.html", lead=lead, cards=cards)


def _best(
    study: StudyRow, trials: Sequence[TrialRow], newest: Mapping[str, Derived]
) -> list[tuple[TrialRow, list[Box]]]:
    """Return the best trials with different, drawable architectures, each with its boxes."""
    first = front_of(study, trials)
    order = [*first, *(trial for trial in ranked(study, trials) if trial not in first)]
    best: list[tuple[TrialRow, list[Box]]] = []
    digests: set[str] = set()
    for trial in order:
        event = newest.get(trial.id)
        if event is None or event.digest in digests or len(best) == SHOWN:
            continue
        if boxes := boxes_of(event.outline):
            digests.add(event.digest)
            best.append((trial, boxes))
    return best


def _card(
    study: StudyRow,
    trial: TrialRow,
    event: Derived,
    boxes: Sequence[Box],
    colours: Mapping[str, str],
) -> Card:
    params = ", ".join(f"{name} {number(value, 3)}" for name, value in trial.params.items())
    words = [params]
    if primitives := json.loads(event.log):
        words.append("; ".join(map(primitive_words, primitives)))
    svg, width = picture(boxes, colours, f"the architecture of trial {trial.number}")
    columns = "one" if width <= COLUMN else "wide" if width <= 2 * COLUMN else "whole"
    captions = [shortened(each, LONGEST) for each in words]
    return Card(trial.number, scores(study, trial), captions, svg, columns)
