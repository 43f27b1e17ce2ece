"""Proposals of new trials, and the ends of studies: strategies are pulled, samplers are asked.

Theory of operation. A strategy is *pulled* for work: it names (*enters*) trials, each with the
epoch up to which the trial is to be trained. If the strategy wants new configurations, the study's
sampler is asked (``Ask``). The sampler's answer is an event, which the module ``trials`` handles.
Entered trials wait in the queue. When a study has no active trials and no unanswered asks, its
strategy is pulled once more. If the strategy enters no trial then, the study is over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ..model.decisions import Ask, Finish, Release
from ..model.events import Proposed
from ..model.study import OVER, number_of, trial_id
from ..model.trial import FINAL, Step, Trial, TrialState
from ..model.trial_group import Entry, Fork, Pull
from ..resources.slots import free_slots
from ..state.configurations import configurations, new_configurations
from ..state.core import Core
from ..state.state import StudyState
from ..strategies.base import UNBOUNDED, is_decided_at
from ..strategies.freeze_thaw import FreezeThaw
from .checkpoints import Checkpoints

#: Samplers whose proposals do not depend on results, so they may be asked ahead of time.
ORDER_FREE = frozenset({"grid", "random", "qmc"})

#: Strategies that are told the cost of an epoch of a trial before the trial's results.
WEIGHS_COSTS = (FreezeThaw,)

_ENDED_WITH_STUDY = (TrialState.PAUSED, TrialState.PROPOSED)
_NOT_AT_WORK = (TrialState.WAITING, TrialState.PROPOSED)
_ON_ITS_WAY = (TrialState.WAITING, TrialState.RUNNING)


class Proposals:
    """Pulls strategies, asks samplers, queues trials, and ends studies."""

    def __init__(self, core: Core, *, checkpoints: Checkpoints) -> None:
        self._core = core
        self._state = core.state
        self._checkpoints = checkpoints

    def enter(self, study: StudyState, group: tuple[Entry | Fork, ...]) -> None:
        entries = deque(() if study.ending else group)
        while entries:
            entry = entries.popleft()
            if isinstance(entry, Fork):
                self._fork(study, entry)
                continue
            trial = self._state.trials[entry.trial]
            if trial.state in FINAL:
                continue
            if trial.state in _ON_ITS_WAY:  # its user has sent it on already
                trial.target = max(trial.target, entry.epochs)
                continue
            trial.target = entry.epochs
            self._core.move(study, trial, Step.ENTER)
            entries += self._begin_to_wait(study, trial)

    def enter_queue(self, study: StudyState, trial: Trial) -> None:
        """Queue a trial that an extension has kept until now, as if the trial were new."""
        self.enter(study, self._begin_to_wait(study, trial))

    def _begin_to_wait(self, study: StudyState, trial: Trial) -> tuple[Entry | Fork, ...]:
        """Make a trial wait for slots, unless an extension keeps it out of the queue.

        A trial that has reached its target already needs no slot. In this case, return the entries
        with which its strategy continues. Otherwise the result is empty.
        """
        if self._core.extensions.keeps(study, trial, None):
            return ()
        if trial.epoch >= trial.target:
            return self.reached(study, trial)
        self.wait(trial)
        return ()

    def reached(
        self, study: StudyState, trial: Trial, *, returned: bool = False
    ) -> tuple[Entry | Fork, ...]:
        """Note that the trial reached its target; return the entries that follow from this.

        The entries are those of the strategy, or of an extension that goes on with the trial. The
        strategy is not told of targets that a user has set. ``returned`` is True if the trial's
        objective has returned, so that the trial has no further epochs.
        """
        further = 0
        if study.spec.id in self._core.extensions.by_study and not returned:
            further = self._core.extensions.goes_on(study, trial)
        if trial.epoch >= (study.spec.strategy.max_epochs or UNBOUNDED) and not further:
            self._core.move(study, trial, Step.FINISH)
            self._checkpoints.trial_over(study, trial)
            self._core.decide(Release, trial=trial.id)
        else:
            self._core.move(study, trial, Step.REACH)
        entries: tuple[Entry | Fork, ...] = ()
        if is_decided_at(study.spec.strategy, trial.epoch) and not trial.branched:
            curve = {epoch: study.spec.sign * value for epoch, value in trial.values.items()}
            if isinstance(study.strategy, WEIGHS_COSTS):
                study.strategy.cost(trial.id, self._state.epoch_seconds(trial))
            entries = study.strategy.reached(trial.id, trial.epoch, curve)
        return (*entries, Entry(trial.id, further)) if further else entries

    def _fork(self, study: StudyState, fork: Fork) -> None:
        """Stop the trial that ``fork`` replaces, and ask for the configuration of the new trial."""
        trial = self._state.trials[fork.trial]
        self._core.move(study, trial, Step.STOP)
        self._checkpoints.trial_over(study, trial)
        self._core.decide(Release, trial=trial.id)
        self.ask(study, 1, fork=fork)

    def wait(self, trial: Trial, *, first: bool = False) -> None:
        study = self._state.studies[trial.study]
        if study.ends(trial):
            self.end_early(study, trial, Step.STOP)
            return
        if trial.id in study.withheld:
            return
        if first:
            # It was interrupted and is not new: it goes first, and keeps its time of arrival.
            self._state.ready.insert(0, trial.id)
        else:
            trial.since = self._core.at
            self._state.ready.append(trial.id)
        self._core.invalidate_plan()

    def withhold(self, study: StudyState, trial: Trial, why: str) -> None:
        """Keep a trial out of the queue until it is let in; ``why`` is the reason in words."""
        study.withheld[trial.id] = why
        if trial.id in self._state.ready:
            self._state.ready.remove(trial.id)

    def put_first(self, trial: Trial) -> None:
        """Put a trial in the queue before all others."""
        ready = self._state.ready
        if trial.id in ready:
            trial.since = min(self._state.trials[name].since for name in ready)
            ready.remove(trial.id)
            ready.insert(0, trial.id)

    def end_early(self, study: StudyState, trial: Trial, step: Step) -> None:
        """End a trial before its target by the transition ``step``.

        A trial without an epoch of its own ends as cancelled. A trial that was completed, and was
        then extended by its user, becomes completed again.
        """
        if trial.epoch >= (study.spec.strategy.max_epochs or UNBOUNDED):
            step = Step.FINISH
        elif trial.epoch <= trial.begin:
            step = Step.CANCEL
        self._core.move(study, trial, step)
        self._core.decide(Release, trial=trial.id)

    def go_on(self, study: StudyState, extension: str) -> None:
        """Note that a study needs the extension from now on; reopen the study if it was over."""
        if extension not in study.needs:
            study.needs.append(extension)
            self._core.extensions.study_begins(study)
        if study.status in OVER:
            study.status, study.finished_at, study.message = "running", None, ""
            study.extended_at = self._core.at

    def abandon(self, study: StudyState, trial: Trial) -> None:
        """Tell the strategy that a trial will report no more epochs.

        Strategies do not know branches, so nothing is said about a branch.
        """
        if not trial.branched:
            self.enter(study, study.strategy.abandoned(trial.id))

    def pull(self, free: int) -> bool:
        """Ask the strategies for work for ``free`` slots; return True if trials were entered."""
        free -= sum(ask.n for s in self._state.studies.values() for ask in s.asks.values())
        entered = False
        for study in list(self._state.studies.values()):
            if free <= 0:
                break
            if not study.runnable:
                continue
            pull = self.pull_study(study, free)
            entered = entered or bool(pull.group) or bool(pull.ask and study.spec.local)
            free -= len(pull.group) + pull.ask
        return entered

    def pull_next(self) -> None:
        """Draw the next trial of each study, so that a policy can compare trials of all studies.

        If only one study runs, its strategy is pulled only when slots are free, because a sampler
        that is asked later knows more results.
        """
        runnable = [study for study in self._state.studies.values() if study.runnable]
        if len(runnable) < 2:
            return
        waiting = {self._state.trials[name].study for name in self._state.ready}
        for study in runnable:
            if study.spec.id not in waiting and not study.asks:
                self.pull_study(study, 1)

    def pull_study(self, study: StudyState, free: int, early: int | None = None) -> Pull:
        if study.ending or self._core.extensions.has_enough(study):
            return Pull()
        ahead = study.spec.n_trials if study.spec.sampler in ORDER_FREE else 0
        if study.unheard is not None:  # the callbacks of what has ended may stop it
            free, ahead = free - len(study.unheard), 0
            if free <= 0:
                return Pull()
        pull = study.strategy.pull(free, ahead, early)
        self.enter(study, pull.group)
        if pull.ask and study.spec.local:
            self._begin(study, pull.ask)
        elif pull.ask:
            self.ask(study, pull.ask)
        return pull

    def _begin(self, study: StudyState, n: int) -> None:
        """Enter ``n`` trials whose parameters are sampled in the objective's process."""
        names = []
        for _ in range(n):
            waiting = study.waiting
            names.append(waiting.pop(0) if waiting else self.make_trial(study).id)
        self.enter(study, study.strategy.proposed(tuple(names), exhausted=False))

    def make_trial(self, study: StudyState) -> Trial:
        """Return a new trial without parameters, which is added to the study."""
        number = len(study.trials)
        name = trial_id(study.spec.id, number)
        trial = Trial(name, study.spec.id, number, params=(), created_at=self._core.at)
        self._state.trials[name] = self._core.changes.trials[name] = trial
        study.trials.append(name)
        study.active += 1
        return trial

    def ask(
        self, study: StudyState, n: int, fork: Fork | None = None, resampled: tuple[str, ...] = ()
    ) -> None:
        """Ask the sampler for configurations of ``n`` new trials.

        If ``resampled`` is not empty, ask for new configurations of these existing trials instead.
        Configurations that the user has enqueued are used first. They are not used for a fork,
        because the configuration of a fork is derived from that of the trial that it copies.
        """
        n_known = len(study.trials) + study.to_come
        begun = new_configurations(study.spec, n_known, n)
        enqueued = () if fork or resampled else tuple(study.enqueued[:begun])
        del study.enqueued[: len(enqueued)]
        ask = Ask(
            id=self._core.decision_id(),
            cause=self._state.seq,
            study=study.spec.id,
            n=n,
            index=study.next_ask,
            enqueued=enqueued,
            fork=fork,
            resampled=resampled,
        )
        study.asks[ask.index] = ask
        study.next_ask += 1
        self._core.out.append(ask)

    def ask_again(self, study: StudyState) -> None:
        """Ask the sampler again for trials that have not begun, since the space was changed.

        The study's unanswered asks are repeated. Trials that have not begun leave the queue until
        their parameters are drawn again. Trials that the user enqueued, made or paused keep their
        parameters.
        """
        asks = [ask for ask in study.asks.values() if not ask.resampled]
        study.asks.clear()
        study.enqueued[:0] = [params for ask in asks for params in ask.enqueued]
        for ask in asks:
            self.ask(study, ask.n, fork=ask.fork)
        size, trials = study.spec.replicates, self._core.trials_of(study)
        groups = [trials[first : first + size] for first in range(0, len(trials), size)]
        groups = [group for group in groups if all(self._may_be_resampled(study, t) for t in group)]
        for trial in (trial for group in groups for trial in group):
            if trial.id in self._state.ready:
                self._state.ready.remove(trial.id)
        if groups:
            n = sum(map(len, groups))
            self.ask(study, n, resampled=tuple(group[0].id for group in groups))

    def _may_be_resampled(self, study: StudyState, trial: Trial) -> bool:
        is_fixed = trial.enqueued or trial.origin is not None or trial.id in study.withheld
        return trial.state in _NOT_AT_WORK and not trial.begun and not is_fixed

    def resampling(self) -> dict[str, str]:
        """Return the trials that wait for other parameters, by id, each with the reason."""
        return {
            trial.id: "its parameters are drawn again"
            for study in self._state.studies.values()
            for ask in study.asks.values()
            for trial in self._resampled(study, ask)
            if trial.state is TrialState.WAITING and trial.id not in self._state.ready
        }

    def _resampled(self, study: StudyState, ask: Ask) -> Iterator[Trial]:
        """Yield the trials whose parameters an ask draws again, in order."""
        size = study.spec.replicates
        for first in map(number_of, ask.resampled):
            yield from map(self._state.trials.__getitem__, study.trials[first : first + size])

    def resample(self, study: StudyState, ask: Ask, event: Proposed) -> None:
        """Assign parameters that were drawn again to trials. Trials that have begun are left out.

        If one replicate of a configuration has begun, all replicates of the configuration keep
        their parameters. Trials for which a grid has no point left are cancelled.
        """
        size, aside = study.spec.replicates, self._core.extensions.aside()
        notes_of = event.notes or ("",) * len(event.trials)
        answers = [*zip(event.trials, notes_of, strict=True)]
        trials = list(self._resampled(study, ask))
        begun = {index // size for index, trial in enumerate(trials) if trial.begun}
        for index, trial in enumerate(trials):
            group = index // size
            if trial.state not in _NOT_AT_WORK:
                continue
            if group not in begun:
                if group >= len(answers):
                    self._core.move(study, trial, Step.CANCEL)
                    self.abandon(study, trial)
                    continue
                params, trial.notes = answers[group]
                self._core.reparametrise(trial, params)
            waits = trial.state is TrialState.WAITING and trial.id not in self._state.ready
            if waits and trial.id not in aside:
                self.enter_queue(study, trial)

    def settle(self, study: StudyState) -> None:
        """Decide whether a study without active trials and open asks continues or is over.

        A study that was reopened for its user is closed again with the status that it had.
        """
        if study.status in OVER:
            if study.spec.id in self._state.studies:
                self.finish(study, study.status)
            return
        if study.ending:
            self._settle_ending(study)
            return
        if study.at_work or study.asks or study.unheard or study.spec.contract == "ask":
            return
        free = max(1, len(free_slots(self._state, self._core.extensions)))
        pull = self.pull_study(study, free)
        if study.held_back and not pull.group and not pull.ask:
            spec = replace(study.spec, n_trials=study.held_back)
            study.strategy, study.held_back = self._core.strategies(spec), 0
            pull = self.pull_study(study, free)
        if not pull.group and not pull.ask:
            self.finish(study, "complete" if study.succeeded else "failed")

    def _settle_ending(self, study: StudyState) -> None:
        """End the waiting trials of a study that ends, and the study if no trial is at work."""
        users = {*study.waiting, *study.handed_out}
        for trial in self._core.trials_of(study):
            if trial.state in _NOT_AT_WORK and study.ends(trial) and trial.id not in users:
                self.end_early(study, trial, Step.STOP)
        if not study.at_work:
            has_result = any(trial.value is not None for trial in self._core.trials_of(study))
            self.finish(study, "complete" if has_result else "cancelled")

    def _report_exhausted(self, study: StudyState) -> None:
        """Say in the study's message that its grid had fewer points than ``n_trials``."""
        spec = study.spec
        points = configurations(spec, len(study.trials))
        fewer = len(study.trials) < spec.n_trials
        if spec.sampler == "grid" and fewer and study.status == "complete":
            study.message = study.message or f"the grid has {points} points, and all were tried"

    def finish(self, study: StudyState, status: str) -> None:
        for trial in self._core.trials_of(study):
            if trial.state in _ENDED_WITH_STUDY and trial.id not in study.waiting:
                self._core.move(study, trial, Step.STOP)
                self._core.decide(Release, trial=trial.id)
        if study.trials and self._core.extensions.tells_trainers(study):
            self._core.decide(Release, trial=study.trials[-1], study=study.spec.id)
        study.status = status
        if study.finished_at is None:
            study.finished_at = self._core.at
        self._report_exhausted(study)
        if status == "failed" and not study.message:
            study.message = "every trial failed"
        self._checkpoints.study_over(study)
        self._core.extensions.study_over(study)
        self._core.touch_study(study)
        self._core.decide(Finish, study=study.spec.id, status=status)
        # The ledger keeps a finished study; the engine keeps only that its id and name are taken.
        for name in study.trials:
            self._state.trials.pop(name, None)
            self._state.courses.pop(name, None)
            self._state.windows.pop(name, None)
            self._state.waits.pop(name, None)
        self._state.past_windows.pop(study.spec.id, None)
        self._state.own_rules.pop(study.spec.id, None)
        self._state.costs.forget_study(study.spec.id)
        self._state.sharing.forget_study(study.spec.id)
        self._state.studies.pop(study.spec.id)
        self._state.finished[study.spec.id] = study.spec.name

    def hand_out(self, study: StudyState, names: Iterable[str]) -> None:
        for name in names:
            self._core.move(study, self._state.trials[name], Step.HAND_OUT)
        study.spec = replace(study.spec, n_trials=max(1, len(study.trials)))
        self._core.touch_study(study)
