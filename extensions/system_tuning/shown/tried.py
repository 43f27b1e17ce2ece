"""Summarises the results of system configurations in a study, relative to the default."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from statistics import geometric_mean
from typing import TYPE_CHECKING

from ....profiling.knobs.knobs import SystemConfig
from ....scheduler.model.events import AttemptFailed
from ..races.arm import MIN_WINDOWS, Arm
from ..races.measured import Rehearsed, Window, WindowsMeasured

if TYPE_CHECKING:
    from ....app.ledger.rows import EpochRow


@dataclass(frozen=True, slots=True)
class TriedConfiguration:
    """A configuration and the results of its windows.

    ``ratios`` are each window's seconds per step divided by the default's; ``joules`` are the same
    ratios of joules, if measured. ``failed`` is the reason why the configuration cannot be run, or
    empty.
    """

    config: SystemConfig
    ratios: tuple[float, ...]
    joules: tuple[float, ...]
    failed: str

    @property
    def speed(self) -> float | None:
        """The geometric mean of the speed relative to the default; None if not measured."""
        return 1 / geometric_mean(self.ratios) if self.ratios else None

    def interval(self, alpha: float) -> tuple[float, float] | None:
        """Return bounds of ``speed``, each wrong with probability ``alpha``, or None."""
        arm = Arm(self.config)
        for ratio in self.ratios:
            arm.observe(ratio)
        low, high = arm.interval(alpha)
        return (exp(-high), exp(-low)) if arm.n >= MIN_WINDOWS else None

    @property
    def energy(self) -> float | None:
        """The geometric mean of the joules relative to the default; None if not measured."""
        return geometric_mean(self.joules) if self.joules else None


def tried(
    events: Sequence[WindowsMeasured | Rehearsed], failures: Sequence[tuple[SystemConfig, str]] = ()
) -> list[TriedConfiguration]:
    """Return all measured configurations, the fastest first, and those that cannot be run."""
    ratios: dict[SystemConfig, list[float]] = {}
    joules: defaultdict[SystemConfig, list[float]] = defaultdict(list)
    failed: dict[SystemConfig, str] = dict(failures)
    for event in events:
        for window in event.windows:
            ratios.setdefault(window.config, []).append(window.ratio)
            if window.joules is not None:
                joules[window.config].append(window.joules)
        failed |= dict(event.failed)
    configurations = [
        TriedConfiguration(
            config,
            tuple(ratios.get(config, ())),
            tuple(joules[config]),
            failed.get(config, ""),
        )
        for config in dict.fromkeys([*ratios, *failed])
    ]
    return sorted(configurations, key=lambda each: -(each.speed or 0.0))


def crashed(
    failures: Sequence[AttemptFailed], epochs: Sequence[EpochRow]
) -> list[tuple[SystemConfig, str]]:
    """Return configurations that cannot be run, each with the reason.

    These are configurations under which a trial failed, and without which the trial then ended an
    epoch.
    """
    last = {row.trial: row.at for row in epochs}  # in the order of acceptance
    return [
        (each.trying, f"{each.kind}: {each.message.splitlines()[0] if each.message else ''}")
        for each in failures
        if each.trying and last.get(each.trial, each.at) > each.at
    ]


def tried_by_epoch(epochs: Sequence[EpochRow]) -> list[WindowsMeasured]:
    """Return whole epochs as windows, for the strategy ``grid``.

    Each is compared with its trial's last epoch under the default.
    """
    usual: dict[str, float] = {}
    windows = []
    for row in epochs:
        if not row.system:
            usual[row.trial] = row.seconds
        elif row.trial in usual and row.width == 1:
            window = Window(row.system, row.seconds / usual[row.trial], 0.0)
            windows.append(
                WindowsMeasured(
                    at=row.at, trial=row.trial, fence=row.fence, windows=(window,), failed=()
                )
            )
    return windows
