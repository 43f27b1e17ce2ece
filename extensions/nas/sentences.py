"""Sentences on the architecture of a trial's model, its mutations, and other trials with it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...scheduler.model.study import number_of
from .events import Derived, Described
from .pictures.outline import primitive_words

if TYPE_CHECKING:
    from ...app.ledger.reader import Reader
    from ...scheduler.model.events import Event

#: Number of digits shown of an architecture's digest.
DIGITS = 12


def derived(event: Derived) -> str:
    """Return a sentence on the architecture and on the mutations and repairs that made it."""
    text, log = f"its model is architecture {event.digest[:DIGITS]}", json.loads(event.log)
    if not log:
        return f"{text}, which no mutator changed"
    return f"{text}, made of {event.base[:DIGITS]}: {'; '.join(map(primitive_words, log))}"


def described(event: Described) -> str:
    """Return a sentence on the number of parameters and operations of a trial's model."""
    architecture = event.architecture
    subject = (
        "its model" if event.of == event.trial else f"the model of trial {number_of(event.of)}"
    )
    text = f"{subject} has {architecture.parameters:,} parameters"
    if not architecture.operators:
        return f"{text}; its operations could not be counted"
    per_example = (
        f"{architecture.flops:,} operations and {architecture.activations:,} activations an example"
    )
    return f"{text}, {per_example}, {architecture.operators} operators deep"


def others_alike(reader: Reader, study: str, events: Sequence[tuple[int, Event]]) -> str:
    """Return a sentence on the study's other trials with the same architecture as this trial.

    ``events`` are the events of this trial. The result is empty if there are no such other trials.
    """
    own = [event for _, event in events if isinstance(event, Derived)]
    if not own:
        return ""
    of_study = [event for _, event in reader.of_trials(study, Derived)]
    like = {event.trial for event in of_study if event.digest == own[-1].digest}
    numbers = sorted(number_of(each) for each in like - {own[-1].trial})
    noun = "trial" if len(numbers) == 1 else "trials"
    return f"its architecture is that of {noun} {', '.join(map(str, numbers))}" if numbers else ""
