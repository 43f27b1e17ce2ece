"""Optuna's part of ``python -m benchmarks.ordinary`` (``_optuna_study``)."""

from __future__ import annotations

import optuna
from _optuna_study import Task, serve, take_trials, train
from _ordinary_work import BOUNDS, session, training


def work(task: Task) -> None:
    """Take trials of the study: in one of the processes."""

    def objective(trial: optuna.Trial) -> float:
        point = {
            name: trial.suggest_float(name, *bounds, log=True) for name, bounds in BOUNDS.items()
        }
        return train(trial, training(task.case, point, task.seed, task.log), task.epochs)

    take_trials(task, objective)


if __name__ == "__main__":
    serve(session, work)
