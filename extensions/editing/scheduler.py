"""Applies users' edits to running studies in the scheduler.

Theory of operation. The event has the whole specification after the edit, so a replay needs no
other source. Trials that have begun keep their parameters. The other trials are drawn again, and
open questions to the sampler are asked again, so that no trial begins under a range that is no
longer valid (``Proposals.ask_again``). If the number of epochs grows, trials that have not reached
the old last epoch train to the new last epoch. Completed trials stay as they are, except under
ASHA. There the old last epoch becomes an ordinary rung (an epoch at which trials are compared),
from which the best trials are promoted.
"""

from __future__ import annotations

from ...scheduler.engine.engine import Parts
from ...scheduler.engine.lifecycle import EXTENSIBLE
from ...scheduler.model.study import OVER, StudySpec
from ...scheduler.model.trial import FINAL, Step, Trial, TrialState
from ...scheduler.resources.unable import try_again
from ...scheduler.state.core import Refused
from ...scheduler.state.extensions import Extension
from ...scheduler.state.state import StudyState
from ...scheduler.strategies.asha import Asha
from ...scheduler.strategies.base import comparison_epochs, rungs_of
from ...scheduler.strategies.full import FullBudget
from ...scheduler.strategies.stopping import Stopping
from .events import Edited

#: The name of the extension.
NAME = "editing"


def plug(parts: Parts) -> Extension:
    """Return the extension that applies users' edits to running studies."""
    return Extension(name=NAME, handlers={Edited: _Editing(parts).on_edited})


class _Editing:
    """The handler of the event, with the parts of the engine on which it acts."""

    def __init__(self, parts: Parts) -> None:
        self._core = parts.core
        self._state = parts.core.state
        self._proposals = parts.proposals

    def on_edited(self, event: Edited) -> None:
        study = self._core.study(event.study)
        if study.ending or study.status in OVER:
            raise Refused(f"{event.study} is over, or has reached a limit and ends")
        before, study.spec = study.spec, event.spec
        if NAME not in study.needs:
            study.needs.append(NAME)
        self._core.extensions.study_begins(study)
        try_again(self._core, study)
        if study.spec.strategy != before.strategy:
            self._train_longer(study, before)
        if study.spec.space != before.space:
            for trial in self._core.trials_of(study):  # its place in the space is another
                name, features = trial.id, self._state.features_of(trial)
                self._state.costs.describe(study.spec.id, name, features)
            self._proposals.ask_again(study)
            self._count_points(study)
        self._core.extensions.tell(study, "on_edited", before)
        self._core.touch_study(study)
        self._core.invalidate_plan()
        self._proposals.settle(study)
        self._core.offer_slots()

    def _count_points(self, study: StudyState) -> None:
        """Let an exhausted grid propose trials again.

        The grid may have more points after the edit.
        """
        if study.spec.sampler != "grid" or not isinstance(study.strategy, EXTENSIBLE):
            return
        trials = [trial for trial in self._core.trials_of(study) if not trial.branched]
        drawn = sum(trial.begun or trial.state is not TrialState.CANCELLED for trial in trials)
        study.strategy.asked = min(study.spec.n_trials, drawn + study.to_come)

    def _train_longer(self, study: StudyState, before: StudySpec) -> None:
        """Change the strategy and the targets of unfinished trials to the new last epoch."""
        last, strategy = before.strategy.max_epochs, study.strategy
        plan = study.spec.strategy
        assert last is not None
        assert plan.max_epochs is not None
        if isinstance(strategy, FullBudget | Stopping):
            strategy.max_epochs = plan.max_epochs
        if isinstance(strategy, Stopping):
            strategy.best = None  # it is of trials that were trained to the old end
        if isinstance(strategy, Asha):
            strategy.levels = rungs_of(plan)
        epochs = (*comparison_epochs(plan), plan.max_epochs)
        for trial in self._core.trials_of(study):
            if trial.state not in FINAL and last <= trial.target < plan.max_epochs:
                ends = (plan.max_epochs,) if trial.branched else epochs
                trial.target = next(epoch for epoch in ends if epoch >= trial.target)
                self._core.changes.trials[trial.id] = trial
            elif isinstance(strategy, Asha) and trial.state is TrialState.COMPLETED:
                self._may_go_on(study, strategy, trial, last)

    def _may_go_on(self, study: StudyState, strategy: Asha, trial: Trial, last: int) -> None:
        """Let a completed trial of ASHA wait at its rung for a promotion.

        This is done only if the trial's state can be restored. Otherwise the trial stays completed.
        """
        newest = next(iter(trial.parents), None)
        is_durable = newest is not None and newest.state_hash == trial.state_hash
        if trial.epoch != last or not (is_durable or study.spec.replays):
            strategy.abandoned(trial.id)
            return
        if trial.id in study.best:
            study.best.remove(trial.id)
        self._core.move(study, trial, Step.REVIVE)
        self._core.move(study, trial, Step.REACH)
