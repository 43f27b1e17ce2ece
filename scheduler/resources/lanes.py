"""Lanes: in which of them a trial may take a seat beside others.

Theory of operation. A lane is one trainer. The trials in its seats take turns, so their steps never
meet. Extensions say whether there is room for a trial (``Extension.too_full``).

Seats are given for delay, not for speed: a trial in a seat begins at once and slows its neighbours
down. So a lane that is in use is only taken where no lane is free, and only if the trial would have
turns there: under a policy that orders the trials of all studies, in the place of residents that
give way, or beside those of its study that it is trained with; otherwise where no resident is of a
higher priority. Trials of one study would only slow
each other down, and take the memory that a newcomer needs: a lane has one trial of each study,
unless the plan fills devices (``Plan.packed``) or they are trained together, for speed
(``Extension.company``).

What holds for a whole process must be the same for all residents, else they need two lanes: whether
kernels are deterministic, the environment, and a limit of memory, with which a trial is alone. A
trial that has failed is alone, too: if it ends its process again, nobody replays an epoch for it.
Only trials whose steps the trainer runs itself can be stopped between two steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..model.decisions import Member
from ..model.study import StudySpec
from ..model.trial import Trial
from ..state.company import Company
from ..state.lane_time import residents
from ..state.state import Attempt, EngineState

#: Trials of these contracts can be stopped between any two steps.
TAKE_TURNS = ("torch", "empty")


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


def turns_beside(state: EngineState, slot: Member) -> float:
    """The weight of the turns that a trial would have beside it in the seat ``slot``."""
    device = state.devices[slot.device]
    there = residents(state, device, device.device.lane(slot.slot))
    return sum(each.weight for each in there if each.segment.trial not in state.hold)


def no_seat(state: EngineState, company: Company, slot: Member, trial: Trial) -> str:
    """Say why ``trial`` may not take the seat ``slot`` beside the residents of its lane.

    Empty if it may, as far as there is room.
    """
    if why := _crowded(state, company, slot, trial.study):
        return why
    device = state.devices[slot.device]
    there = residents(state, device, device.device.lane(slot.slot))
    return _difference(state, trial, [state.trials[each.segment.trial] for each in there])


def seats_open_to(
    state: EngineState, company: Company, seats: Sequence[Member], study: str
) -> list[Member]:
    """Those of the ``seats`` that a trial of the study may take, if it is like the residents."""
    return [slot for slot in seats if not _crowded(state, company, slot, study)]


def _crowded(state: EngineState, company: Company, slot: Member, study: str) -> str:
    """Why no trial of the study takes the seat ``slot``, whichever it is; empty if one may."""
    device = state.devices[slot.device]
    lane = device.device.lane(slot.slot)
    there = residents(state, device, lane)
    alike = sum(each.study == study for each in there)
    fused = alike < company.most(state.studies[study])
    if fused and alike == len(there):
        return ""  # it takes nobody's turns
    if state.cross_study and not state.packed:
        return "" if all_give_way(state, slot) else f"nobody gives way in lane {lane}"
    priority = state.studies[study].spec.priority
    if any(state.studies[each.study].spec.priority > priority for each in there):
        return f"a trial of a higher priority is in lane {lane}"
    if alike and not (state.packed or fused):
        return f"a trial of its study is in lane {lane}{_unmeasured(state, company, study)}"
    return ""


def _unmeasured(state: EngineState, company: Company, study: str) -> str:
    """That nobody knows yet what trials of the study gain together; empty where it is known."""
    if company.steps_at_once(state.studies[study]) and not state.costs.company_is_known(study):
        return ", and what they would gain together is not measured yet"
    return ""


def without_gain(state: EngineState, company: Company, there: Sequence[Attempt]) -> Attempt | None:
    """The youngest of the residents of a lane that gains nothing beside others of its study."""
    if state.cross_study:
        return None  # it sits there in the place of those that give way
    by_study = Counter(each.study for each in there)
    idle = {
        study for study, n in by_study.items() if n > 1 and company.most(state.studies[study]) == 1
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
        if process_wide(own) != process_wide(spec):
            return f"trial {each.number} of {own.name} needs a process of another kind"
    return ""


def process_wide(spec: StudySpec) -> tuple[str, ...]:
    """What must be the same for all trials in one process."""
    return (spec.exactness, spec.environment)
