"""Deficit round robin: the order of turns, and their lengths.

Theory of operation. A *name* stands for anything that takes turns. Each name has a credit of
seconds. Each round the credit grows by a quantum times the name's weight, divided by the largest
weight. The name has a turn when its credit has reached a quantum, and the turn lasts until the
credit is used up. A turn cannot end in the middle of a step, so it may overrun. The name owes the
excess: it gets no turn until later rounds have paid the debt. So the time of each name is
proportional to its weight, however long its steps are, to within a step and a quantum (Shreedhar
and Varghese, SIGCOMM 1995, section 3; a turn may overrun, as in surplus round robin).

A name of weight 0 has a turn only if no other name wants a turn. A new name has the next turn. A
resting name wants no turn, and keeps its weight and its credit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

#: Seconds of a turn, by default. A switch takes a few tenths of a millisecond.
QUANTUM = 0.02

#: The part of a quantum that a credit must have reached. Less than 1, since sums are rounded.
ENOUGH = 0.999

Name = TypeVar("Name", bound=Hashable)


class RoundRobin(Generic[Name]):
    """Gives turns to names by weight. The caller passes the time used; nothing is measured here."""

    def __init__(self, quantum: float = QUANTUM) -> None:
        self._quantum = quantum
        self._order: deque[Name] = deque()
        self._weights: dict[Name, float] = {}
        self._credits: dict[Name, float] = {}

    def __iter__(self) -> Iterator[Name]:
        """Yield all names, including resting ones."""
        return iter(self._weights)

    @property
    def awake(self) -> Sequence[Name]:
        """The names that do not rest, in the order of their turns."""
        return tuple(self._order)

    def join(self, name: Name) -> None:
        """Let ``name`` take turns from now on, with weight 1, beginning with the next turn."""
        self._order.appendleft(name)
        self._weights[name] = 1.0
        self._credits[name] = self._quantum

    def rest(self, name: Name) -> None:
        """Give ``name`` no turns until it wakes."""
        self._order.remove(name)

    def wake(self, name: Name) -> None:
        """Let ``name``, which rested, take turns again, after the others."""
        self._order.append(name)

    def leave(self, name: Name) -> None:
        """Remove ``name``, which must not rest, from the turns."""
        self._order.remove(name)
        del self._weights[name], self._credits[name]

    def weigh(self, name: Name, weight: float) -> None:
        """Set the weight of ``name`` from now on."""
        self._weights[name] = weight

    def credit(self, name: Name) -> float:
        """Return the number of seconds that a turn of ``name`` may last."""
        return self._credits[name]

    def use(self, name: Name, seconds: float) -> None:
        """Subtract the ``seconds`` of a turn of ``name`` from its credit."""
        self._credits[name] -= seconds

    def next(self) -> Name | None:
        """Return the next name whose credit suffices for a turn; None if no name is awake."""
        if not self._order:
            return None
        weights = {name: self._weights[name] for name in self._order}
        most = max(weights.values())
        if most == 0.0:
            weights = dict.fromkeys(self._order, 1.0)
        gains = {name: self._quantum * weight / (most or 1.0) for name, weight in weights.items()}
        while True:
            for name in self._order:
                if gains[name] > 0.0 and self._credits[name] >= ENOUGH * self._quantum:
                    self._order.remove(name)
                    self._order.append(name)
                    return name
            self._rest(gains)

    def _rest(self, gains: Mapping[Name, float]) -> None:
        """Add the credit of as many rounds as pass until the first name can have a turn."""
        missing = (
            (self._quantum - self._credits[name]) / gain for name, gain in gains.items() if gain > 0
        )
        rounds = max(1.0, min(missing))
        for name, gain in gains.items():
            self._credits[name] = min(self._credits[name] + rounds * gain, 2 * self._quantum)
