"""XGBoost in an epoch function: an epoch is a fixed number of boosting rounds."""

from __future__ import annotations

from ...base.errors import UsageError
from ...tasks.contracts.contract import EpochTrial
from .passes import Passes, missing

try:
    from xgboost import Booster
    from xgboost.callback import TrainingCallback
except ImportError as error:
    raise missing("xgboost", error) from error


class XGBoostCallback(TrainingCallback):
    """Makes ``rounds`` boosting rounds of ``xgboost.train`` an epoch of a trial::

        report = penstock.XGBoostCallback(trial, rounds=10)
        xgboost.train(
            params, train, num_boost_round=1000, evals=[(validation, "validation")],
            xgb_model=report.booster, callbacks=[report],
        )

    The last value of each metric of ``evals`` is reported under a name such as
    ``validation-logloss``. ``booster`` is the model to continue from; None at the trial's start.
    ``num_boost_round`` counts the rounds from there on.
    """

    def __init__(self, trial: EpochTrial, *, rounds: int = 1) -> None:
        if type(rounds) is not int or rounds < 1:
            raise UsageError.refuse("rounds", rounds, "a whole number, 1 or more")
        self._passes = Passes(trial)
        self._rounds = rounds
        self.booster: Booster | None = None
        if (state := self._passes.take()) is not None:
            self.booster = Booster(model_file=bytearray(state))

    def before_training(self, model: Booster) -> Booster:
        before = 0 if self.booster is None else self.booster.num_boosted_rounds()
        if model.num_boosted_rounds() < before:
            raise UsageError(
                f"the trial has {before} boosting rounds behind it: "
                "call xgboost.train(xgb_model=report.booster)"
            )
        return model

    def before_iteration(
        self, model: Booster, epoch: int, evals_log: TrainingCallback.EvalsLog
    ) -> bool:
        if epoch % self._rounds == 0:  # xgboost calls a round an epoch
            self._passes.begin()
        return False

    def after_iteration(
        self, model: Booster, epoch: int, evals_log: TrainingCallback.EvalsLog
    ) -> bool:
        if (epoch + 1) % self._rounds == 0:
            metrics = {
                f"{data}-{name}": values[-1]
                for data, by_name in evals_log.items()
                for name, values in by_name.items()
            }
            self._passes.report(metrics, bytes(model.save_raw("ubj")))
        return False
