"""Optuna's part of ``python -m benchmarks.ordinary``: a study in two processes, a journal between.

Its best case, as in ``headline_optuna.py``: processes that live on, a journal file in memory, and
its own pruner of successive halving.
"""

from __future__ import annotations

import multiprocessing
import tempfile
from pathlib import Path

import optuna
from _ordinary_work import CORES, Point, Training, session
from headline_optuna import OVER, opened
from optuna.study import MaxTrialsCallback

optuna.logging.set_verbosity(optuna.logging.WARNING)


def work(task: tuple[str, int, int, int, str, str]) -> None:
    """Take trials of the study until there are none: in one of the processes."""
    case, seed, trials, epochs, storage, log = task

    def objective(trial: optuna.Trial) -> float:
        point = {
            "lr": trial.suggest_float("lr", 1e-3, 10**-0.7, log=True),
            "decay": trial.suggest_float("decay", 1e-6, 1e-3, log=True),
        }
        training = Training(case, point, seed, log)
        for epoch in range(1, epochs + 1):
            accuracy = training.run_epoch()
            trial.report(accuracy, epoch)
            if trial.should_prune():
                raise optuna.TrialPruned
        return accuracy

    study = opened(storage)
    if len(study.get_trials(deepcopy=False, states=OVER)) < trials:
        study.optimize(objective, callbacks=[MaxTrialsCallback(trials, states=OVER)])


def main() -> None:
    """Start the processes, run the plan."""
    memory = Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder,
        multiprocessing.get_context("spawn").Pool(CORES) as pool,
    ):

        def study(case: str, seed: int, chosen: list[Point], epochs: int, log: str) -> None:
            storage = f"{folder}/{Path(log).name}.log"
            made = opened(storage)
            for point in chosen:
                made.enqueue_trial(point)
            # A chunk each, so that each process takes one.
            tasks = [(case, seed, len(chosen), epochs, storage, log)] * CORES
            pool.map(work, tasks, chunksize=1)

        session(study)


if __name__ == "__main__":
    main()
