"""The catboost objective of ``benchmarks.optuna``. Trainers import this module by its name."""

from __future__ import annotations

import catboost
import optuna
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split


def objective(trial: optuna.Trial) -> float:
    """As Optuna's ``catboost_simple.py``, on one thread and with 200 trees."""
    params = {
        "objective": trial.suggest_categorical("objective", ["Logloss", "CrossEntropy"]),
        "depth": trial.suggest_int("depth", 1, 8),
        "colsample_bylevel": trial.suggest_float("colsample_bylevel", 0.01, 0.1, log=True),
    }
    train_x, valid_x, train_y, valid_y = train_test_split(
        *load_breast_cancer(return_X_y=True), test_size=0.25, random_state=0
    )
    model = catboost.CatBoostClassifier(
        iterations=200, thread_count=1, allow_writing_files=False, verbose=False, **params
    )
    model.fit(train_x, train_y)
    return float(((model.predict_proba(valid_x)[:, 1] > 0.5) == valid_y).mean())
