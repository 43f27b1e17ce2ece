"""Events in which trainers report windows under system configurations, and profiles."""

from __future__ import annotations

from dataclasses import dataclass

from ....base.values import Amount, Finite, Positive, Whole, value_class
from ....profiling.knobs.knobs import SystemConfig
from ....scheduler.model.events import Event


@dataclass(frozen=True, slots=True)
class Window:
    """Training steps under ``config``, measured between steps under the default configuration.

    ``ratio`` is the seconds per step divided by the default's. ``joules`` is the same ratio for
    joules per step (None if not measured). ``wasted`` is the number of seconds that the window,
    with its share of the default's steps, took beyond the training itself.
    """

    config: SystemConfig
    ratio: Positive
    wasted: Amount
    joules: Positive | None = None


@value_class(frozen=True, slots=True, kw_only=True)
class WindowsMeasured(Event):
    """An attempt reports windows under system configurations.

    ``failed`` has the configurations that could not be run, each with the reason.
    """

    trial: str
    fence: Whole
    windows: tuple[Window, ...]
    failed: tuple[tuple[SystemConfig, str], ...] = ()


@value_class(frozen=True, slots=True, kw_only=True)
class Rehearsed(Event):
    """An attempt found the system configuration of all trials of its study, before its first epoch.

    ``chosen`` is that configuration, and ``spent`` the seconds that the search took. ``failed`` is
    as in ``WindowsMeasured``.
    """

    trial: str
    fence: Whole
    chosen: SystemConfig
    windows: tuple[Window, ...]
    failed: tuple[tuple[SystemConfig, str], ...] = ()
    spent: Amount = 0.0


@value_class(frozen=True, slots=True, kw_only=True)
class Profiled(Event):
    """Rates and ratios that were measured in an epoch of the trial (docs/profiling.md).

    Values that could not be measured are absent.
    """

    trial: str
    fence: Whole
    epoch: Whole
    values: tuple[tuple[str, Finite], ...]
