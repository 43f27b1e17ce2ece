"""The immutable picture that a policy sees, and the plan that it returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Waiting:
    """A trial that wants a slot. ``seconds`` is its expected work up to its target.

    None: no epoch of its study was measured. ``since`` is when it began to wait.
    """

    trial: str
    study: str
    epoch: int
    target: int
    seconds: float | None
    since: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What there is to plan: waiting trials in order of arrival, and the number of free slots."""

    at: float
    waiting: tuple[Waiting, ...]
    free_slots: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Waiting trials in the order in which they get the slots that become free."""

    order: tuple[str, ...] = ()


Policy = Callable[[Snapshot], Plan]
