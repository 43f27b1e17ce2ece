"""Optuna's part of ``python -m benchmarks.headline`` (``_optuna_study``)."""

from __future__ import annotations

import optuna
from _headline_work import DECAYS, RATES, Training, session
from _optuna_study import Task, serve, take_trials, train


def work(task: Task) -> None:
    """Take trials of the study: in one of the processes."""
    choices = {**{f"lr{n}": rates for n, rates in enumerate(RATES)}, "decay": DECAYS}

    def objective(trial: optuna.Trial) -> float:
        point = {name: trial.suggest_categorical(name, each) for name, each in choices.items()}
        return train(trial, Training(task.case, point, task.seed, task.log), task.epochs)

    take_trials(task, objective)


if __name__ == "__main__":
    serve(session, work)
