"""Computes when a study is expected to reach a limit, and the earliest time at which it could.

Theory of operation. A message of the scheduler takes time to reach a trainer, and short epochs
begin and end meanwhile. So a segment (epochs of a trial sent as one task) carries a time
(``Dispatch.until``). The segment closes with the first epoch that ends at that time or later, and
the next segment is sent only if no limit has been reached. The time comes before the study could
reach a limit with all devices that it may use, even if the study has fewer devices now. So the time
stays valid if more segments are sent meanwhile. For energy, the time is valid as long as no device
draws more power than the highest seen so far.

Only a device that joins later, a device that draws more than any before, or a trainer whose clock
is behind by more than ``MARGIN`` may bring the study to its limit sooner. The scheduler's message
(``Cut``), which is sent in any case, then ends the segment.
"""

from __future__ import annotations

from ...scheduler.model.study import HOUR, KWH, deadline_of
from ...scheduler.state.slot_time import slot_seconds
from ...scheduler.state.spending import device_share
from ...scheduler.state.state import EngineState, StudyState

#: Seconds before a limit during which epochs are sent one at a time. They cover the delay of a
#: report and the lag of a trainer's clock behind the scheduler's.
MARGIN = 2.0
#: Seconds added to a computed time, so that the limit is reached at that time despite rounding.
LATER = 1e-6


def reached_at(state: EngineState, study: StudyState) -> float | None:
    """Return the time at which running attempts will reach a limit of device-hours or money.

    The time is in the runner's clock. Return None if nothing runs, or if the study has no such
    limit that is not reached yet.
    """
    times = []
    for name, most, used in _device_limits(study):
        level, rate = _level_and_rate(state, study, used, priced=name == "money")
        if rate > 0.0:
            times.append((most - level) / rate + LATER)
    return min(times, default=None)


def begins_until(state: EngineState, study: StudyState, at: float, watts: float) -> float | None:
    """Return the time up to which a segment sent at ``at`` may begin epochs after its first epoch.

    The time is in the runner's clock, and is ``MARGIN`` before the study could reach a limit.
    Return None if the study has no limit that is not reached yet, or if the study is ending.
    ``watts`` is the highest power of a device in an epoch of the study so far; 0 if it is not
    known.
    """
    if study.ending:
        return None
    reached = study.spent.reached
    devices = [e.device for name, e in state.devices.items() if name not in study.refused]
    times = []
    end = deadline_of(study.spec, study.created_at)
    if end is not None and "deadline" not in reached:
        times.append(end)
    for name, most, used in _device_limits(study):
        priced = name == "money"
        level, rate = _level_and_rate(state, study, used, priced=priced)
        prices = [state.prices.get(e.kind, 0.0) / HOUR if priced else 1.0 for e in devices]
        if fastest := sum(prices):
            times.append(at + (most - level - rate * at) / fastest)
    if study.spec.kwh is not None and "kwh" not in reached:
        remaining = study.spec.kwh * KWH - study.spent.joules
        remaining -= watts * _unreported(state, study, at)
        fastest = watts * sum(each.lanes for each in devices)
        times.append(at + remaining / fastest if fastest else at)
    return min(times) - MARGIN if times else None


def _device_limits(study: StudyState) -> list[tuple[str, float, float]]:
    """Return the limits of device time (seconds) and of money that the study has not reached yet.

    Each is a tuple of the limit's name, the most that may be used, and the amount used.
    """
    spec, spent = study.spec, study.spent
    limits = (
        ("device_hours", spec.device_hours, HOUR, spent.device_seconds),
        ("money", spec.money, 1.0, spent.money),
    )
    return [
        (name, most * unit, used)
        for name, most, unit, used in limits
        if most is not None and name not in spent.reached
    ]


def _level_and_rate(
    state: EngineState, study: StudyState, used: float, *, priced: bool
) -> tuple[float, float]:
    """Return ``level`` and ``rate``, such that the study has used ``level + rate * t`` at time t.

    ``used`` is the amount counted so far. The result adds the running attempts of the study. The
    amount is money if ``priced``, otherwise seconds of device time.
    """
    level, rate = used, 0.0
    for attempt in state.attempts.values():
        if attempt.study != study.spec.id:
            continue
        part, since = attempt.part, attempt.counted_at
        if since is None:
            part, since = 1.0, attempt.dispatched_at
        share = device_share(state, attempt, priced=priced)
        rate += share * part
        level += share * (slot_seconds(attempt, since) - attempt.charged - part * since)
    return level, rate


def _unreported(state: EngineState, study: StudyState, at: float) -> float:
    """Return the device-seconds of the study's running epochs up to the time ``at``.

    The energy of these epochs is not reported yet.
    """
    return sum(
        (at - attempt.began) * len(attempt.segment.members)
        for attempt in state.attempts.values()
        if attempt.study == study.spec.id
    )
