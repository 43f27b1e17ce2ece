"""Gives several trials seats in one lane, and makes them leave.

Theory of operation. A lane is one trainer. The trials in its seats take turns, so their steps never
run at the same time. Extensions decide if there is room for a trial (``Extension.too_full``).

Seats reduce delay, not run time: a trial in a seat begins at once and slows its neighbours down. So
a trial joins a lane in use only if no lane is free, and only if the trial would have turns there.
Under a policy that orders the trials of all studies, a trial would have turns if the residents give
way, or if it gains by sharing the lane with trials of its study. Under other policies, it would
have turns if no resident has a higher priority. Trials of one study would only slow each other
down, and take the memory that a newcomer needs. So a lane has one trial of each study, unless the
plan fills devices (``Plan.packed``) or the trials gain by sharing (``Extension.fused_groups``).

Settings of the whole process must be the same for all residents of a lane: deterministic kernels or
not, and the environment. A trial with a memory limit gets a lane alone. So does a trial that has
failed: if it ends its process again, no other trial has to replay an epoch. Only trials whose steps
the trainer runs itself can take turns, since only they can be stopped between two steps.

If too many lanes are in use, all residents of the newest lane leave at the end of their epoch. One
of several residents leaves a lane when another lane is free, when the residents need more memory
than the lane has, or when trials of one study gain nothing by sharing the lane.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from functools import cache
from typing import Any

from ...scheduler.model.decisions import Member
from ...scheduler.model.study import StudySpec
from ...scheduler.model.trial import Trial
from ...scheduler.resources.packing import leave_if_it_can
from ...scheduler.resources.slots import at_once, slot_limit
from ...scheduler.state.core import Core
from ...scheduler.state.seats import Seats
from ...scheduler.state.state import Attempt, DeviceState
from .name import NAME
from .weights import TurnWeights, weight_of, who_measures, why_without_turns

#: Contracts whose trials can be stopped between any two steps.
TAKE_TURNS = ("torch", "empty")


class LaneSeats(Seats):
    """Seats of trials in shared lanes, and the weights of their turns."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._state = core.state
        self._extensions = core.extensions
        self._weights = TurnWeights(core)

    def free(self) -> list[Member]:
        free_seats = list[Member]()
        for name, device in self._state.devices.items():
            if device.device.seats == 1 or all(device.fences) or not self._state.usable(name):
                continue
            for lane in device.lanes_in_use():
                free = (slot for slot in device.seats_of(lane) if not device.fences[slot])
                free_seats += [Member(name, slot) for slot in free][:1]
        return free_seats

    def open_to(self, seats: Sequence[Member], free: int) -> Callable[[Trial], Sequence[Member]]:
        seatable, offered = self._seatable(free), tuple(seats)

        @cache  # by study: most of the waiting trials are of few studies
        def open_to(study: str) -> Sequence[Member]:
            return [slot for slot in offered if not self._crowded(slot, study)]

        return lambda trial: open_to(trial.study) if trial.id in seatable else ()

    def _seatable(self, free: int) -> Set[str]:
        """Return the waiting trials that may take a seat in a lane with others.

        If the policy orders the trials of all studies, these are the first trials, one for each of
        the ``free`` slots and each lane whose residents all give way, and all trials that gain by
        sharing a lane with others of their study.
        """
        ready, state = self._core.ready(), self._state
        if not state.cross_study or state.packed:
            return frozenset(ready)
        first = ready[: free + self._lanes_that_give_way()] if state.hold else []
        gains = self._extensions.fused_groups.gains
        gaining = (name for name in ready if gains(state.studies[state.trials[name].study]))
        return frozenset((*first, *gaining))

    def no_seat(self, trial: Trial, slot: Member) -> str:
        """Return the reason why a trial may not take a free slot in a lane with residents.

        Empty if the trial may, or if the lane has no residents. Memory is not considered.
        """
        if not self._state.is_beside(slot):
            return ""
        if why := self._crowded(slot, trial.study):
            return why
        residents = self._residents(slot)
        return self._difference(trial, [self._state.trials[a.segment.trial] for a in residents])

    def turns_beside(self, trial: Trial, slot: Member) -> float:
        """Return the total weight of the residents in a free slot's lane that do not give way."""
        if not self._state.is_beside(slot):
            return 0.0
        residents, hold = self._residents(slot), self._state.hold
        return sum(weight_of(self._state, a) for a in residents if a.segment.trial not in hold)

    def entered(self, attempt: Attempt) -> Mapping[str, Any]:
        weights = self._weights.enter(attempt)
        if len(weights) > 1:  # from now on these studies need the extension
            for name, _ in weights:
                study = self._state.studies[self._state.trials[name].study]
                if NAME not in study.needs:
                    study.needs.append(NAME)
        alone = {"undivided": True} if attempt.undivided else {}
        return {NAME: {"weights": dict(weights), **alone}}

    def left(self, device: DeviceState, lane: int) -> None:
        self._weights.leave(device, lane)

    def use_lanes(self, free: Sequence[Member]) -> None:
        """Make residents leave the fullest lanes for free lanes."""
        shared = [
            residents
            for device in self._state.devices.values()
            if device.device.seats > 1
            for lane in device.lanes_in_use()
            if len(residents := self._state.residents(device, lane)) > 1
        ]
        shared.sort(key=len, reverse=True)
        lanes = [
            slot
            for slot in free
            if self._state.is_free(slot.device) or self._state.devices[slot.device].device.seats > 1
        ]
        for residents, slot in zip(shared, lanes, strict=False):
            leaving = any(each.leaves for each in residents)
            refused_devices = self._state.studies[residents[-1].study].refused
            if not leaving and slot.device not in refused_devices:
                leave_if_it_can(self._core, residents[-1])

    def thin_out(self, device: str) -> None:
        """Make residents leave if too many lanes are in use, or if a lane has too little room."""
        device_state = self._state.devices[device]
        lanes = {
            lane: self._state.residents(device_state, lane) for lane in device_state.lanes_in_use()
        }
        limit = slot_limit(self._state, self._extensions, device).slots
        excess = at_once(self._state, device) - limit
        newest = sorted(lanes, key=lambda lane: lanes[lane][0].segment.fence)
        for lane in newest[max(1, len(newest) - excess) :] if excess > 0 else ():
            for attempt in lanes[lane]:
                leave_if_it_can(self._core, attempt)
        for residents in lanes.values():
            trials = [self._state.trials[each.segment.trial] for each in residents]
            if len(residents) > 1 and self._extensions.overfull(device_state.device, trials):
                leave_if_it_can(self._core, residents[-1])
            elif (gains_nothing := self._without_gain(residents)) is not None:
                leave_if_it_can(self._core, gains_nothing)

    def why_idle(self, attempt: Attempt) -> str:
        return why_without_turns(self._state, attempt)

    def facts(self, device: str) -> list[Mapping[str, Any]]:
        """Return the facts of each lane in use: those of extensions, and the residents' turns.

        ``part`` is a resident's share of the lane's time; ``why`` is the reason if that is 0.
        """
        state, device_state = self._state, self._state.devices[device]
        facts = list[Mapping[str, Any]]()
        for lane in device_state.lanes_in_use():
            residents = state.residents(device_state, lane)
            trials = [state.trials[each.segment.trial] for each in residents]
            measuring = who_measures(residents)
            facts.append(
                {
                    "lane": lane,
                    **self._extensions.of_lane(device, lane),
                    "residents": [
                        {
                            "study": state.studies[trial.study].spec.name,
                            "trial": trial.number,
                            "part": each.part if measuring is None else float(each is measuring),
                            "why": why_without_turns(state, each),
                        }
                        for each, trial in zip(residents, trials, strict=True)
                    ],
                }
            )
        return facts

    def _residents(self, slot: Member) -> list[Attempt]:
        device = self._state.devices[slot.device]
        return self._state.residents(device, device.device.lane(slot.slot))

    def _all_give_way(self, slot: Member) -> bool:
        """Return True if the current plan makes all residents of the lane give way."""
        return all(each.segment.trial in self._state.hold for each in self._residents(slot))

    def _lanes_that_give_way(self) -> int:
        return sum(
            self._all_give_way(Member(name, device.seats_of(lane)[0]))
            for name, device in self._state.devices.items()
            if device.device.seats > 1 and self._state.usable(name)
            for lane in device.lanes_in_use()
        )

    def _crowded(self, slot: Member, study: str) -> str:
        """Return the reason why no trial of the study may take the seat; empty if one may."""
        state, fused_groups = self._state, self._extensions.fused_groups
        lane = state.devices[slot.device].device.lane(slot.slot)
        residents = self._residents(slot)
        alike = sum(each.study == study for each in residents)
        faster = alike < fused_groups.most(state.studies[study])
        if faster and alike == len(residents):
            return ""  # a trial in this seat takes no other study's turns
        if state.cross_study and not state.packed:
            return "" if self._all_give_way(slot) else f"nobody gives way in lane {lane}"
        priority = state.studies[study].spec.priority
        if any(state.studies[each.study].spec.priority > priority for each in residents):
            return f"a trial of a higher priority is in lane {lane}"
        if alike and not (state.packed or faster):
            return f"a trial of its study is in lane {lane}{self._unmeasured(study)}"
        return ""

    def _unmeasured(self, study: str) -> str:
        """Return words to append if the study's gain from sharing is not measured yet, or ""."""
        is_measured = self._state.costs.group_slowdown_is_known(study)
        if (
            self._extensions.fused_groups.steps_at_once(self._state.studies[study])
            and not is_measured
        ):
            return ", and what they would gain together is not measured yet"
        return ""

    def _without_gain(self, residents: Sequence[Attempt]) -> Attempt | None:
        """Return the youngest resident that gains nothing by sharing with its study, or None."""
        if self._state.cross_study:
            return None  # a resident is there because the others give way, not to gain
        by_study = Counter(each.study for each in residents)
        most = self._extensions.fused_groups.most
        idle = {
            study
            for study, n in by_study.items()
            if n > 1 and most(self._state.studies[study]) == 1
        }
        return next((each for each in reversed(residents) if each.study in idle), None)

    def _difference(self, trial: Trial, residents: Sequence[Trial]) -> str:
        """Return the reason why a trial cannot share the residents' process; empty if it can."""
        spec = self._state.studies[trial.study].spec
        for each in (trial, *residents):
            own = self._state.studies[each.study].spec
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
    """Return the settings that must be the same for all trials in one process."""
    return (spec.exactness, spec.environment)
