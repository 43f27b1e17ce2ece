"""The xgboost objective of ``benchmarks.optuna``. Trainers import this module by its name."""

from __future__ import annotations

import optuna
import xgboost
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split


def objective(trial: optuna.Trial) -> float:
    """As Optuna's ``xgboost_simple.py``, on one thread."""
    params = {
        "objective": "binary:logistic",
        "nthread": 1,
        "booster": trial.suggest_categorical("booster", ["gbtree", "dart"]),
        "lambda": trial.suggest_float("lambda", 1e-8, 1.0, log=True),
        "subsample": trial.suggest_float("subsample", 0.2, 1.0),
        "max_depth": trial.suggest_int("max_depth", 3, 9, step=2),
        "eta": trial.suggest_float("eta", 1e-8, 1.0, log=True),
    }
    train_x, valid_x, train_y, valid_y = train_test_split(
        *load_breast_cancer(return_X_y=True), test_size=0.25, random_state=0
    )
    model = xgboost.train(params, xgboost.DMatrix(train_x, label=train_y), 50)
    return float(((model.predict(xgboost.DMatrix(valid_x)) > 0.5) == valid_y).mean())
