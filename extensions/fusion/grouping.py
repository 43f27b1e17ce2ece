"""Chooses the trials of a study that share a lane, so that they train as a fused group.

Theory of operation. Trials of one structure in one lane meet at each epoch, and their trainer fuses
their steps if it can: for small networks that is several times faster, and changes no bit. The
trainer measures the gain with copies of one trial, and reports the gain with each epoch. Until
then, a lane has one trial of such a study. After that it has as many trials as are worthwhile
(``profiling.costs.group_slowdown``), and the study's strategy is asked for them. The time of epochs
of fused groups is measured, too: if groups gain nothing after all, trials leave again.

A strategy with rungs learns from each trial before it promotes the next. If it promoted one for
each seat, it would train trials that later results overtake. So the additional seats of a lane get
only trials that are certain to be trained: new configurations, and promotions that no later result
can undo (``scheduler.strategies.asha``). There are as many other promotions as lanes, which is
their number without seats.

A fused group slows each trial, including the best one. So a strategy that promotes trials is not
asked to fill seats before one trial has reached the highest rung that any trial will reach.

Trials that their trainer cannot fuse may still share a lane, because the trainer then reads each
batch once for all of them. At first two trials share a lane, since this gain cannot be probed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...scheduler.model.events import EpochReported
from ...scheduler.model.study import StudySpec
from ...scheduler.state.fused_groups import FusedGroups
from ...scheduler.state.state import Attempt, EngineState, StudyState
from ...scheduler.strategies.asha import Asha
from ...scheduler.strategies.base import rungs_of
from .name import NAME

#: Number of epochs in a row, trained alone in a shared lane, after which a study's trials are taken
#: to have no structure or batch in common, or to be no faster in a fused group.
MAX_SINGLES = 32


@dataclass(slots=True)
class KnownStudy:
    """Facts about a study's trials that shared a lane."""

    #: The largest fused group of the study's trials so far.
    together: int = 1
    #: True if a trainer has reported that the study's trials cannot be fused.
    unlike: bool = False
    #: The most trials of the study for which batches were read once; 0 if that saves no time.
    readers: int = 0
    #: Number of epochs in a row that were trained alone in a lane shared with others of the study.
    singles: int = 0


@dataclass(slots=True)
class Known:
    """Facts about trials that shared a lane, by study. Studies without reports are missing."""

    studies: dict[str, KnownStudy] = field(default_factory=dict)


_NOTHING, _NO_STUDY = Known(), KnownStudy()


def may_fuse(spec: StudySpec) -> bool:
    """Return True if the study's specification allows its trials to be fused."""
    limited = spec.memory_limit is not None or spec.epoch_timeout is not None
    fits = spec.contract == "torch" and spec.exactness == "bitwise"
    return spec.fuse == "auto" and fits and not limited


class Grouping(FusedGroups):
    """Fused groups, and groups of trials whose batches are read once."""

    def __init__(self, state: EngineState) -> None:
        self._state = state

    def known(self, study: StudyState) -> KnownStudy:
        """Return the known facts about a study's shared lanes; read-only."""
        state: Known = self._state.ext.get(NAME, _NOTHING)
        return state.studies.get(study.spec.id, _NO_STUDY)

    def forget(self, study: str) -> None:
        """Drop the facts about a study that has ended."""
        state: Known = self._state.ext.get(NAME, _NOTHING)
        state.studies.pop(study, None)

    def observe(self, study: StudyState, attempt: Attempt, event: EpochReported) -> bool:
        """Learn from an accepted epoch that ran in a fused group or reports the gain of a group.

        The gain of reading batches once depends on how closely trials keep in step. So that gain is
        measured over all epochs, by the number of trials in the lane.
        """
        state, costs, name = self._state, self._state.costs, study.spec.id
        together, readers, before = event.together, event.readers, self.most(study)
        lane_mates = self._lane_mates(attempt) if attempt.accompanied else 1
        ratio = event.seconds / event.alone if event.alone else None
        all_known: Known = state.ext.setdefault(NAME, Known())
        record = all_known.studies.setdefault(name, KnownStudy())
        if together != 1:
            record.unlike = not together
            record.readers = max(record.readers, readers) if readers else 0
        for trials, expected in event.company:
            costs.observe_probe(name, trials, expected)
        record.together = max(record.together, together)
        if together > 1 and ratio is not None:
            costs.observe_group(name, together, ratio)
        elif not together and readers and lane_mates > 1:
            costs.observe_group(name, lane_mates, 1.0 if ratio is None else ratio)
        if (together or readers) != 1:
            record.singles = 0
        elif self.gains(study):
            record.singles += lane_mates > 1
        return self.most(study) != before

    def gains(self, study: StudyState) -> bool:
        """Return True if trials of the study may share a lane.

        Trials share a lane to be fused. If they cannot be fused, their trainer may find that time
        is saved if each batch is read once for all of them.
        """
        record = self.known(study)
        pays = not record.unlike or record.readers > 0
        return pays and record.singles < MAX_SINGLES and may_fuse(study.spec)

    def steps_at_once(self, study: StudyState) -> bool:
        return self.gains(study) and not self.known(study).unlike

    def most(self, study: StudyState) -> int:
        costs, name = self._state.costs, study.spec.id
        if not self.gains(study):
            return 1
        if self.steps_at_once(study) and not costs.group_slowdown_is_known(name):
            return 1
        return costs.worthwhile(name)

    def pace(self, attempt: Attempt) -> float:
        if not attempt.accompanied or not self.gains(self._state.studies[attempt.study]):
            return 1.0
        return self._state.costs.group_slowdown(attempt.study, self._lane_mates(attempt))

    def planned_pace(self, study: StudyState, trials: int) -> float:
        if not self.gains(study):
            return 1.0
        state = self._state
        usable = [each.device for name, each in state.devices.items() if state.usable(name)]
        lanes = max(1, sum(each.lanes for each in usable))
        seats = max((each.seats for each in usable), default=1)
        size = min(seats, -(-trials // lanes), self.most(study))
        return state.costs.group_slowdown(study.spec.id, max(1, size))

    def _lane_mates(self, attempt: Attempt) -> int:
        """Return the number of attempts of the attempt's study in its lane, including itself."""
        member = attempt.segment.members[0]
        device = self._state.devices[member.device]
        residents = self._state.residents(device, device.device.lane(member.slot))
        return sum(each.study == attempt.study for each in residents)

    def more(self, study: StudyState) -> int:
        """Return the number of free seats in the study's lanes that are worth filling."""
        if not self.gains(study) or self._would_slow_the_first(study):
            return 0
        state, name = self._state, study.spec.id
        seats, most = 0, self.most(study)
        for each, device in state.devices.items():
            if device.device.seats == 1 or not state.usable(each) or each in study.refused:
                continue
            for lane in device.lanes_in_use():
                lane_mates = sum(other.study == name for other in state.residents(device, lane))
                if lane_mates:
                    free = sum(not device.fences[slot] for slot in device.seats_of(lane))
                    seats += max(0, min(free, most - lane_mates))
        return seats

    def _would_slow_the_first(self, study: StudyState) -> bool:
        return isinstance(study.strategy, Asha) and study.strategy.first_on_its_way

    def promoted(self, study: StudyState) -> int:
        """Return the number of further trials that may be promoted though later results may differ.

        This is the number of the study's lanes minus the number of promoted trials that are in a
        lane or wait for a seat, and at least 0.
        """
        state = self._state
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

    def why_not(self, study: StudyState) -> str:
        """Return the reason why trials of the study are not fused; empty if they may be."""
        spec, record = study.spec, self.known(study)
        limit = "a limit of memory or of an epoch's time holds for each trial alone"
        measured = self._state.costs.group_slowdown_is_known(spec.id)
        unlike = "those in one lane had different structures or batches, or were no faster so"
        obstacles = (
            (spec.fuse == "off", 'the study says fuse="off"'),
            (spec.contract != "torch", "only the steps of a TorchTrainable are Penstock's"),
            (spec.exactness != "bitwise", "only bitwise studies are"),
            (not may_fuse(spec), limit),
            (record.singles >= MAX_SINGLES, unlike),
            (record.unlike, "their trainer could not (penstock story says why)"),
            (not measured, "what they would gain is not measured yet"),
            (self.most(study) == 1, "too little would be gained"),
            (self._would_slow_the_first(study), "it would slow the first to the top rung"),
        )
        return next((why for holds, why in obstacles if holds), "")

    def facts(self, study: StudyState) -> Mapping[str, Any]:
        record = self.known(study)
        any_seats = any(each.device.seats > 1 for each in self._state.devices.values())
        return {
            "together": record.together,
            "apart": self.why_not(study) if any_seats else "",
            "readers": record.readers if self.most(study) > 1 else 0,
            "readers_take": self._state.costs.group_slowdown(study.spec.id, record.readers),
        }
