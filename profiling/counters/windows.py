"""Differences of counters over a window, without impossible ones. No I/O.

Theory of operation. A source is read each second and at both edges of a window. Each pair of
adjacent samples gives one difference for each counter. A counter that runs backwards, or grows
faster than the hardware can, is dropped for the whole window: one corrupt sample must not become a
cluster of its own. Hardware counters share registers, so the kernel runs each one for part of the
time that it is enabled. Over the window a count is ``value * enabled / running``, all three from
differences. A counter that ran for less than the share ``TRUSTED`` of the time is an extrapolation,
and is dropped. A counter that did not run at all is absent; it is never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

#: Share of the time it was enabled that a counter must have run in order to be trusted.
TRUSTED = 0.25
#: Seconds by which a bound is widened, since the kernel's clocks move in ticks.
SLACK = 0.1

#: The reason why a counter is missing from a window in which it was read.
Fault = Literal["backwards", "jumped", "distrusted", "not counted"]


@dataclass(frozen=True, slots=True)
class Count:
    """A cumulative counter as it was read.

    ``enabled`` and ``running`` (nanoseconds) are those of a multiplexed counter; both are 0 for one
    that always counts. ``since`` is the time at which the counter was opened with the value 0; None
    if it was opened before the first sample.
    """

    value: int
    enabled: int = 0
    running: int = 0
    since: float | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """Everything that was read at one time (``at``, seconds on any steady clock).

    ``gauges`` are values of the moment, or means since the previous sample.
    """

    at: float
    counts: Mapping[str, Count] = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Total:
    """The sum of one counter's differences. ``seconds`` is the time that they cover."""

    value: int = 0
    enabled: int = 0
    running: int = 0
    seconds: float = 0.0

    def scaled(self) -> float:
        """Return the estimated count in ``seconds``: ``value * enabled / running``."""
        return self.value * self.enabled / self.running if self.enabled else float(self.value)


class CounterWindow:
    """A window that sums up the differences of samples, from ``first`` on.

    ``max_rates`` bounds each counter's growth per second. A counter without a bound is not checked.
    """

    def __init__(self, first: Sample, max_rates: Mapping[str, float]) -> None:
        self._begin = first.at
        self._last = first
        self._max_rates = max_rates
        self._totals: dict[str, Total] = {}
        self._gauges: dict[str, Total] = {}
        self._means: dict[str, tuple[float, float]] = {}
        self._faults: dict[str, Fault] = {}

    @property
    def seconds(self) -> float:
        return self._last.at - self._begin

    def add(self, after: Sample) -> None:
        """Add the next sample. One that is not later than the last sample is ignored."""
        before = self._last
        seconds = after.at - before.at
        if seconds <= 0:
            return  # the next sample includes the growth
        self._last = after
        for name, count in after.counts.items():
            self._add(name, _base(before.counts.get(name), count), count, before.at, after.at)
        for name, value in after.gauges.items():
            total, covered = self._means.get(name, (0.0, 0.0))
            self._means[name] = (total + value * seconds, covered + seconds)

    def _add(self, name: str, old: Count | None, new: Count, before: float, after: float) -> None:
        if old is None:
            return
        fault = find_count_fault(old, new)
        seconds = after - max(before, new.since or before)
        value = new.value - old.value
        max_rates = self._max_rates.get(name)
        if fault is None and max_rates is not None and value > max_rates * (seconds + SLACK):
            fault = "jumped"
        if fault is not None:
            self._faults.setdefault(name, fault)
            return
        total = self._totals.setdefault(name, Total())
        total.value += value
        total.enabled += new.enabled - old.enabled
        total.running += new.running - old.running
        total.seconds += seconds

    def totals(self) -> dict[str, Total]:
        """Return the total of each counter that is trusted in this window."""
        faults = self.faults()
        return {name: total for name, total in self._totals.items() if name not in faults}

    def gauges(self) -> dict[str, float]:
        """Return the mean of each gauge over the seconds in which it was read."""
        return {name: total / covered for name, (total, covered) in self._means.items()}

    def faults(self) -> dict[str, Fault]:
        """Return the fault of each counter that is not trusted."""
        faults = dict(self._faults)
        for name, total in self._totals.items():
            if name in faults or not total.enabled:
                continue
            if not total.running:
                faults[name] = "not counted"
            elif total.running < TRUSTED * total.enabled:
                faults[name] = "distrusted"
        return faults


def _base(before: Count | None, after: Count) -> Count | None:
    """Return the reading to compare ``after`` with: the previous one, or zero if opened since."""
    if after.since is None or (before is not None and before.since == after.since):
        return before
    return Count(0, since=after.since)


def find_count_fault(before: Count, after: Count) -> Fault | None:
    """Return the fault that two readings show whatever the time between them; None if none."""
    if (
        after.value < before.value
        or after.enabled < before.enabled
        or after.running < before.running
    ):
        return "backwards"
    if after.running - before.running > after.enabled - before.enabled:
        return "jumped"
    return None
