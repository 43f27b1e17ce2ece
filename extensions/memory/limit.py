"""The number of trials that a device with several slots may hold, and learning for that number.

Theory of operation. A device with several slots first gets one trial. It gets one more if all of
these hold: a trial there has epochs to compare with (``profiling.costs.interference``); the
measured gain justifies one more trial, or is still to be measured; the trials fit into the device's
memory (``fit``); and none of them has run out of memory next to others too often. A new number of
trials is tried on one device at a time. If lanes have several seats, the same rules hold for lanes
instead of trials. A plan that fills devices (``Plan.packed``) considers only the memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...profiling.costs.interference import Interference
from ...scheduler.model.events import EpochReported
from ...scheduler.model.trial import Trial
from ...scheduler.resources import slots
from ...scheduler.resources.slots import at_once
from ...scheduler.state.core import Core
from ...scheduler.state.extensions import SlotLimit
from ...scheduler.state.fused_groups import FusedGroups
from ...scheduler.state.state import Attempt, EngineState
from .fit import Fit, fit, fit_needs
from .known import known_study, note_trial
from .lanes import group_need, lane_trials


def slot_limit(
    state: EngineState, fused_groups: FusedGroups, name: str, newcomer: Trial | None = None
) -> SlotLimit:
    """Return the number of trials that device ``name`` may hold, ``newcomer`` among them.

    If lanes have several seats, return instead the number of lanes that may be in use, including
    one for ``newcomer``.
    """
    attempts = state.attempts_on(name)
    if any(len(each.segment.members) > 1 for each in attempts):
        return SlotLimit(1, "a gang has the whole device")
    residents = [state.trials[each.segment.trial] for each in attempts]
    trials = residents if newcomer is None else [*residents, newcomer]
    of, study = "", known_study(state, "")
    for trial in trials:  # mostly of one study; this is asked with every epoch
        if trial.study != of:
            of, study = trial.study, known_study(state, trial.study)
        if (own := study.trials.get(trial.id)) is not None and own.alone:
            return SlotLimit(1, f"trial {trial.number} ran out of memory beside others")
    if state.packed:
        return _packed_limit(state, fused_groups, name, trials, newcomer)
    return _gaining_limit(state, fused_groups, name, trials, newcomer)


def _fit(
    state: EngineState,
    fused_groups: FusedGroups,
    name: str,
    trials: Sequence[Trial],
    newcomer: Trial | None,
) -> Fit:
    """Return the number of trials, or of lanes with residents, that the device's memory holds."""
    device = state.devices[name].device
    if device.seats == 1:
        return fit(state, device, trials)
    groups = [*lane_trials(state, name).values(), *([[newcomer]] if newcomer else [])]
    return fit_needs(
        state, device, [group_need(state, fused_groups, device, each) for each in groups]
    )


def _gaining_limit(
    state: EngineState,
    fused_groups: FusedGroups,
    name: str,
    trials: Sequence[Trial],
    newcomer: Trial | None,
) -> SlotLimit:
    """Return the number of trials up to which each further trial raises total speed."""
    device = state.devices[name].device
    max_slots = device.lanes
    if device.memory is not None and trials:
        memory = _fit(state, fused_groups, name, trials, newcomer)
        max_slots = min(max_slots, memory.trials)
        if max_slots < max(2, at_once(state, name) + (newcomer is not None)):
            return SlotLimit(max(1, max_slots), memory.why)
    interference = {t.study: state.sharing.of(t.study, device.kind) for t in trials}
    # A trial that only changes its lane has had epochs with one lane less.
    compared = trials if device.seats > 1 else trials[: len(state.attempts_on(name))]
    limits = [
        _measured_limit(state, name, study, each, max_slots, compared)
        for study, each in interference.items()
    ]
    return min(limits, default=SlotLimit(1, "nothing runs there"))


def _packed_limit(
    state: EngineState,
    fused_groups: FusedGroups,
    name: str,
    trials: Sequence[Trial],
    newcomer: Trial | None,
) -> SlotLimit:
    """Return the limit set by the device's memory alone; all lanes if the trials fit."""
    device = state.devices[name].device
    if device.memory is None:
        return SlotLimit(device.lanes, "its slots are filled, and its memory is not known")
    memory = _fit(state, fused_groups, name, trials, newcomer)
    fits = memory.trials >= at_once(state, name) + (newcomer is not None)
    return SlotLimit(device.lanes if fits else max(1, memory.trials), memory.why)


def _measured_limit(  # noqa: PLR0917 - one device, one study, and what is known of both
    state: EngineState,
    name: str,
    study: str,
    interference: Interference,
    max_slots: int,
    compared: Sequence[Trial],
) -> SlotLimit:
    """Return the number of trials that the measurements of one study allow on the device.

    One more trial is tried only if a trial in ``compared`` has an epoch there to compare with.
    """
    verdict = interference.verdict(max_slots)
    if verdict.exploring:
        one_less = verdict.slots - 1
        if not any(interference.has_baseline(each.id, one_less) for each in compared):
            base_words = "alone" if one_less == 1 else f"{one_less} at once"
            return SlotLimit(
                one_less, f"its trials have too few epochs {base_words} to compare with"
            )
        if at_once(state, name) < verdict.slots and _explored_elsewhere(
            state, study, name, verdict.slots
        ):
            return SlotLimit(one_less, f"{verdict.slots} at once are being tried on another device")
        reason = f"whether {verdict.slots} at once gain is being found out"
        return SlotLimit(verdict.slots, reason, exploring=True)
    if verdict.gain is None:
        return SlotLimit(verdict.slots, "its epochs take no time")
    gain = f"{verdict.gain:.2f} ± {verdict.gain * verdict.error:.2f} times the total speed"
    return SlotLimit(verdict.slots, f"{verdict.judged} at once have {gain} of {verdict.judged - 1}")


def _explored_elsewhere(state: EngineState, study: str, name: str, slots: int) -> bool:
    kind = state.devices[name].device.kind
    return any(
        at_once(state, other) >= slots
        and any(each.study == study for each in state.attempts_on(other))
        for other, record in state.devices.items()
        if other != name and record.device.lanes >= slots and record.device.kind == kind
    )


class Learner:
    """Learns speeds and memory needs from accepted epochs on devices with several slots."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._state = core.state

    def on_shared(self, trial: Trial, attempt: Attempt, event: EpochReported) -> bool:
        """Learn from an accepted epoch; return True if the number of trials allowed has changed.

        A trial's first epoch on a device is not counted, and neither are the epochs that run at
        the same time, because code and data were loaded meanwhile.
        """
        name = attempt.segment.members[0].device
        device = self._state.devices[name]
        interference = self._state.sharing.of(trial.study, device.device.kind)
        before = self._limit(name)
        if not attempt.accompanied:  # else the process has memory that other trials have left
            interference.memory = max(interference.memory, event.memory)
            self._observe_memory(trial, device.device.kind, event.memory)
        if trial.id in device.cold:
            device.cold.remove(trial.id)
            device.since = self._core.at
        elif not device.cold and device.since <= attempt.began:
            interference.observe(trial.id, at_once(self._state, name), event.seconds)
        return self._limit(name) != before

    def _limit(self, name: str) -> int:
        return slots.slot_limit(self._state, self._core.extensions, name).slots

    def _observe_memory(self, trial: Trial, kind: str, memory: int) -> None:
        """Learn the peak memory of a trial's process."""
        if not memory:
            return
        peaks = note_trial(self._state, trial).peaks
        peaks[kind] = max(memory, peaks.get(kind, 0))
        processes = known_study(self._state, trial.study).processes.get(kind)
        if processes is not None:
            processes.observe_process(trial.id, memory)
