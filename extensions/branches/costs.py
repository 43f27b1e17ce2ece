"""Estimates the cost of branches before they are made: epochs, time, and epochs to repeat."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from statistics import median
from typing import Any, NamedTuple

from ...app.common.text import duration


class Cost(NamedTuple):
    """The cost of branches of one trial."""

    #: The number of branches.
    copies: int
    #: The first and the last epoch that each branch trains.
    first: int
    last: int
    #: The first epoch that each branch repeats to get its state; ``first`` if it repeats none.
    again: int
    #: The expected time of an epoch (seconds); None if no epoch has been measured.
    epoch_seconds: float | None

    @property
    def seconds(self) -> float | None:
        """The time of all branches together (seconds); None if it is not known."""
        epochs = self.copies * (self.last - self.again + 1)
        return None if self.epoch_seconds is None else epochs * self.epoch_seconds


def cost_of(
    at: int,
    to: int,
    copies: int,
    *,
    begin: int,
    kept: Collection[int],
    seconds: Sequence[float],
) -> Cost:
    """Return the cost of ``copies`` branches after epoch ``at`` that train up to epoch ``to``.

    The trial's own epochs come after ``begin`` and took ``seconds``, one number for each. The
    states after the epochs in ``kept`` are in the store.
    """
    newest = max((epoch for epoch in kept if begin < epoch <= at), default=begin)
    return Cost(copies, at + 1, to, newest + 1, median(seconds) if seconds else None)


def cost_words(cost: Cost) -> str:
    """Return ``cost`` in two sentences."""
    at, replayed = cost.first - 1, cost.first - cost.again
    words = "It trains" if cost.copies == 1 else f"Each of {cost.copies} trains"
    words += f" {_span(cost.first, cost.last)}"
    if replayed:
        words += f", after computing {_span(cost.again, at)} again"
    if cost.seconds is not None:
        words += f": about {duration(cost.seconds)} of a slot{' in all' * (cost.copies > 1)}"
    storage_words = "not kept, but a trainer may have it still" if replayed else "kept"
    return f"{words}. The state after epoch {at} is {storage_words}."


def _span(first: int, last: int) -> str:
    """Return words for a range of epochs, such as *3 epochs (5 to 7)* or *epoch 5*."""
    return f"epoch {first}" if first == last else f"{last - first + 1} epochs ({first} to {last})"


def start_words(plan: dict[str, Any], copies: int) -> str:
    """Return words for when branches would start by ``plan``, the scheduler's plan.

    Branches start before waiting trials.
    """
    if plan["free"]:
        first = "the first begins" if copies > len(plan["free"]) else "each begins"
        begins = "it begins" if copies == 1 else first
        return f"{plan['free'][0]} is free: {begins} at once, if it may work for this study."
    if plan["next_free"] is None:
        return "When a slot is free is not known yet; it comes before trials that wait."
    soon = duration(plan["next_free"])
    return f"The next slot is free in about {soon}; it comes before trials that wait."
