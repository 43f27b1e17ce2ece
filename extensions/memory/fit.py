"""Room on a device: the memory that each trial needs there, and the trials that fit together.

Theory of operation. A trial's need on a kind of device is the most memory that its process has had
there. Before the trial has run, its need is the estimate (``processes``). Without an estimate, the
need follows from the counts of the trial's model (``EngineState.counted``). Without these, it is
the most that any trial of the study has had or is expected to need. So the first trials of a
study, whose needs are unknown, share a device with no other trial. Running out of memory raises a
trial's need (``shortages``). Trials fit together if the sum of their needs, plus the largest doubt
among them, leaves the reserve free.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...profiling.devices.device import Device
from ...scheduler.model.trial import Trial
from ...scheduler.state.state import EngineState
from .known import known_of, known_study, known_trial

#: The part of a device's memory that is left free. Measured pairs of jobs needed up to 15 % more
#: than the sum of their needs alone (Lucid's table of 1,388 pairs, 5th to 95th percentile).
RESERVE = 0.15


class Need(NamedTuple):
    """Memory need of a trial in bytes: the expected ``size`` (0: unknown), and its ``doubt``."""

    size: int
    doubt: int = 0


class Fit(NamedTuple):
    """The number of trials that a device's memory holds, and the reason for that number."""

    trials: int
    why: str


def need(state: EngineState, trial: Trial, kind: str) -> Need:
    """Return the trial's memory need on a device of ``kind``."""
    expected = _expected(state, trial, kind)
    floor = known_trial(state, trial).floors.get(kind, 0)
    return Need(floor) if floor > expected.size else expected


def _expected(state: EngineState, trial: Trial, kind: str) -> Need:
    own = known_trial(state, trial)
    if own.peaks.get(kind):
        return Need(own.peaks[kind])
    highest = state.sharing.of(trial.study, kind).memory
    processes = known_study(state, trial.study).processes.get(kind)
    if processes is None:
        return Need(highest)
    tensors = own.tensors
    if tensors is None or not tensors.peak:
        counted_trial = state.counted(trial)
        tensors = None if counted_trial is None else counted_trial.tensors
    expected = tensors and processes.expected(tensors, estimated=own.measured is None)
    if not expected:
        return Need(max(highest, processes.most))
    return Need(expected, round(expected * processes.doubt))


def _together(needs: Sequence[Need]) -> int:
    """Return the bytes that trials need together: all estimates, and the largest uncertainty."""
    return sum(each.size for each in needs) + max((each.doubt for each in needs), default=0)


def fit(state: EngineState, device: Device, trials: Sequence[Trial]) -> Fit:
    """Return the number of ``trials``, in order, that the device's memory holds; at least 1.

    If all fit, the number includes as many more trials of the smallest known size as fit. The
    number is 0 if the need of one of ``trials`` is not known.
    """
    return fit_needs(state, device, [need(state, trial, device.kind) for trial in trials])


def fit_needs(state: EngineState, device: Device, needs: Sequence[Need]) -> Fit:
    """Return the same as ``fit``, given the needs of trials or of lanes."""
    if not all(each.size for each in needs):
        return Fit(0, "what memory its trials need is not known yet")
    together, usable = _together(needs), _usable(device)
    why = f"its trials need {gib(together)} of {gib(device.memory or 0)}"
    if together > usable:
        first = (n for n in range(len(needs)) if _together(needs[: n + 1]) > usable)
        return Fit(max(1, next(first)), why)
    more = (usable - together) // _least(state, device.kind, needs) if needs else device.slots
    return Fit(len(needs) + int(more), why)


def _least(state: EngineState, kind: str, needs: Sequence[Need]) -> int:
    """Return the smallest need (bytes) that a trial which may join can be expected to have."""
    processes = (study.processes.get(kind) for study in known_of(state).studies.values())
    expected = [each.least for each in processes if each is not None and each.least]
    return min([*(each.size for each in needs), *expected])


def left(state: EngineState, name: str, trial: Trial) -> float:
    """Return the bytes, besides the reserve, that stay free on a device if ``trial`` joins it.

    Returns 0 if the device's memory is not known.
    """
    device = state.devices[name].device
    if device.memory is None:
        return 0.0
    residents = [state.trials[each.segment.trial] for each in state.attempts_on(name)]
    return _usable(device) - _together([need(state, t, device.kind) for t in (*residents, trial)])


def is_too_small(state: EngineState, name: str, trial: Trial) -> bool:
    """Return True if the trial needs more memory than this device has and there is a larger one."""
    device = state.devices[name].device
    floor = known_trial(state, trial).floors.get(device.kind, 0)
    if device.memory is None or floor <= device.memory:
        return False
    return has_larger(state, trial, device)


def has_larger(state: EngineState, trial: Trial, than: Device) -> bool:
    """Return True if there is a device of the same kind with more memory that the trial can use."""
    assert than.memory is not None
    refused_devices = state.studies[trial.study].refused
    return any(
        each.device.kind == than.kind
        and (each.device.memory or 0) > than.memory
        and not state.cordoned(name)
        and name not in refused_devices
        for name, each in state.devices.items()
    )


def _usable(device: Device) -> float:
    assert device.memory is not None
    return (1.0 - RESERVE) * device.memory


def gib(size: int) -> str:
    """Return ``size`` bytes as words in GiB."""
    return f"{size / 2**30:.1f} GiB"
