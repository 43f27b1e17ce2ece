"""The weights of turns, by which the residents of a lane share its time.

Theory of operation. Each dispatch into a lane carries weights, which hold until the next dispatch.
So a newcomer has its first turn within a step of its neighbours, which give way in the middle of
their epochs. Under a policy that orders the trials of all studies, residents that the plan makes
give way have the weight 0: they have turns only while no other resident is ready. Under other
policies a trial's weight is its study's weight divided by the number of the study's trials at work,
so that the time of studies on devices with lanes comes near to their shares. Residents with a lower
priority than another resident have the weight 0.

The resulting parts of a lane's time are kept with the attempts (``scheduler.state.slot_time``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...scheduler.state.core import Core
from ...scheduler.state.slot_time import settle
from ...scheduler.state.state import Attempt, DeviceState, EngineState
from .name import NAME


@dataclass(slots=True)
class Turns:
    """The weights of residents' turns, by fence."""

    weights: dict[int, float] = field(default_factory=dict)


_NOTHING = Turns()


def weight_of(state: EngineState, attempt: Attempt) -> float:
    """Return the weight of a resident's turns."""
    turns: Turns = state.ext.get(NAME, _NOTHING)
    return turns.weights.get(attempt.segment.fence, 1.0)


class TurnWeights:
    """Sets the weights of the turns of lanes' residents."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._state = core.state

    def enter(self, attempt: Attempt) -> tuple[tuple[str, float], ...]:
        """Start to count the turns of an attempt that has just been given its seat.

        Returns the weights of all residents of the lane, the attempt's own included.
        """
        member = attempt.segment.members[0]
        device = self._state.devices[member.device]
        lane = device.device.lane(member.slot)
        attempt.counted_at = self._core.at
        residents = self._state.residents(device, lane)
        turns: Turns = self._state.ext.setdefault(NAME, Turns())
        weights = [self._weight(each, residents) for each in residents]
        turns.weights.update(
            (each.segment.fence, weight) for each, weight in zip(residents, weights, strict=True)
        )
        self.divide(device, lane)
        return tuple(
            (each.segment.trial, weight) for each, weight in zip(residents, weights, strict=True)
        )

    def leave(self, device: DeviceState, lane: int) -> None:
        """Divide the time of a lane that a resident has left; drop weights of ended attempts."""
        self.divide(device, lane)
        turns: Turns = self._state.ext.get(NAME, _NOTHING)
        ended_fences = turns.weights.keys() - self._state.attempts.keys()
        for fence in ended_fences:
            del turns.weights[fence]

    def divide(self, device: DeviceState, lane: int) -> None:
        """Set each resident's part of the lane's time from now on, by the turns' weights."""
        state, at = self._state, self._core.at
        residents = [each for each in state.residents(device, lane) if each.counted_at is not None]
        weights = [weight_of(state, each) for each in residents]
        total = sum(weights)
        for each, weight in zip(residents, weights, strict=True):
            settle(state, each, at)
            each.part = weight / total if total else 1.0 / len(residents)
            each.accompanied = each.accompanied or len(residents) > 1

    def _weight(self, attempt: Attempt, residents: Sequence[Attempt]) -> float:
        if self._state.cross_study:
            return float(attempt.segment.trial not in self._state.hold)
        spec = self._state.studies[attempt.study].spec
        if any(self._state.studies[each.study].spec.priority > spec.priority for each in residents):
            return 0.0
        at_work = sum(each.study == attempt.study for each in self._state.attempts.values())
        return spec.weight / at_work


def who_measures(there: Sequence[Attempt]) -> Attempt | None:
    """Return the resident that has all turns of the lane for a measurement, or None."""
    return next((each for each in there if each.part and each.undivided), None)


def why_without_turns(state: EngineState, attempt: Attempt) -> str:
    """Return the reason why a resident has no turns for now; empty if it has turns."""
    member = attempt.segment.members[0]
    device = state.devices[member.device]
    if attempt.counted_at is not None:
        residents = state.residents(device, device.device.lane(member.slot))
        measuring = who_measures(residents)
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
