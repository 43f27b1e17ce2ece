"""A study's results so far in Optuna's terms, read from the ledger at every call."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Any

from ...profiling.base.errors import UsageError
from ..host.tracebacks import to_the_user
from ..spec.warm_start import shown
from .handle import StudyHandle

if TYPE_CHECKING:
    import optuna
    import pandas
    from optuna.trial import FrozenTrial


class ReadableStudy:
    """A study that gives its results. ``study_name`` and ``id`` name it."""

    def __init__(self, handle: StudyHandle) -> None:
        self._handle = handle

    def __repr__(self) -> str:
        return f"Study({self.study_name!r}, id={self.id!r}, directions={self.directions!r})"

    @property
    def study_name(self) -> str:
        return self._handle.study_name

    @property
    def id(self) -> str:
        return self._handle.id

    @property
    def directions(self) -> list[str]:
        """``minimize`` or ``maximize``, one per objective."""
        return self._handle.plan.directions

    @property
    @to_the_user
    def direction(self) -> str:
        """The direction of the only objective. UsageError (a RuntimeError) if there are several."""
        if len(self.directions) > 1:
            from ..optuna_bridge.frozen_trials import SeveralObjectives

            raise SeveralObjectives("a study of several objectives has directions")
        return self.directions[0]

    @property
    @to_the_user
    def status(self) -> str:
        """``running``, ``paused``, ``complete``, ``cancelled`` or ``failed``."""
        self._handle.check_submitted()
        return self._handle.reading()[0].study(self.id).status

    @property
    def trials(self) -> list[FrozenTrial]:
        """All trials so far by number, as Optuna's frozen trials."""
        return self.get_trials()

    @to_the_user
    def get_trials(
        self,
        deepcopy: bool = True,
        states: Container[optuna.trial.TrialState] | None = None,
    ) -> list[FrozenTrial]:
        """The trials so far in these Optuna states; None for all.

        They are always copies, whatever ``deepcopy`` says.
        """
        if self._handle.spec is None:
            return []
        found = self._handle.reading()[1].trials()
        return [trial for trial in found if states is None or trial.state in states]

    @property
    @to_the_user
    def copied_trials(self) -> list[FrozenTrial]:
        """The results that the sampler was given; ``user_attrs["source"]`` names their origin."""
        self._handle.check_submitted()
        assert self._handle.spec is not None
        return shown(self._handle.spec, self._handle.reading()[1].space())

    @property
    @to_the_user
    def best_trial(self) -> FrozenTrial:
        """The complete trial with the best value. UsageError (a ValueError) if there is none.

        A trial that violates a constraint is never the best. With several objectives it raises
        UsageError (also a RuntimeError): see ``best_trials``.
        """
        from ..optuna_bridge.frozen_trials import best

        return best(self.get_trials(), self.directions)

    @property
    @to_the_user
    def best_trials(self) -> list[FrozenTrial]:
        """The Pareto front: complete trials that no other one beats in every objective, by number.

        With one objective it is the best trial and those equal to it.
        """
        from ..optuna_bridge.frozen_trials import best_trials

        return best_trials(self.get_trials(), self.directions)

    @property
    def best_params(self) -> dict[str, Any]:
        return self.best_trial.params

    @property
    def best_value(self) -> float:
        value = self.best_trial.value
        assert value is not None
        return value

    @to_the_user
    def importances(self) -> dict[str, float]:
        """Each hyperparameter's share in how the results vary, largest first; they sum to 1.

        They are computed by Optuna's functional ANOVA at the highest rung that 20 trials have
        reached. Raises UsageError if there is no such rung or all results are equal.
        """
        from ..optuna_bridge.importances import LEAST, importances

        self._handle.check_submitted()
        assert self._handle.spec is not None
        found = importances(self.get_trials(), self._handle.spec.strategy)
        if found is None:
            raise UsageError(
                f"importances need {LEAST} trials with results after the same epoch, that differ"
            )
        return found.shares

    @to_the_user
    def to_optuna(self, storage: str | optuna.storages.BaseStorage | None = None) -> optuna.Study:
        """A copy of the trials that have ended, as an Optuna study.

        Use it with Optuna's own tools: plots, importances of hyperparameters, and with a
        ``storage`` (``sqlite:///copy.db``) optuna-dashboard. Raises UsageError if the storage
        already has this study.
        """
        from ..optuna_bridge.frozen_trials import to_optuna

        return to_optuna(self.get_trials(), self.study_name, self.directions, storage)

    @to_the_user
    def trials_dataframe(self) -> pandas.DataFrame:
        """One row per trial, in the columns of Optuna's ``trials_dataframe``."""
        from ..optuna_bridge.frozen_trials import to_dataframe

        return to_dataframe(self.get_trials(), len(self.directions))
