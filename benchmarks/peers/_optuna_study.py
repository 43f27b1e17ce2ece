"""An Optuna study in two processes with a journal between them: Optuna's best case on two cores.

Processes live on, the journal is in memory, and Optuna's pruner of successive halving stops trials.
"""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import MaxTrialsCallback
from optuna.trial import TrialState

optuna.logging.set_verbosity(optuna.logging.WARNING)
PROCESSES, ETA = 2, 3
OVER = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING)


class Task(NamedTuple):
    """The part of a study that a process is told."""

    case: str
    seed: int
    trials: int
    epochs: int
    storage: str
    log: str


class Trained(Protocol):
    """A trial in training."""

    def run_epoch(self) -> float:
        """Train for an epoch; return what is maximised."""


def opened(storage: str) -> optuna.Study:
    """Return the study in a journal, made if there is none."""
    return optuna.create_study(
        storage=JournalStorage(JournalFileBackend(storage)),
        study_name="s",
        direction="maximize",
        sampler=optuna.samplers.RandomSampler(seed=0),
        pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=ETA),
        load_if_exists=True,
    )


def train(trial: optuna.Trial, training: Trained, epochs: int) -> float:
    """Train and report each epoch. Raises ``TrialPruned`` where the pruner stops the trial."""
    for epoch in range(1, epochs + 1):
        accuracy = training.run_epoch()
        trial.report(accuracy, epoch)
        if trial.should_prune():
            raise optuna.TrialPruned
    return accuracy


def take_trials(task: Task, objective: Callable[[optuna.Trial], float]) -> None:
    """Take trials of the study until there are none."""
    study = opened(task.storage)
    if len(study.get_trials(deepcopy=False, states=OVER)) < task.trials:
        study.optimize(objective, callbacks=[MaxTrialsCallback(task.trials, states=OVER)])


def serve(session: Callable[[Any], None], work: Callable[[Task], None]) -> None:
    """Start the processes, in which ``work`` takes trials, and run the plan of a ``session``."""
    memory = Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder,
        multiprocessing.get_context("spawn").Pool(PROCESSES) as pool,
    ):

        def study(
            case: str, seed: int, chosen: list[dict[str, Any]], epochs: int, log: str
        ) -> None:
            storage = f"{folder}/{Path(log).name}.log"
            made = opened(storage)
            for point in chosen:
                made.enqueue_trial(point)
            # A chunk each, so that each process takes one.
            tasks = [Task(case, seed, len(chosen), epochs, storage, log)] * PROCESSES
            pool.map(work, tasks, chunksize=1)

        session(study)
