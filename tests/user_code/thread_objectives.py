"""Objectives that say with how many threads a library computes in their trainer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 5))
Y = (X[:, 0] > 0).astype(int)


def threads():
    """Return the number of threads of this process."""
    return len([*Path("/proc/self/task").iterdir()])


def started_by(fit):
    """The threads that ``fit`` computes with: those that it started and keeps, and its own."""
    before = threads()
    fit()
    return 1 + threads() - before


def numpy(trial):
    from threadpoolctl import threadpool_info

    return max(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")


def scikit_learn(trial):
    from sklearn.ensemble import HistGradientBoostingClassifier

    return started_by(lambda: HistGradientBoostingClassifier(max_iter=2).fit(X, Y))


def joblib(trial):
    from joblib import cpu_count, effective_n_jobs

    assert effective_n_jobs(-1) == cpu_count(only_physical_cores=True)
    return effective_n_jobs(-1)


def joblib_told(trial):
    from joblib import effective_n_jobs

    return effective_n_jobs(5)


def xgboost(trial):
    from xgboost import XGBClassifier

    return started_by(lambda: XGBClassifier(n_estimators=2).fit(X, Y))


def lightgbm(trial):
    """Both of its interfaces, which count differently."""
    import lightgbm

    data = lightgbm.Dataset(X, Y)
    trained = started_by(lambda: lightgbm.train({"verbose": -1}, data, num_boost_round=2))
    fitted = started_by(lambda: lightgbm.LGBMClassifier(n_estimators=2, verbose=-1).fit(X, Y))
    return max(trained, fitted)


def polars(trial):
    import polars

    return polars.thread_pool_size()


def tokenizers(trial):
    """Rayon's threads are all of its own: the calling one waits."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return started_by(lambda: tokenizer.encode_batch(["one two"] * 1000)) - 1


def catboost(trial, **options):
    """Return the thread count that models report, which is the same for each way to train one."""
    import catboost

    options |= {"iterations": 2, "verbose": 0, "allow_writing_files": False}
    model = catboost.CatBoostClassifier(**options).fit(X, Y)
    assert model.get_params() == options
    pool = catboost.Pool(X, Y)
    trained = catboost.train(pool, {"loss_function": "Logloss"} | options)
    assert (trained.predict(pool) == model.predict(X, prediction_type="RawFormulaVal")).all()
    numbers = {_thread_count(model), _thread_count(trained)}
    for each in catboost.cv(pool, trained.get_params(), fold_count=2, return_models=True)[1]:
        numbers.add(_thread_count(each))
    [number] = numbers
    return number


def catboost_told(trial):
    return catboost(trial, thread_count=5)


def catboost_told_all(trial):
    """Return the thread count for CatBoost's default of -1, which is the slot's cores as well."""
    import catboost

    options = {"iterations": 2, "verbose": 0, "allow_writing_files": False, "thread_count": -1}
    return _thread_count(catboost.CatBoostClassifier(**options).fit(X, Y))


def _thread_count(model):
    return json.loads(model.get_metadata()["params"])["system_options"]["thread_count"]
