"""Says what branches would cost before they are made: epochs, time, and if their state is there."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from statistics import median
from typing import Any, NamedTuple

from ...app.common.text import count, duration


class Cost(NamedTuple):
    """What branches of one trial would take."""

    #: The number of branches.
    copies: int
    #: The first and the last epoch that each trains.
    first: int
    last: int
    #: The first epoch that each computes again to have its state; ``first``: the state is kept.
    again: int
    #: The time that an epoch is expected to take (seconds); None: none has been measured.
    epoch_seconds: float | None

    @property
    def seconds(self) -> float | None:
        """The time that all take together; None where it is not known."""
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
    """Return what branches after epoch ``at`` up to epoch ``to`` cost.

    The trial's own epochs come after ``begin`` and took these ``seconds``; the states after those
    of ``kept`` are in the store.
    """
    newest = max((epoch for epoch in kept if begin < epoch <= at), default=begin)
    return Cost(copies, at + 1, to, newest + 1, median(seconds) if seconds else None)


def cost_words(cost: Cost) -> str:
    """Return the cost in two sentences."""
    who = "It" if cost.copies == 1 else f"Each of {cost.copies}"
    epochs = count(cost.last - cost.first + 1, "epoch")
    words = f"{who} trains {epochs}, {_span(cost.first, cost.last)}"
    at, state = cost.first - 1, f"The state after epoch {cost.first - 1}"
    if cost.seconds is not None:
        words += f": about {duration(cost.seconds)} of a slot{' in all' * (cost.copies > 1)}"
    if cost.again == cost.first:
        return f"{words}. {state} is kept."
    return (
        f"{words}, with {_span(cost.again, at)} that is computed again first."
        f" {state} is not kept, unless a trainer has it still."
    )


def _span(first: int, last: int) -> str:
    return f"epoch {first}" if first == last else f"epochs {first} to {last}"


def start_words(plan: dict[str, Any]) -> str:
    """Return when a branch would begin by the scheduler's plan: it comes before what waits."""
    if plan["free"]:
        return f"{plan['free'][0]} is free: it begins at once."
    if plan["next_free"] is None:
        return "When a slot is free is not known yet; it comes before trials that wait."
    soon = duration(plan["next_free"])
    return f"The next slot is free in about {soon}; it comes before trials that wait."
