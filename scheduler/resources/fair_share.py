"""Fair sharing of devices between studies: by priority, and by weight within a priority.

Theory of operation. A study's *share* is a number of slots. The slots go to the studies of the
highest priority first, as far as these can use them, and within a priority by weight. Slots that a
study cannot use go to the other studies of its priority, again by weight (weighted max-min
fairness: Bertsekas and Gallager, Data Networks, section 6.5.2). A share may be a fraction, but
slots are whole. So each study has a *credit*: the integral over time of its share less the slots
that it held (slot-seconds). Slots that no study held give no credit. The next free slot goes to a
study with waiting trials: of those with the highest priority, first to the studies that hold fewer
slots than the whole part of their share, then to the study with the most credit. So over time each
study gets slots by its weight, and no slot is reserved.

A running trial gives way at the end of its segment if its study holds more than its share, and
another study with waiting trials holds fewer slots than the whole part of its share or has more
than ``YIELD_CREDIT`` of credit. It gives way to such a study of a higher priority even if its own
study holds no more than its share. It also gives way if its study holds a whole slot more than its
share, and the studies with waiting trials together lack a whole slot. (If there are more studies
than slots, each study may lack less than one.) A study gains no credit for slots that it does not
want: while it has no waiting trial, its share is at most the number of slots that it holds.

If lanes have several seats, a lane counts as a slot, and each resident holds its part of the lane's
time. A trial that gets a seat in such a lane slows the residents down instead of waiting for them.

If only one study is at work, there is nothing to share, and nothing is counted. The same holds
under a policy that orders the trials of all studies.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..model.trial import Trial
from ..state.core import Core
from ..state.slot_time import slot_seconds
from ..state.state import Attempt, StudyState
from .slots import capacity

#: Rounding errors of shares and slots up to this amount are ignored.
TOLERANCE = 1e-9

#: Slot-seconds of a study's credit above which a running trial of another study gives way.
YIELD_CREDIT = 60.0


class Claim(NamedTuple):
    """The claim of a study to slots.

    ``weight`` is above 0. Claims of the highest ``priority`` go first. ``demand`` is the number of
    slots that the study can use.
    """

    weight: float
    priority: int
    demand: float


def divide(claims: Sequence[Claim], slots: float) -> list[float]:
    """Return the share of each claim. Shares add up to ``slots`` if the demand is large enough.

    >>> divide([Claim(2.0, 0, 9), Claim(1.0, 0, 9)], 3)
    [2.0, 1.0]
    >>> divide([Claim(2.0, 0, 1), Claim(1.0, 0, 9), Claim(9.0, -1, 9)], 3)
    [1.0, 2.0, 0.0]
    """
    shares = [0.0] * len(claims)
    for priority in sorted({claim.priority for claim in claims}, reverse=True):
        same_priority = [index for index, claim in enumerate(claims) if claim.priority == priority]
        same_priority.sort(key=lambda index: claims[index].demand / claims[index].weight)
        # The smallest demand for its weight goes first, so that later claims get what it leaves.
        for position, index in enumerate(same_priority):
            weights = math.fsum(claims[each].weight for each in same_priority[position:])
            shares[index] = min(claims[index].demand, slots * (claims[index].weight / weights))
            slots = max(0.0, slots - shares[index])
    return shares


def apportion(shares: Sequence[float], whole: int) -> list[int]:
    """Return whole numbers in proportion to ``shares`` that add up to ``whole``.

    Numbers are rounded by the method of largest remainders. If all shares are 0, so are they.

    >>> apportion([8 / 3, 4 / 3], 4)
    [3, 1]
    """
    total = math.fsum(shares)
    if not total:
        return [0] * len(shares)
    exact = [share / total * whole for share in shares]
    parts = [math.floor(each + TOLERANCE) for each in exact]
    order = sorted(range(len(exact)), key=lambda index: parts[index] - exact[index])
    for index in order[: whole - sum(parts)]:
        parts[index] += 1
    return parts


def _slots(attempt: Attempt) -> float:
    """Return the number of slots that an attempt holds; a part of one if it shares a lane."""
    return attempt.part * len(attempt.segment.members)


class FairShare:
    """Computes each study's share of the slots, and accounts for the slots that it has used."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._state = core.state

    def competing(self) -> list[StudyState]:
        """Return the studies that share the devices.

        There are none if fewer than two studies are at work, or if the policy orders all studies'
        trials.
        """
        if self._state.cross_study:
            return []
        studies = [study for study in self._state.studies.values() if study.runnable]
        return studies if len(studies) > 1 else []

    def recompute(
        self, competing: Sequence[StudyState], unbounded: frozenset[str] = frozenset()
    ) -> None:
        """Count the slot-seconds due to each study until now, and compute all shares again.

        The studies in ``unbounded`` are assumed to use any number of slots. A study that had no
        share until now starts without credit.
        """
        slots_held = self.held()
        for study in self._state.studies.values():
            if not (competing and study.runnable):
                study.share = None
            elif study.share is not None and self._state.shared_at is not None:
                study.due += study.share * (self._core.at - self._state.shared_at)
            else:
                study.due = self._used(study)
        if self._state.shared_at != self._core.at:
            self._state.shared_at = self._core.at
            self._cancel_idle_credit(competing)
        usable = (name for name in self._state.devices if self._state.usable(name))
        slots = sum(capacity(self._state, self._core.extensions, name) for name in usable)
        claims = []
        for study in competing:
            demand_now = study.active * study.spec.max_width
            demand_now += sum(ask.n for ask in study.asks.values())
            demand = (
                math.inf
                if study.spec.id in unbounded
                else max(demand_now, slots_held[study.spec.id])
            )
            claims.append(Claim(study.spec.weight, study.spec.priority, demand))
        for study, share in zip(competing, divide(claims, slots), strict=True):
            study.share = share

    def _cancel_idle_credit(self, competing: Sequence[StudyState]) -> None:
        """Take the credit for idle slots away from the studies, in proportion to their shares.

        Otherwise this credit would grow in proportion to the shares but be paid back in equal
        parts, so studies of greater weight would get more than their share.
        """
        total = math.fsum(study.share or 0.0 for study in competing)
        idle = math.fsum(self._credit(study) for study in competing)
        if total > 0.0 and idle > 0.0:
            for study in competing:
                study.due -= idle * ((study.share or 0.0) / total)

    def release_unused(self, competing: Sequence[StudyState]) -> None:
        """Limit the share of each study that has no waiting trial to the slots that it holds."""
        slots_held, waiting_studies = self.held(), self.studies_waiting()
        for study in competing:
            if study.share is not None and study.spec.id not in waiting_studies:
                study.share = min(study.share, float(slots_held[study.spec.id]))

    def queue(self) -> tuple[str, ...]:
        """Return all waiting trials in the order in which they would get slots, one slot each."""
        shared = self._state.shared_at is not None
        return tuple(self.in_order(simulated=True) if shared else self._state.ready)

    def in_order(self, *, simulated: bool = False) -> Iterator[str]:
        """Yield the waiting trials, each from the study that is next to get a slot.

        Unless ``simulated``, a trial counts as holding slots only if it was dispatched before the
        next trial is asked for. If ``simulated``, each trial is assumed to get one slot, and
        studies that have their share take turns by weight.
        """
        queues: dict[str, list[str]] = {}
        for name in reversed(self._state.ready):
            queues.setdefault(self._state.trials[name].study, []).append(name)
        slots_held = self.held()
        credit = {study: self._credit(self._state.studies[study]) for study in queues}
        rounds = dict.fromkeys(queues, 0.0)

        def satisfied(name: str) -> bool:
            share = self._state.studies[name].share or 0.0
            return slots_held[name] + TOLERANCE >= math.floor(share + TOLERANCE)

        def urgency(name: str) -> tuple[int, bool, float, float]:
            priority = self._state.studies[name].spec.priority
            return (-priority, satisfied(name), rounds[name], -credit[name])

        while queues:
            study = min(queues, key=urgency)
            name = queues[study].pop()
            if not queues[study]:
                del queues[study]
            yield name
            trial = self._state.trials.get(name)
            if simulated:
                rounds[study] += satisfied(study) / self._state.studies[study].spec.weight
                slots_held[study] += 1
            elif trial is not None and trial.fence:
                slots_held[study] += _slots(self._state.attempts[trial.fence])

    def should_yield(self, study: StudyState, trial: Trial, slots: float) -> bool:
        """Return True if ``trial``, whose segment on ``slots`` slots has closed, should give way.

        The module's docstring has the rule.
        """
        if study.share is None:
            return False
        slots_held = self.held()
        beyond = slots_held[study.spec.id] + slots - study.share
        over, missing = beyond > TOLERANCE, 0.0
        devices = {member.device for member in trial.members}
        waiting: set[str] | None = None
        for name, other in self._state.studies.items():
            if other is study or other.share is None or devices & other.refused.keys():
                continue
            if not (over or other.spec.priority > study.spec.priority):
                continue
            lacks = other.share - slots_held[name]
            if lacks <= TOLERANCE:
                continue
            waiting = self.studies_waiting() if waiting is None else waiting
            if name not in waiting:
                continue
            if (
                slots_held[name] + TOLERANCE < math.floor(other.share + TOLERANCE)
                or self._credit(other) > YIELD_CREDIT
            ):
                return True
            missing += lacks
        return min(beyond, missing) >= 1.0 - TOLERANCE

    def _credit(self, study: StudyState) -> float:
        """Return the slot-seconds that were due to the study until now and that it has not had.

        The result is below 0 if it has had more, and 0 if no shares apply.
        """
        if study.share is None or self._state.shared_at is None:
            return 0.0
        return study.due + study.share * (self._core.at - self._state.shared_at) - self._used(study)

    def _used(self, study: StudyState) -> float:
        """Return the slot-seconds that the study has had until now."""
        return study.used + sum(
            len(attempt.segment.members) * slot_seconds(attempt, self._core.at)
            for attempt in self._state.attempts.values()
            if attempt.study == study.spec.id
        )

    def held(self) -> dict[str, float]:
        """Return the number of slots that each study holds, by study.

        A trial that shares a lane counts with its part of the lane's time.
        """
        slots_held = dict.fromkeys(self._state.studies, 0.0)
        for attempt in self._state.attempts.values():
            slots_held[attempt.study] += _slots(attempt)
        return slots_held

    def studies_waiting(self) -> set[str]:
        return {self._state.trials[name].study for name in self._state.ready}
