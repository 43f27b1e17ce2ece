"""The lightgbm objective of ``benchmarks.optuna``. Trainers import this module by its name."""

from __future__ import annotations

import lightgbm
import optuna
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split


def objective(trial: optuna.Trial) -> float:
    """As Optuna's ``lightgbm_simple.py``, on one thread."""
    params = {
        "objective": "binary",
        "verbosity": -1,
        "num_threads": 1,
        "lambda_l1": trial.suggest_float("lambda_l1", 1e-8, 10.0, log=True),
        "num_leaves": trial.suggest_int("num_leaves", 2, 256),
        "feature_fraction": trial.suggest_float("feature_fraction", 0.4, 1.0),
        "min_child_samples": trial.suggest_int("min_child_samples", 5, 100),
    }
    train_x, valid_x, train_y, valid_y = train_test_split(
        *load_breast_cancer(return_X_y=True), test_size=0.25, random_state=0
    )
    model = lightgbm.train(params, lightgbm.Dataset(train_x, label=train_y))
    return float(((model.predict(valid_x) > 0.5) == valid_y).mean())
