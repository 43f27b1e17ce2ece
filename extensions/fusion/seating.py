"""Fusing: which trials are seated beside others of their study, to be trained together with them.

Theory of operation. Trials of one structure in one lane meet at each epoch, and their steps are
computed together, where their trainer can: for small networks that is several times faster, and
changes no bit. Whether it is, their trainer finds out with copies of one trial, and says so with
each epoch. Until it has, a lane has one trial of such a study; then as many as pay
(``profiling.costs.company``), and its strategy is asked for them. What epochs together take is
measured, too: where none pays after all, trials leave again.

A strategy with rungs knows more of each trial before it promotes the next. If it promoted one for
each seat, it would train trials that later results overtake. So seats beside others get what is
certain to be trained: new configurations, and promotions that no later result can undo
(``scheduler.strategies.asha``). Of others there are as many as lanes, as without seats.

Trials that their trainer cannot train together may sit beside each other because batches are then
read once for them: two at first, since that cannot be rehearsed.
"""

from __future__ import annotations

from ..model.events import EpochReported
from ..model.study import StudySpec
from ..strategies.base import rungs_of
from .lane_time import residents
from .state import Attempt, EngineState, StudyState

#: After so many epochs in a row that were trained alone beside others of the study, its trials are
#: taken to have no structure or batch in common, or not to be faster together.
MAX_SINGLES = 32


def may_fuse(spec: StudySpec) -> bool:
    """Whether trials of the study may be trained together, as far as the study says."""
    limited = spec.memory_limit is not None or spec.epoch_timeout is not None
    fits = spec.contract == "torch" and spec.exactness == "bitwise"
    return spec.fuse == "auto" and fits and not limited


def fuses(study: StudyState) -> bool:
    """Whether trials of the study are seated together.

    They are to be trained together. Where they cannot be, their trainer may find that it pays to
    read each batch once for those in a lane.
    """
    gains = not study.unlike or study.readers > 0
    return gains and study.singles < MAX_SINGLES and may_fuse(study.spec)


def steps_together(study: StudyState) -> bool:
    """Whether trials of the study that are seated together step at once."""
    return fuses(study) and not study.unlike


def observe_company(
    state: EngineState, study: StudyState, attempt: Attempt, event: EpochReported
) -> bool:
    """An attempt of the study has ended an epoch, with the company that the report tells of.

    Returns whether another number of its trials may be in one lane from now on. What trials gain
    that read once depends on how close together they stay. So it is measured over all their epochs,
    by how many sit beside each other.
    """
    together, readers, before = event.together, event.readers, worthwhile(state, study)
    beside = _beside(state, study, attempt) if attempt.accompanied else 1
    ratio = event.seconds / event.alone if event.alone else None
    if together != 1:
        study.unlike = not together
        study.readers = max(study.readers, readers) if readers else 0
    for trials, expected in event.company:
        state.costs.rehearse_company(study.spec.id, trials, expected)
    study.together = max(study.together, together)
    if together > 1 and ratio is not None:
        state.costs.observe_company(study.spec.id, together, ratio)
    elif not together and readers and beside > 1:
        state.costs.observe_company(study.spec.id, beside, 1.0 if ratio is None else ratio)
    if (together or readers) != 1:
        study.singles = 0
    elif fuses(study):
        study.singles += beside > 1
    return worthwhile(state, study) != before


def company_ratio(state: EngineState, attempt: Attempt) -> float:
    """What an epoch of the attempt is expected to take, over what it would take alone."""
    study = state.studies[attempt.study]
    if not attempt.accompanied or not fuses(study):
        return 1.0
    return state.costs.company_ratio(attempt.study, _beside(state, study, attempt))


def planned_ratio(state: EngineState, study: StudyState, trials: int) -> float:
    """The same for ``trials`` trials of the study, if they are spread over all lanes."""
    if not fuses(study):
        return 1.0
    usable = [each.device for name, each in state.devices.items() if state.usable(name)]
    lanes = max(1, sum(each.lanes for each in usable))
    seats = max((each.seats for each in usable), default=1)
    together = min(seats, -(-trials // lanes), worthwhile(state, study))
    return state.costs.company_ratio(study.spec.id, max(1, together))


def worthwhile(state: EngineState, study: StudyState) -> int:
    """How many trials of the study pay in one lane, as far as is known; 1: one."""
    if not fuses(study) or (
        steps_together(study) and not state.costs.company_is_known(study.spec.id)
    ):
        return 1
    return state.costs.worthwhile(study.spec.id)


def _beside(state: EngineState, study: StudyState, attempt: Attempt) -> int:
    """How many attempts of the study are in the lane of one of them."""
    member = attempt.segment.members[0]
    device = state.devices[member.device]
    there = residents(state, device, device.device.lane(member.slot))
    return sum(each.study == study.spec.id for each in there)


def why_not(state: EngineState, study: StudyState) -> str:
    """Why trials of the study are not trained together, for people; empty if they may be."""
    spec = study.spec
    limit = "a limit of memory or of an epoch's time holds for each trial alone"
    known = state.costs.company_is_known(spec.id)
    unlike = "those beside each other had different structures or batches, or were no faster so"
    obstacles = (
        (spec.fuse == "off", 'the study says fuse="off"'),
        (spec.contract != "torch", "only the steps of a TorchTrainable are Penstock's"),
        (spec.exactness != "bitwise", "only bitwise studies are"),
        (not may_fuse(spec), limit),
        (study.singles >= MAX_SINGLES, unlike),
        (study.unlike, "their trainer could not (penstock story says why)"),
        (not known, "what they would gain is not measured yet"),
        (worthwhile(state, study) == 1, "too little would be gained"),
    )
    return next((why for holds, why in obstacles if holds), "")


def any_seats(state: EngineState) -> bool:
    """Whether any lane has several seats."""
    return any(device.device.seats > 1 for device in state.devices.values())


def seats_to_fill(state: EngineState, study: StudyState) -> int:
    """For how many free seats beside trials of the study more of it would pay."""
    if not fuses(study):
        return 0
    found, most = 0, worthwhile(state, study)
    for name, device in state.devices.items():
        if device.device.seats == 1 or not state.usable(name) or name in study.refused:
            continue
        for lane in device.lanes_in_use():
            there = sum(each.study == study.spec.id for each in residents(state, device, lane))
            if there:
                free = sum(not device.fences[slot] for slot in device.seats_of(lane))
                found += max(0, min(free, most - there))
    return found


def promotions_left(state: EngineState, study: StudyState) -> int:
    """For how many of the lanes that trials of the study are in none is at work that was promoted,
    or waits for a seat.
    """
    first = next(iter(rungs_of(study.spec.strategy)), None)
    if first is None:
        return 0
    lanes, promoted = set[tuple[str, int]](), 0
    for attempt in state.attempts.values():
        if attempt.study == study.spec.id:
            member = attempt.segment.members[0]
            lanes.add((member.device, state.devices[member.device].device.lane(member.slot)))
            promoted += state.trials[attempt.segment.trial].target > first
    waiting = (state.trials[name] for name in state.ready)
    promoted += sum(each.study == study.spec.id and each.target > first for each in waiting)
    return max(0, len(lanes) - promoted)
