"""Lanes: in which of them a trial may take a seat, and what memory their residents need together.

Theory of operation. A lane is one trainer. The trials in its seats take turns, so their steps never
meet: besides what its process has without a trial, a lane needs what all residents keep between
steps (*persistent*), and what a step of the greediest one adds (*ephemeral*). This is the rule of
Salus's lane manager, ``base + sum of persistent + max of ephemeral <= lane`` (lanemgr.cpp in
github.com/SymbioticLab/Salus). A lane has an equal part of its device's memory, less the reserve.
Where a trial's tensors are not known but processes of its study are, such a process counts as
persistent. A trial of which neither is known counts with its seat's part of the lane: who gives a
lane four seats expects four trials there. So the first trial of a study begins at once.

Trials of a study that are trained together step at once: what their steps need adds up, with a copy
of what they keep (``tasks.fusion``).

Seats are given for delay, not for speed: a trial in a seat begins at once and slows its neighbours
down. So a lane that is in use is only taken where no lane is free, and only if the trial would have
turns there: under a policy that orders the trials of all studies, in the place of residents that
give way, or beside those of its study that it is trained with; otherwise where no resident is of a
higher priority. Trials of one study would only slow
each other down, and take the memory that a newcomer needs: a lane has one trial of each study,
unless the plan fills devices (``Plan.packed``) or they are trained together, for speed
(``scheduler.state.fusing``).

What holds for a whole process must be the same for all residents, else they need two lanes: whether
kernels are deterministic, the environment, and a limit of memory, with which a trial is alone. A
trial that has failed is alone, too: if it ends its process again, nobody replays an epoch for it.
Only trials whose steps the trainer runs itself can be stopped between two steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ...profiling.devices.device import Device
from ...profiling.memory.resident import resident_bytes
from ..model.decisions import Member
from ..model.study import StudySpec
from ..model.trial import Trial
from ..state.fusing import fuses, steps_together, worthwhile
from ..state.lane_time import residents
from ..state.state import Attempt, EngineState
from .memory_fit import RESERVE, Need, fit_needs, gib, need

#: Trials of these contracts can be stopped between any two steps.
TAKE_TURNS = ("torch", "empty")


class LaneNeed(NamedTuple):
    """What the residents of a lane need (bytes): between steps, and what a step adds at most.

    ``beside``: what the process has beside their tensors. ``doubt``: how much more all of it may
    be.
    """

    persistent: int
    ephemeral: int
    beside: int
    doubt: int = 0

    @property
    def total(self) -> int:
        return self.persistent + self.ephemeral + self.beside


class SeatVerdict(NamedTuple):
    """Whether a trial may take a seat in a lane that is in use, and why, or why not."""

    accepted: bool
    why: str


def free_seats(state: EngineState) -> list[Member]:
    """One free seat of each lane in use that may take another trial."""
    found = list[Member]()
    for name, device in state.devices.items():
        if device.device.seats == 1 or all(device.fences) or not state.usable(name):
            continue
        for lane in device.lanes_in_use():
            free = (slot for slot in device.seats_of(lane) if not device.fences[slot])
            found += [Member(name, slot) for slot in free][:1]
    return found


def in_use(state: EngineState, slot: Member) -> bool:
    """Whether ``slot`` is a seat beside residents of its lane."""
    device = state.devices[slot.device]
    return device.device.seats > 1 and any(
        device.fences[each] for each in device.seats_of(device.device.lane(slot.slot))
    )


def seats_beside(state: EngineState) -> int:
    """How many attempts have a seat in the lane of an older one."""
    return sum(
        max(0, len(residents(state, device, lane)) - 1)
        for device in state.devices.values()
        if device.device.seats > 1
        for lane in device.lanes_in_use()
    )


def lane_trials(state: EngineState, name: str) -> dict[int, list[Trial]]:
    """The residents of each lane of a device that is in use."""
    device = state.devices[name]
    return {
        lane: [state.trials[each.segment.trial] for each in residents(state, device, lane)]
        for lane in device.lanes_in_use()
    }


def all_give_way(state: EngineState, slot: Member) -> bool:
    """Whether the standing plan holds all residents of the lane."""
    device = state.devices[slot.device]
    found = residents(state, device, device.device.lane(slot.slot))
    return all(each.segment.trial in state.hold for each in found)


def lanes_that_give_way(state: EngineState) -> int:
    """How many lanes have residents that all give way."""
    return sum(
        all_give_way(state, Member(name, device.seats_of(lane)[0]))
        for name, device in state.devices.items()
        if device.device.seats > 1 and state.usable(name)
        for lane in device.lanes_in_use()
    )


def crowding(state: EngineState, slot: Member, trial: Trial) -> tuple[float, float]:
    """How little ``trial`` would have in the seat ``slot``: the weight of its neighbours' turns,
    and then the memory that stays free in the lane (bytes).
    """
    device = state.devices[slot.device]
    lane = device.device.lane(slot.slot)
    there = residents(state, device, lane)
    weight = sum(each.weight for each in there if each.segment.trial not in state.hold)
    if device.device.memory is None:
        return weight, 0.0
    together = [*(state.trials[each.segment.trial] for each in there), trial]
    found = lane_need(state, device.device, together)
    return weight, lane_memory(device.device) - (found.total if found else 0)


def seat_verdict(state: EngineState, slot: Member, trial: Trial) -> SeatVerdict:
    """Whether ``trial`` may take the seat ``slot`` beside the residents of its lane."""
    device = state.devices[slot.device]
    lane = device.device.lane(slot.slot)
    if why := _crowded(state, slot, trial.study):
        return SeatVerdict(False, why)
    there = [state.trials[each.segment.trial] for each in residents(state, device, lane)]
    if differs := _difference(state, trial, there):
        return SeatVerdict(False, differs)
    return _memory_verdict(state, slot.device, lane, trial)


def seats_open_to(state: EngineState, seats: Sequence[Member], study: str) -> list[Member]:
    """Those of the ``seats`` that a trial of the study may take, if it is like the residents."""
    return [slot for slot in seats if not _crowded(state, slot, study)]


def _crowded(state: EngineState, slot: Member, study: str) -> str:
    """Why no trial of the study takes the seat ``slot``, whichever it is; empty if one may."""
    device = state.devices[slot.device]
    lane = device.device.lane(slot.slot)
    there = residents(state, device, lane)
    alike = sum(each.study == study for each in there)
    fused = alike < worthwhile(state, state.studies[study])
    if fused and alike == len(there):
        return ""  # it takes nobody's turns
    if state.cross_study and not state.packed:
        return "" if all_give_way(state, slot) else f"nobody gives way in lane {lane}"
    priority = state.studies[study].spec.priority
    if any(state.studies[each.study].spec.priority > priority for each in there):
        return f"a trial of a higher priority is in lane {lane}"
    if alike and not (state.packed or fused):
        return f"a trial of its study is in lane {lane}{_unmeasured(state, study)}"
    return ""


def _unmeasured(state: EngineState, study: str) -> str:
    """That nobody knows yet what trials of the study gain together; empty where it is known."""
    if steps_together(state.studies[study]) and not state.costs.company_is_known(study):
        return ", and what they would gain together is not measured yet"
    return ""


def without_gain(state: EngineState, there: Sequence[Attempt]) -> Attempt | None:
    """The youngest of the residents of a lane that gains nothing beside others of its study."""
    if state.cross_study:
        return None  # it sits there in the place of those that give way
    by_study = Counter(each.study for each in there)
    idle = {
        study
        for study, n in by_study.items()
        if n > 1 and worthwhile(state, state.studies[study]) == 1
    }
    return next((each for each in reversed(there) if each.study in idle), None)


def _difference(state: EngineState, trial: Trial, there: Sequence[Trial]) -> str:
    """Why ``trial`` cannot be in one process with the trials ``there``; empty if it can."""
    spec = state.studies[trial.study].spec
    for each in (trial, *there):
        own = state.studies[each.study].spec
        if own.contract not in TAKE_TURNS:
            return f"trial {each.number} of {own.name} cannot be stopped between two steps"
        if own.memory_limit is not None:
            return f"trial {each.number} of {own.name} has a memory limit"
        if each.failures:
            return f"trial {each.number} of {own.name} has failed, and is tried again alone"
        if each.alone:
            return f"trial {each.number} of {own.name} ran out of memory beside others"
        if process_wide(own) != process_wide(spec):
            return f"trial {each.number} of {own.name} needs a process of another kind"
    return ""


def process_wide(spec: StudySpec) -> tuple[str, ...]:
    """What must be the same for all trials in one process."""
    return (spec.exactness, spec.environment)


def _memory_verdict(state: EngineState, name: str, lane: int, trial: Trial) -> SeatVerdict:
    device = state.devices[name].device
    if device.memory is None:
        return SeatVerdict(True, "the memory of its device is not known")
    there = lane_trials(state, name)
    together = [*there[lane], trial]
    seat = int(lane_memory(device) / device.seats)
    found = lane_need(state, device, together, unknown=seat)
    assert found is not None
    why = in_words(found, len(together), device)
    if found.total + found.doubt > lane_memory(device):
        return SeatVerdict(False, why)
    needs = [group_need(state, device, each, seat) for n, each in there.items() if n != lane]
    own = Need(found.total, found.doubt)
    if fit_needs(state, device, [*needs, own]).trials <= len(needs):
        return SeatVerdict(False, f"the other lanes leave too little: {why}")
    return SeatVerdict(True, why)


def lane_memory(device: Device) -> float:
    """What the residents of one lane may need (bytes)."""
    assert device.memory is not None
    return (1.0 - RESERVE) * device.memory / device.lanes


def lane_is_too_small(state: EngineState, device: Device, trials: Sequence[Trial]) -> bool:
    """Whether these residents are known to need more than their lane has."""
    found = None if device.memory is None else lane_need(state, device, trials)
    return found is not None and found.total > lane_memory(device)


def group_need(
    state: EngineState, device: Device, trials: Sequence[Trial], unknown: int = 0
) -> Need:
    """What a lane with these residents needs; ``unknown`` as for ``lane_need``.

    Without it the size is 0 if something of one is not known.
    """
    if len(trials) == 1 and (alone := need(state, trials[0], device.kind)).size:
        return alone
    found = lane_need(state, device, trials, unknown)
    return Need(0) if found is None else Need(found.total, found.doubt)


def lane_need(
    state: EngineState, device: Device, trials: Sequence[Trial], unknown: int = 0
) -> LaneNeed | None:
    """What these trials need as residents of one lane.

    A trial of which nothing is known counts with ``unknown`` bytes. If that is 0, there is no
    answer.
    """
    guess = LaneNeed(unknown, 0, 0) if unknown else None
    found = [_alone(state, device.kind, trial) or guess for trial in trials]
    known = [each for each in found if each is not None]
    if len(known) < len(found):
        return None
    persistent = sum(each.persistent for each in known)
    steps = dict[str, int]()  # by what is computed at a time: a trial, or those of a study together
    for trial, each in zip(trials, known, strict=True):
        if steps_together(state.studies[trial.study]):
            # What is not known of a trial's tensors is guessed to be all it needs.
            own = each.persistent + each.ephemeral if each.ephemeral else 0
            steps[trial.study] = steps.get(trial.study, 0) + own
        else:
            steps[trial.id] = each.ephemeral
    ephemeral = max(steps.values())
    beside = max(each.beside for each in known)
    total = persistent + ephemeral + beside
    doubt = max(each.doubt / each.total for each in known)
    return LaneNeed(persistent, ephemeral, beside, round(doubt * total))


def _alone(state: EngineState, kind: str, trial: Trial) -> LaneNeed | None:
    """What the trial needs in a lane of its own.

    What was estimated counts with its study's margin. A trial that has run out of memory counts
    with as much more as it is taken to need since. Where only a process of its study is known, all
    of that is taken to be persistent.
    """
    known = state.studies[trial.study].processes.get(kind)
    tensors = trial.measured or trial.estimate
    if tensors is None and known is not None and fuses(state.studies[trial.study]):
        tensors = known.largest  # most are as large as others that they are trained with
    if known is None or tensors is None or not tensors.peak:
        whole = need(state, trial, kind)
        return LaneNeed(whole.size, 0, 0, whole.doubt) if whole.size else None
    factor = 1.0 + (known.margin if trial.measured is None else 0.0)
    doubt = 0.0
    if known.base:  # on a CPU
        beside = resident_bytes(known.base, 0.0, known.slope)
        own = round(known.slope * factor * tensors.peak)
        step = round(known.slope * factor * tensors.ephemeral)
        doubt = known.doubt
    else:
        own = round(factor * max(tensors.reserved, tensors.peak))
        beside = max(0, trial.peaks.get(kind, 0) - own)
        step = own - round(factor * tensors.persistent)
    more = max(0, trial.floors.get(kind, 0) - own - beside)
    return LaneNeed(own - step, step + more, beside, round(doubt * (own + more + beside)))


def in_words(found: LaneNeed, n: int, device: Device) -> str:
    """The lane rule for people: what ``n`` residents need of their lane."""
    usable = gib(int(lane_memory(device)))
    parts = f"{n} persistent {gib(found.persistent)} + 1 ephemeral {gib(found.ephemeral)}"
    return f"{parts} + process {gib(found.beside)} of {usable}"
