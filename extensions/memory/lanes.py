"""The memory that the residents of a lane need together.

Theory of operation. A lane is one trainer. The trials in its seats take turns, so only one of them
computes a step at a time. So a lane needs the memory of its process without a trial, the memory
that all residents keep between steps (*persistent*), and the largest amount that a step of any
resident adds (*ephemeral*). This is the rule of Salus's lane manager, ``base + sum of persistent +
max of ephemeral <= lane`` (lanemgr.cpp in github.com/SymbioticLab/Salus). Each lane has an equal
part of its device's memory, less the reserve. If a trial's tensors are unknown but a process of its
study is known, that whole process counts as persistent. If neither is known, the trial counts with
its seat's part of the lane: a user who gives a lane four seats expects four trials there. So the
first trial of a study begins at once.

Trials of a fused group step at once (``FusedGroups.steps_at_once``): the needs of their steps add
up, and a copy of their persistent memory is added.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...profiling.devices.device import Device
from ...scheduler.model.decisions import Member
from ...scheduler.model.trial import Trial
from ...scheduler.state.fused_groups import FusedGroups
from ...scheduler.state.state import EngineState
from .fit import RESERVE, Need, fit_needs, gib, need
from .known import known_study, known_trial
from .resident import resident_bytes


class LaneNeed(NamedTuple):
    """Memory need of a lane's residents in bytes: between steps, and the most that a step adds.

    ``beside`` is the memory of the process without the residents' tensors. ``doubt`` is the amount
    by which the total may be larger.
    """

    persistent: int
    ephemeral: int
    beside: int
    doubt: int = 0

    @property
    def total(self) -> int:
        return self.persistent + self.ephemeral + self.beside


def lane_trials(state: EngineState, name: str) -> dict[int, list[Trial]]:
    """Return the residents of each lane in use of device ``name``."""
    device = state.devices[name]
    return {
        lane: [state.trials[each.segment.trial] for each in state.residents(device, lane)]
        for lane in device.lanes_in_use()
    }


def lane_too_full(state: EngineState, fused_groups: FusedGroups, slot: Member, trial: Trial) -> str:
    """Return the reason why ``trial`` does not fit in the seat ``slot``; empty if it fits."""
    device_state = state.devices[slot.device]
    device, lane = device_state.device, device_state.device.lane(slot.slot)
    residents = lane_trials(state, slot.device)
    together = [*residents[lane], trial]
    for each in (trial, *residents[lane]):
        if known_trial(state, each).alone:
            name = state.studies[each.study].spec.name
            return f"trial {each.number} of {name} ran out of memory beside others"
    if device.memory is None:
        return ""
    seat = int(lane_memory(device) / device.seats)
    required = lane_need(state, fused_groups, device, together, unknown=seat)
    assert required is not None
    if required.total + required.doubt > lane_memory(device):
        return in_words(required, len(together), device)
    needs = [
        group_need(state, fused_groups, device, each, seat)
        for n, each in residents.items()
        if n != lane
    ]
    own = Need(required.total, required.doubt)
    if fit_needs(state, device, [*needs, own]).trials <= len(needs):
        return f"the other lanes leave too little: {in_words(required, len(together), device)}"
    return ""


def left_in_lane(
    state: EngineState, fused_groups: FusedGroups, slot: Member, trial: Trial
) -> float:
    """Return the bytes that stay free in the lane if ``trial`` takes the seat ``slot``.

    Returns 0 if the device's memory is not known.
    """
    device_state = state.devices[slot.device]
    if device_state.device.memory is None:
        return 0.0
    lane = device_state.device.lane(slot.slot)
    residents = state.residents(device_state, lane)
    together = [*(state.trials[each.segment.trial] for each in residents), trial]
    required = lane_need(state, fused_groups, device_state.device, together)
    return lane_memory(device_state.device) - (required.total if required else 0)


def lane_facts(
    state: EngineState, fused_groups: FusedGroups, name: str, lane: int
) -> dict[str, Any]:
    """Return ``memory``: words for the need of a lane's residents, or None if it is not known."""
    device = state.devices[name].device
    trials = lane_trials(state, name)[lane]
    required = None if device.memory is None else lane_need(state, fused_groups, device, trials)
    return {"memory": None if required is None else in_words(required, len(trials), device)}


def lane_memory(device: Device) -> float:
    """Return the bytes that the residents of one lane may need."""
    assert device.memory is not None
    return (1.0 - RESERVE) * device.memory / device.lanes


def lane_is_too_small(
    state: EngineState, fused_groups: FusedGroups, device: Device, trials: Sequence[Trial]
) -> bool:
    """Return True if the known need of ``trials`` in one lane is more than the lane has."""
    required = None if device.memory is None else lane_need(state, fused_groups, device, trials)
    return required is not None and required.total > lane_memory(device)


def group_need(
    state: EngineState,
    fused_groups: FusedGroups,
    device: Device,
    trials: Sequence[Trial],
    unknown: int = 0,
) -> Need:
    """Return the need of a lane with ``trials`` as residents; ``unknown`` is as in ``lane_need``.

    If ``unknown`` is 0 and the need of any trial is not known, the size is 0.
    """
    if len(trials) == 1 and (alone := need(state, trials[0], device.kind)).size:
        return alone
    whole = lane_need(state, fused_groups, device, trials, unknown)
    return Need(0) if whole is None else Need(whole.total, whole.doubt)


def lane_need(
    state: EngineState,
    fused_groups: FusedGroups,
    device: Device,
    trials: Sequence[Trial],
    unknown: int = 0,
) -> LaneNeed | None:
    """Return the need of ``trials`` as residents of one lane.

    A trial whose need is not known counts with ``unknown`` bytes. If ``unknown`` is 0 and there is
    such a trial, returns None.
    """
    guess = LaneNeed(unknown, 0, 0) if unknown else None
    needs = [_alone(state, fused_groups, device.kind, trial) or guess for trial in trials]
    known_needs = [each for each in needs if each is not None]
    if len(known_needs) < len(needs):
        return None
    persistent = sum(each.persistent for each in known_needs)
    steps = dict[str, int]()  # by what a step computes: one trial, or a study's trials together
    for trial, each in zip(trials, known_needs, strict=True):
        if fused_groups.steps_at_once(state.studies[trial.study]):
            # If a trial's tensors are not known, its persistent part is all that it needs.
            own = each.persistent + each.ephemeral if each.ephemeral else 0
            steps[trial.study] = steps.get(trial.study, 0) + own
        else:
            steps[trial.id] = each.ephemeral
    ephemeral = max(steps.values())
    process = max(each.beside for each in known_needs)
    total = persistent + ephemeral + process
    doubt = max(each.doubt / each.total for each in known_needs)
    return LaneNeed(persistent, ephemeral, process, round(doubt * total))


def _alone(
    state: EngineState, fused_groups: FusedGroups, kind: str, trial: Trial
) -> LaneNeed | None:
    """Return the trial's need in a lane of its own, or None if no need is known.

    An estimate includes the study's margin. A trial that has run out of memory counts with the
    larger need assumed since then. If only a process of the study is known, all of that process
    counts as persistent.
    """
    of_trial = known_trial(state, trial)
    processes = known_study(state, trial.study).processes.get(kind)
    tensors = of_trial.tensors
    if tensors is None and processes is not None and fused_groups.gains(state.studies[trial.study]):
        tensors = processes.largest  # trials of a fused group are about equally large
    if processes is None or tensors is None or not tensors.peak:
        whole = need(state, trial, kind)
        return LaneNeed(whole.size, 0, 0, whole.doubt) if whole.size else None
    factor = 1.0 + (processes.margin if of_trial.measured is None else 0.0)
    doubt = 0.0
    if processes.base:  # on a CPU
        process = resident_bytes(processes.base, 0.0, processes.slope)
        own = round(processes.slope * factor * tensors.peak)
        step = round(processes.slope * factor * tensors.ephemeral)
        doubt = processes.doubt
    else:
        own = round(factor * max(tensors.reserved, tensors.peak))
        process = max(0, of_trial.peaks.get(kind, 0) - own)
        step = own - round(factor * tensors.persistent)
    more = max(0, of_trial.floors.get(kind, 0) - own - process)
    return LaneNeed(own - step, step + more, process, round(doubt * (own + more + process)))


def in_words(found: LaneNeed, n: int, device: Device) -> str:
    """Return words for the lane rule: the need of ``n`` residents, and the lane's memory."""
    usable = gib(int(lane_memory(device)))
    parts = f"{n} persistent {gib(found.persistent)} + 1 ephemeral {gib(found.ephemeral)}"
    return f"{parts} + process {gib(found.beside)} of {usable}"
