"""Optuna's part of ``python -m benchmarks.headline``: a study in two processes, a journal between.

Its best case, as in ``optuna_processes.py``: processes that live on, a journal file in memory, and
its own pruner of successive halving, which stops trials.
"""

from __future__ import annotations

import multiprocessing
import tempfile
from pathlib import Path

import optuna
from _headline_work import CORES, DECAYS, ETA, RATES, Point, Training, session
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import MaxTrialsCallback
from optuna.trial import TrialState

optuna.logging.set_verbosity(optuna.logging.WARNING)
OVER = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING)


def opened(storage: str) -> optuna.Study:
    return optuna.create_study(
        storage=JournalStorage(JournalFileBackend(storage)),
        study_name="s",
        direction="maximize",
        sampler=optuna.samplers.RandomSampler(seed=0),
        pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=ETA),
        load_if_exists=True,
    )


def work(task: tuple[str, int, int, int, str, str]) -> None:
    """Take trials of the study until there are none: in one of the processes."""
    case, seed, trials, epochs, storage, log = task
    choices = {**{f"lr{n}": rates for n, rates in enumerate(RATES)}, "decay": DECAYS}

    def objective(trial: optuna.Trial) -> float:
        point = {name: trial.suggest_categorical(name, each) for name, each in choices.items()}
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
