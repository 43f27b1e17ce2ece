"""Who runs where: waiting trials, the standing plan, free slots, and the end of a study.

Theory of operation. A trial holds its slot until its target (the *standing plan*): an epoch that
ends a segment short of it is followed by the next segment on the same slot, without calling a
policy. Whatever changes the plan's input (a trial waits, a device came or went) marks the plan
dirty; it is computed anew when a slot is to be filled, at most once in ``REPLAN_EVERY`` seconds,
and in between new trials queue in order of arrival. Slots that stay free pull the strategies of the
running studies for promotions and new configurations.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..profiling.errors import IllegalTransition
from .decisions import Ask, Dispatch, Finish, Member, Release, Segment
from .durables import Durables
from .policies import find_policy
from .segments import segment_length
from .snapshot import Snapshot, Waiting
from .state import Attempt, StudyState
from .strategy import Pull, TrialGroup
from .trial import FINAL, Step, Trial, TrialState

REPLAN_EVERY = 1.0
#: Samplers whose proposals do not depend on results, so they may be asked for ahead.
ORDER_FREE = frozenset({"grid", "random"})


class Placing(Durables):
    """Gives free slots to trials, and pulls the strategies for more."""

    def _enter(self, study: StudyState, group: TrialGroup) -> None:
        for entry in group:
            trial = self.state.trials[entry.trial]
            if trial.state in FINAL:
                continue
            trial.target = entry.epochs
            self._move(study, trial, Step.ENTER)
            self._wait(trial)

    def _wait(self, trial: Trial, *, first: bool = False) -> None:
        if first:
            # Interrupted, not new: it keeps the place in line that it once waited for.
            self.state.ready.insert(0, trial.id)
        else:
            trial.since = self._at
            self.state.ready.append(trial.id)
        self.state.dirty = True

    def _fill(self) -> None:
        """Give free slots to waiting trials, and pull the strategies while slots stay free."""
        self._end_rests()
        free = list(self.state.free_slots())
        while free:
            self._replan(len(free))
            self._place(free)
            if not free or not self._pull(len(free)):
                return

    def _end_rests(self) -> None:
        """A rest ends here and nowhere else: until then the engine goes on asking for a tick."""
        for device in self.state.devices.values():
            if device.backoff_until <= self._at:
                device.backoff_until = 0.0

    def _place(self, free: list[Member]) -> None:
        for name in list(self.state.ready):
            if not free:
                return
            trial = self.state.trials[name]
            study = self.state.studies[trial.study]
            fits = [slot for slot in free if slot.device not in study.refused]
            if not fits:
                continue
            home = Member(trial.device, trial.slot)
            member = home if home in fits else fits[0]
            free.remove(member)
            self.state.ready.remove(name)
            self._dispatch(study, trial, member)

    def _pull(self, free: int) -> bool:
        """Ask the strategies for work for ``free`` slots; True if trials entered."""
        free -= sum(ask.n for s in self.state.studies.values() for ask in s.asks.values())
        entered = False
        for study in list(self.state.studies.values()):
            if free <= 0:
                break
            pull = self._pull_study(study, free)
            entered = entered or bool(pull.group)
            free -= len(pull.group) + pull.ask
        return entered

    def _pull_study(self, study: StudyState, free: int) -> Pull:
        ahead = study.spec.n_trials if study.spec.sampler in ORDER_FREE else 0
        pull = study.strategy.pull(free, ahead)
        self._enter(study, pull.group)
        if pull.ask:
            enqueued = tuple(study.enqueued[: pull.ask])
            del study.enqueued[: pull.ask]
            ask = Ask(
                id=self._decision_id(),
                cause=self.state.seq,
                study=study.spec.id,
                n=pull.ask,
                index=study.next_ask,
                enqueued=enqueued,
            )
            study.asks[ask.index] = ask
            study.next_ask += 1
            self._out.append(ask)
        return pull

    def _replan(self, free: int) -> None:
        state = self.state
        due = state.planned_at is None or self._at - state.planned_at >= REPLAN_EVERY
        if not (state.dirty and due and len(state.ready) > 1):
            return
        snapshot = Snapshot(self._at, tuple(self._waiting(state.ready)), free)
        plan = find_policy(state.policy)(snapshot)
        if sorted(plan.order) != sorted(state.ready):
            raise IllegalTransition(f"policy {state.policy} dropped or invented waiting trials")
        state.ready = list(plan.order)
        state.dirty = False
        state.planned_at = self._at

    def _waiting(self, names: Iterable[str]) -> Iterable[Waiting]:
        # In order of arrival, so that a policy's ties do not depend on the plan before.
        trials = sorted((self.state.trials[name] for name in names), key=lambda t: t.since)
        for trial in trials:
            seconds = self.state.costs.epoch_seconds(trial.study, trial.id)
            work = None if seconds is None else seconds * (trial.target - trial.epoch)
            yield Waiting(trial.id, trial.study, trial.epoch, trial.target, work, trial.since)

    def _dispatch(self, study: StudyState, trial: Trial, member: Member) -> None:
        n = segment_length(
            self.state.costs.epoch_seconds(study.spec.id, trial.id),
            self.state.costs.segment_overhead,
            trial.target - trial.epoch,
            study.spec.max_segment,
        )
        self._move(study, trial, Step.DISPATCH)
        self.state.fence += 1
        segment = Segment(trial.id, trial.epoch + 1, n, self.state.fence, (member,))
        trial.fence = segment.fence
        trial.device, trial.slot = member.device, member.slot
        self.state.devices[member.device].fences[member.slot] = segment.fence
        dispatch = Dispatch(
            id=self._decision_id(),
            cause=self.state.seq,
            study=study.spec.id,
            number=trial.number,
            params=trial.params,
            segment=segment,
            parents=trial.parents,
            expect=trial.state_hash,
            final=segment.last == trial.target,
            mtbf=self.state.faults.mtbf / len(segment.members),
        )
        self.state.attempts[segment.fence] = Attempt(dispatch.id, study.spec.id, segment, self._at)
        self._out.append(dispatch)

    def _settle(self, study: StudyState) -> None:
        """A study without active trials and open asks either goes on or is over."""
        if study.status != "running" or study.active or study.asks:
            return
        pull = self._pull_study(study, max(1, sum(1 for _ in self.state.free_slots())))
        if not pull.group and not pull.ask:
            self._finish(study, "complete" if study.succeeded else "failed")

    def _finish(self, study: StudyState, status: str) -> None:
        for trial in self._trials_of(study):
            if trial.state in (TrialState.PAUSED, TrialState.PROPOSED):
                self._move(study, trial, Step.STOP)
                self._decide(Release, trial=trial.id)
        study.status, study.finished_at = status, self._at
        if status == "failed" and not study.message:
            study.message = "every trial failed"
        self._end(study)
        self._touch_study(study)
        self._decide(Finish, study=study.spec.id, status=status)
        # The ledger keeps what a finished study was; the engine only that its id is taken.
        for name in study.trials:
            self.state.trials.pop(name, None)
            self.state.costs.forget(name)
        self.state.studies.pop(study.spec.id)
        self.state.finished[study.spec.id] = study.spec.name
