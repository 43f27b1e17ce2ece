"""A study's results so far: what an Optuna study offers, and what Penstock adds."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import optuna

from ....base.errors import UsageError
from ....tasks.objectives.objects import (
    StoredObject,
    has_objects,
    opened,
    with_objects,
    with_objects_of,
)
from ....tasks.objectives.optimizers import guard
from ...host.tracebacks import to_the_user
from ...spec.warm_start import shown
from .handle import StudyHandle, in_trainer, script_run

if TYPE_CHECKING:
    from collections.abc import Container

    from optuna.trial import FrozenTrial, TrialState

    from .storage import Elsewhere


class ReadableStudy(optuna.Study):
    """The read-only part of an Optuna study over this installation's ledger.

    ``study_name`` and ``id`` name the study. A study that was not submitted yet exists only in the
    memory of this process.
    """

    def __init__(
        self,
        handle: StudyHandle,
        sampler: Any = None,
        pruner: Any = None,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        """``elsewhere`` is a study in the user's own storage that is kept in step with this one."""
        self._handle = handle
        self._elsewhere = elsewhere
        self._made_by_optuna = script_run().as_optuna
        storage = handle.storage() if elsewhere is None else elsewhere.joined()
        super().__init__(handle.name_in_storage, storage, sampler, pruner)
        guard()  # what a study kept in step, or ask(), shows to the sampler here
        self.study_name = handle.study_name

    def __repr__(self) -> str:
        ways = [each.name.lower() for each in self.directions]
        return f"Study({self.study_name!r}, id={self.id!r}, directions={ways!r})"

    def get_trials(
        self, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        """Return the trials.

        In the process that submitted the study, objects among their attributes are loaded.
        """
        return [self._with_objects(trial) for trial in super().get_trials(deepcopy, states)]

    @property
    def user_attrs(self) -> dict[str, Any]:
        """The study's attributes, with objects as in ``get_trials``."""
        attributes = super().user_attrs
        return with_objects(attributes, self._open) if self._handle.submitted_here else attributes

    def _with_objects(self, trial: FrozenTrial) -> FrozenTrial:
        if not self._handle.submitted_here or not has_objects(trial):
            return trial
        return with_objects_of(trial, self._open)

    def _open(self, stored: StoredObject) -> Any:
        return opened(self._handle.client().store(), stored)

    @property
    def id(self) -> str:
        """The study's id in the ledger."""
        return self._handle.id

    @property
    @to_the_user
    def status(self) -> str:
        """``running``, ``paused``, ``complete``, ``cancelled`` or ``failed``."""
        self._handle.check_submitted()
        return self._handle.reader().study(self.id).status

    @property
    @to_the_user
    def spent(self) -> dict[str, Any]:
        """Use of devices so far: ``device_hours``, ``kwh``, ``money``, and the ``limits`` of these.

        ``limits`` maps the name of each limit to the amount ``used``, the ``most`` allowed, the
        amount ``left``, and a flag ``reached``. A ``deadline`` counts in seconds since the
        submission. If the study has no limits, the amounts are None until the study is over.
        """
        from ...show.views.spending import spent_facts

        self._handle.check_submitted()
        return spent_facts(self._handle.reader().study(self.id), time.time())

    @property
    @to_the_user
    def copied_trials(self) -> list[FrozenTrial]:
        """The results copied for the sampler; ``user_attrs["source"]`` names their origin."""
        self._handle.check_submitted()
        assert self._handle.spec is not None
        return shown(self._handle.spec, self._handle.results.space())

    @property
    @to_the_user
    def best_trial(self) -> FrozenTrial:
        """The complete trial with the best value.

        Raises a UsageError that is a ValueError, too, if there is no such trial. A trial that
        violates a constraint is never the best. With several objectives, raises a UsageError that
        is a RuntimeError, too: use ``best_trials`` instead. With replicates the best trial is the
        first of ``best_replicates``.
        """
        from ...server.optuna_bridge.frozen_trials import best

        if self._replicates > 1:
            return self.best_replicates[0]
        trials, ways = self._seen_trials()
        spec = self._handle.spec
        return best(trials, ways, may_be_pruned=spec is not None and not spec.local)

    @property
    @to_the_user
    def best_trials(self) -> list[FrozenTrial]:
        """The trials of the Pareto front; empty if no trial is complete.

        Under ``penstock submit``, an empty front of a study that was just submitted raises NoTrial.
        """
        front = super().best_trials
        run = script_run()
        if not front and run.detach and self._handle in (run.submitted or ()):
            from ...server.optuna_bridge.frozen_trials import NoTrial

            raise NoTrial("no trial is complete yet: the study was only submitted")
        return front

    @property
    @to_the_user
    def best_value(self) -> float:
        """The value of ``best_trial``; with replicates the mean of ``best_replicates``."""
        if self._replicates == 1:
            return float(super().best_value)
        values = [float(trial.values[0]) for trial in self.best_replicates]
        return sum(values) / len(values)

    @property
    @to_the_user
    def best_replicates(self) -> list[FrozenTrial]:
        """The complete trials of the configuration with the best mean, by number.

        Only the configurations that have the most complete trials are compared. Without replicates
        the list has ``best_trial`` alone. Raises as ``best_trial`` does.
        """
        from ...server.optuna_bridge.frozen_trials import best_of

        if self._replicates == 1:
            return [self.best_trial]
        return best_of(self._replicates, *self._seen_trials())

    @property
    def _replicates(self) -> int:
        spec = self._handle.spec
        return 1 if spec is None else spec.replicates

    def _seen_trials(self) -> tuple[list[FrozenTrial], list[str]]:
        """Return all trials, and the directions."""
        if in_trainer():
            raise ValueError(
                "no study has trials where a trainer imports the script: what needs results belongs"
                ' under `if __name__ == "__main__":`'
            )
        return self.get_trials(), [each.name.lower() for each in self.directions]

    @to_the_user
    def importances(self) -> dict[str, float]:
        """Return each hyperparameter's share in the results' variance, largest first; the sum is 1.

        They are computed by Optuna's functional ANOVA at the highest rung that 20 trials have
        reached. Raises UsageError if there is no such rung or all results are equal.
        """
        from ...server.optuna_bridge.importances import LEAST, importances

        self._handle.check_submitted()
        assert self._handle.spec is not None
        local = self._handle.spec.local
        # Values after the same epoch are compared, whatever steps an objective reports.
        trials = self.get_trials() if local else self._handle.results.trials()
        outcome = importances(trials, self._handle.spec.strategy)
        if outcome is None:
            raise UsageError(
                f"importances need at least {LEAST} trials with results after the same epoch, and"
                " results that differ"
            )
        return outcome.shares

    @to_the_user
    def to_optuna(self, storage: str | optuna.storages.BaseStorage | None = None) -> optuna.Study:
        """Return a copy of the trials that have ended, as an Optuna study.

        ``storage`` receives the copy, as ``sqlite:///copy.db`` for other tools; None: memory.
        Raises UsageError if the storage already has this study.
        """
        from ...server.optuna_bridge.frozen_trials import to_optuna

        ways = [each.name.lower() for each in self.directions]
        return to_optuna(self.get_trials(), self.study_name, ways, storage)
