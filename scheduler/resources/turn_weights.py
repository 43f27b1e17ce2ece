"""The weights of turns: how the residents of a lane share its time.

Theory of operation. Weights travel with a dispatch into the lane, and hold until the next one. So a
newcomer takes turns within a step of its neighbours, and they give way to it in the middle of an
epoch. Under a policy that orders the trials of all studies, residents that the plan holds have the
weight 0: they have turns only while no other resident is ready. Otherwise a trial's weight is that
of its study, divided by the number of its study's trials at work, so that what studies have of
devices with lanes comes near to their shares. Residents of a lower priority than another one have
the weight 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..state.core import Core
from ..state.lane_time import divide_lane, residents
from ..state.state import Attempt, EngineState


class TurnWeights:
    """Gives the residents of lanes the weights of their turns."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._state = core.state

    def enter(self, attempt: Attempt) -> tuple[tuple[str, float], ...]:
        """Begin to count the turns of an attempt, which has just got its seat.

        Returns the weights of all residents of its lane, its own included; nothing where lanes have
        one seat, and for a gang, which has whole devices.
        """
        members = attempt.segment.members
        member = members[0]
        device = self._state.devices[member.device]
        if device.device.seats == 1 or len(members) > 1:
            return ()
        lane = device.device.lane(member.slot)
        attempt.counted_at = self._core.at
        there = residents(self._state, device, lane)
        for each in there:
            each.weight = self._weight(each, there)
        divide_lane(self._state, device, lane, self._core.at)
        return tuple((each.segment.trial, each.weight) for each in there)

    def _weight(self, attempt: Attempt, there: list[Attempt]) -> float:
        if self._state.cross_study:
            return float(attempt.segment.trial not in self._state.hold)
        spec = self._state.studies[attempt.study].spec
        if any(self._state.studies[each.study].spec.priority > spec.priority for each in there):
            return 0.0
        at_work = sum(each.study == attempt.study for each in self._state.attempts.values())
        return spec.weight / at_work


def any_without_turns(state: EngineState) -> bool:
    """Whether any resident of a lane has no turns for now."""
    return any(not each.part for each in state.attempts.values())


def who_measures(there: Sequence[Attempt]) -> Attempt | None:
    """Return which of a lane's residents has all turns for now, to be measured; None: none."""
    return next((each for each in there if each.part and each.undivided), None)


def why_without_turns(state: EngineState, attempt: Attempt) -> str:
    """Why a resident has no turns for now; empty if it has."""
    member = attempt.segment.members[0]
    device = state.devices[member.device]
    if attempt.counted_at is not None:
        there = residents(state, device, device.device.lane(member.slot))
        measuring = who_measures(there)
        if measuring is attempt:
            return ""
        if measuring is not None:
            trial = state.trials[measuring.segment.trial]
            name = state.studies[trial.study].spec.name
            return f"it waits for the end of a probe of {name}/{trial.number}"
    if attempt.part:
        return ""
    if state.cross_study:
        return f"policy {state.policy} puts another trial of its lane first"
    return "a study of a higher priority has a trial in its lane"
