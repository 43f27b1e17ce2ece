"""Optuna's part of ``python -m benchmarks.peers``: one study in two processes, a journal between.

Its best case: processes that live on from study to study with torch loaded, a journal file in
memory, and its pruners, which stop trials.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from pathlib import Path
from typing import Any

import optuna
from _session import CORES, ETA, session
from _training import Training
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import MaxTrialsCallback
from optuna.trial import TrialState

optuna.logging.set_verbosity(optuna.logging.WARNING)
OVER = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING)


def pruner(tuner: str, epochs: int) -> optuna.pruners.BasePruner:
    """Optuna's own of that name."""
    if tuner == "asha":
        return optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=ETA)
    if tuner == "hyperband":
        return optuna.pruners.HyperbandPruner(1, epochs, ETA)
    return optuna.pruners.NopPruner()


def opened(storage: str, job: dict[str, Any]) -> optuna.Study:
    return optuna.create_study(
        storage=JournalStorage(JournalFileBackend(storage)),
        study_name="s",
        sampler=optuna.samplers.RandomSampler(seed=0),
        pruner=pruner(job["tuner"], job["epochs"]),
        load_if_exists=True,
    )


def work(task: tuple[dict[str, Any], str, str]) -> None:
    """Take trials of the study until there are none: in one of the processes."""
    job, storage, log = task

    def objective(trial: optuna.Trial) -> float:
        lr = trial.suggest_float("lr", 1e-5, 1.0, log=True)
        training = Training(lr, job["steps"], log, job["net"])
        for epoch in range(1, job["epochs"] + 1):
            loss = training.run_epoch()
            trial.report(loss, epoch)
            if trial.should_prune():
                raise optuna.TrialPruned
        return loss

    study = opened(storage, job)
    if len(study.get_trials(deepcopy=False, states=OVER)) < len(job["lrs"]):
        study.optimize(objective, callbacks=[MaxTrialsCallback(len(job["lrs"]), states=OVER)])


def main() -> None:
    """Start the processes, run the plan."""
    memory = Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder,
        multiprocessing.get_context("spawn").Pool(CORES) as pool,
    ):

        def study(job: dict[str, Any], log: Path) -> None:
            storage = f"{folder}/{log.name}.log"
            made = opened(storage, job)
            for lr in job["lrs"]:
                made.enqueue_trial({"lr": lr})
            # A chunk each, so that each process takes one.
            pool.map(work, [(job, storage, str(log))] * CORES, chunksize=1)

        session(study, lambda: [os.getpid()], Path(folder))


if __name__ == "__main__":
    main()
