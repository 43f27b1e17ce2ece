"""The standing plan: when it is made anew, what a policy is shown for it, and how it is followed.

Theory of operation. Whatever changes the plan's input (a trial waits or is over, a device came or
went, an estimate moved, the wide part of a course ended) marks the plan dirty; it is computed anew
when a slot is to be filled, at most once in ``REPLAN_EACH`` seconds a trial, or in ``REPLAN_EVERY``
where they are many, and in between new trials queue in order of arrival. Of a plan with courses the
engine keeps count: a trial's wide epochs become fewer as they are accepted, and at their end it is
to be narrow. Where a policy fails, the last good plan stands.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from .courses import steady
from .decisions import Member
from .durables import Durables
from .features import features_of
from .policies import find_policy
from .snapshot import Candidate, Snapshot
from .state import StudyState
from .study import shards_of
from .trial import Trial

#: Seconds between two plans of many trials, and of one trial: few are planned in less time.
REPLAN_EVERY = 1.0
REPLAN_EACH = 0.02
#: Part of an epoch that a new trial waits for a plan at most.
WORTH_WAITING = 0.1


class Planning(Durables):
    """Keeps the standing plan, and says what it has in mind for each trial."""

    def _replan(self, free: list[Member]) -> None:
        state = self.state
        if not (state.dirty and self._plan_due() <= self._at):
            return
        ready = self._ready()
        if len(ready) < 2 and not (state.elastic() and (ready or state.attempts)):
            return
        usable = [name for name in state.devices if state.usable(name)]
        snapshot = Snapshot(
            self._at,
            self._candidates(ready),
            len(free),
            self._candidates(attempt.segment.trial for attempt in state.attempts.values()),
            sum(slot.slot == 0 and state.is_free(slot.device) for slot in free),
            devices=len(usable),
            resize=state.costs.resize,
            rule=state.rule,
            deadline=state.deadline,
        )
        state.dirty = False
        state.planned_at = self._at
        try:
            plan = find_policy(state.policy)(snapshot)
            state.plan_error = ""
        except Exception as error:  # whatever a policy raises; the last good plan stands
            state.plan_error = f"policy {state.policy} failed: {error!r}"
            return
        known = set(ready)
        if set(plan.order) != known or len(plan.order) != len(ready):
            state.plan_error = f"policy {state.policy} dropped or invented waiting trials"
            return
        state.ready = [*plan.order, *(name for name in state.ready if name not in known)]
        state.widths = dict(plan.widths)
        state.shuffle = plan.shuffle
        state.courses = dict(plan.courses)
        state.rule, state.deadline = plan.rule, plan.deadline

    def _ready(self) -> list[str]:
        """The waiting trials that may be given a slot: those of a paused study may not."""
        trials = self.state.trials
        return [n for n in self.state.ready if self.state.studies[trials[n].study].works]

    def _plan_due(self) -> float:
        at = self.state.planned_at
        trials = len(self.state.ready) + len(self.state.attempts)
        return self._at if at is None else at + min(REPLAN_EVERY, REPLAN_EACH * trials)

    def _width(self, study: StudyState, trial: Trial) -> int:
        """On how many devices the plan has ``trial`` run from its next epoch on."""
        widest = self._widest(study, trial)
        if widest == 1:
            return 1
        if self.state.shuffle:
            usable = sum(self.state.usable(name) for name in self.state.devices)
            names = f"{trial.id} {trial.epoch} {trial.losses + trial.failures}"
            drawn = int.from_bytes(hashlib.sha256(names.encode()).digest()[:4], "big")
            return 1 + drawn % max(1, min(widest, usable - len(study.refused)))
        if trial.losses > 1:
            return 1  # whatever keeps its members apart, alone it goes on
        return min(widest, self.state.widths.get(trial.id, 1))

    def _widest(self, study: StudyState, trial: Trial) -> int:
        if study.spec.max_width == 1:
            return 1
        return min(study.spec.max_width, shards_of(study.spec, trial.params))

    def _waits_for_plan(self, trial: Trial) -> bool:
        """Whether a trial that the standing plan does not know is better begun under the next one.

        That costs little where its epochs are long, beside the time until the next plan is due.
        Only where one will be made: ``Engine.wake_at`` asks for it.
        """
        state = self.state
        if not (state.dirty and state.elastic()):
            return False
        if not state.courses or trial.id in state.courses:
            return False
        seconds = self.state.epoch_seconds(trial)
        return seconds is not None and self._plan_due() - self._at < WORTH_WAITING * seconds

    def _epochs_at(self, trial: Trial, width: int) -> int:
        """For how many epochs the plan has it run there at most."""
        if self.state.shuffle:
            return 1
        course = self.state.courses.get(trial.id)
        if course is not None and course.epochs and width == course.wide:
            return course.epochs
        return trial.target - trial.epoch

    def _follow(self, trial: Trial, width: int) -> None:
        """An epoch of it on ``width`` devices was accepted: one less of its wide part."""
        course = self.state.courses.get(trial.id)
        if course is None or not course.epochs or width != course.wide:
            return
        course = course._replace(epochs=course.epochs - 1)
        if course.epochs == 0:
            course = steady(course.narrow)
            self.state.widths[trial.id] = course.narrow
            self.state.dirty = True
        self.state.courses[trial.id] = course

    def _candidates(self, names: Iterable[str]) -> tuple[Candidate, ...]:
        # In order of arrival, so that a policy's ties do not depend on the plan before.
        trials = sorted((self.state.trials[name] for name in names), key=lambda t: t.since)
        return tuple(self._candidate(trial) for trial in trials)

    def _candidate(self, trial: Trial) -> Candidate:
        costs = self.state.costs
        study = self.state.studies[trial.study]
        widest = self._widest(study, trial)
        features = features_of(study.spec, trial.params)
        level, shape, deviation = costs.expected(trial.study, trial.id, widest, features)
        ends = self.state.epoch_ends(self.state.attempts[trial.fence]) if trial.fence else None
        return Candidate(
            trial.id,
            trial.study,
            trial.epoch,
            trial.target,
            trial.since,
            self.state.epoch_seconds(trial),
            len(trial.members),
            widest,
            costs.speeds(trial.study),
            level=level,
            shape=shape,
            deviation=deviation,
            boundary=0.0 if ends is None else max(0.0, ends - self._at),
            course=self.state.courses.get(trial.id),
        )
