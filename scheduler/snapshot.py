"""The immutable picture that a policy sees, and the plan that it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Candidate:
    """A trial after ``epoch`` accepted epochs that waits or runs.

    ``since`` is when it last began to wait. ``width`` is on how many devices it runs or last ran (0
    before its first segment), ``widest`` on how many it may. ``epoch_seconds`` is what one of its
    epochs takes, None where none of its study was measured; ``speeds`` are (width, seconds an
    epoch) as measured in its study.
    """

    trial: str
    study: str
    epoch: int
    target: int
    since: float
    epoch_seconds: float | None = None
    width: int = 0
    widest: int = 1
    speeds: tuple[tuple[int, float], ...] = ()

    @property
    def seconds(self) -> float | None:
        """Its expected work up to its target; None where nothing was measured."""
        if self.epoch_seconds is None:
            return None
        return self.epoch_seconds * (self.target - self.epoch)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What there is to plan: trials in order of arrival, free slots, and devices with only such."""

    at: float
    waiting: tuple[Candidate, ...]
    free_slots: int
    running: tuple[Candidate, ...] = ()
    free_devices: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """Waiting trials in the order in which they get the slots that become free.

    ``widths`` is on how many devices a trial shall run from its next epoch on; 1 where nothing is
    said. It gets as many of them as are free. ``shuffle``: instead, widths are drawn anew for every
    epoch, and a trial waits until all its devices are free.
    """

    order: tuple[str, ...] = ()
    widths: Mapping[str, int] = field(default_factory=dict)
    shuffle: bool = False


Policy = Callable[[Snapshot], Plan]
