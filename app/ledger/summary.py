"""Summarise a study: its best trials, and its line in the list of studies.

Theory of operation. A finished study does not change. So its summary for the list is stored in the
study's row (``tables.STUDY``, column ``summary``), and the list reads nothing else. The writer of
the ledger (``SqlLedger``) computes the summary from the rows of the study's trials, after the
transaction that ends the study. When the writer opens a ledger, it adds missing summaries. Every
write to the row of a study empties the summary again. So the summary is right or empty, whenever
the writer was killed. If the summary is empty, the list reads the trials of the study (``listed``).

This module works on rows. It imports neither SQLAlchemy nor modules that know events.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ...scheduler.model.pareto import front
from ...scheduler.model.study import ENDLESS
from ...scheduler.model.trial import FINAL, TrialState
from ...scheduler.state.configurations import best_replicates

if TYPE_CHECKING:
    from .rows import StudyRow, TrialRow

Facts = dict[str, Any]

#: The attribute of a study in which Optuna stores the names of the objectives' values.
METRIC_NAMES = "study:metric_names"


def sign(study: StudyRow) -> float:
    """Return 1.0 if larger values of the first objective are better, else -1.0."""
    return 1.0 if study.direction == "maximize" else -1.0


def ranked(study: StudyRow, trials: Iterable[TrialRow]) -> list[TrialRow]:
    """Return the trials that have a finite value, best first. Equal trials are sorted by number.

    Failed trials are left out, since their last value is not a result. Trials that violate a
    constraint come last. With several objectives, the Pareto front comes first. The first objective
    orders the trials in the front, and also the trials after the front.
    """
    valued = [
        trial
        for trial in trials
        if trial.value is not None
        and math.isfinite(trial.value)
        and trial.state != TrialState.FAILED
    ]
    ahead = {trial.id for trial in _front(study, valued)} if study.further else set()
    return sorted(
        valued,
        key=lambda trial: (
            not trial.feasible,
            trial.id not in ahead,
            -sign(study) * (trial.value or 0.0),
            trial.number,
        ),
    )


def _front(study: StudyRow, valued: Iterable[TrialRow]) -> list[TrialRow]:
    """Return the Pareto front of ``valued``, in the given order.

    Trials that violate a constraint are left out.
    """
    feasible = [trial for trial in valued if trial.feasible]
    signs = [each.sign for each in study.objectives]
    rows = [[s * v for s, v in zip(signs, trial.values, strict=True)] for trial in feasible]
    return [feasible[index] for index in front(rows)]


def front_of(study: StudyRow, trials: Iterable[TrialRow]) -> list[TrialRow]:
    """Return the best trials, best first: one trial, or the Pareto front of several objectives.

    While the study runs, the best trial is the best so far, regardless of its epoch. Once the study
    is over, the best trial is the best completed trial, as in ``Study.best_trial``. If no trial
    completed, the best trial is the best of the trials that were trained longest. With replicates,
    the result has the trials of the best configuration, in order (``best_replicates``). Trials that
    violate a constraint are left out.
    """
    order = [trial for trial in ranked(study, trials) if trial.feasible]
    if study.finished_at is not None:
        longest = max((trial.epoch for trial in order), default=0)
        completed = [trial for trial in order if trial.state == TrialState.COMPLETED]
        order = completed or [trial for trial in order if trial.epoch == longest]
    if study.replicates == 1:
        return _front(study, order) if study.further else order[:1]
    by_number = {trial.number: trial for trial in order}
    values = {number: trial.value or 0.0 for number, trial in by_number.items()}
    return [by_number[n] for n in best_replicates(study.replicates, sign(study), values)]


def mean_of(trials: Sequence[TrialRow]) -> float | None:
    """Return the mean of the trials' values, or None if no trial has a value."""
    values = [trial.value for trial in trials if trial.value is not None]
    return sum(values) / len(values) if values else None


def trials_expected(study: StudyRow, so_far: int) -> int | None:
    """Return the expected number of trials of the study, of which ``so_far`` exist.

    The result is None for a study that runs until it is stopped.
    """
    if study.n_trials >= ENDLESS:
        return None if study.endless else so_far
    return max(study.n_trials, so_far)


def epochs_of(trials: Iterable[TrialRow]) -> int:
    """Return the number of epochs of ``trials``.

    Epochs that came with a forked state do not count.
    """
    return sum(max(0, trial.epoch - (trial.origin_epoch or 0)) for trial in trials)


def metric_names(system_attrs: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return the names of the objectives' values in the attributes of a study.

    The result is empty if the attributes have no names.
    """
    names = json.loads(dict(system_attrs).get(METRIC_NAMES, "[]"))
    return tuple(map(str, names)) if isinstance(names, list) else ()


def enqueued_of(study: StudyRow, counts: Mapping[TrialState, int]) -> int:
    """Return the number of trials that were enqueued after the end of a study.

    The number is 0 while the study runs. ``counts`` contains the number of trials in each state.
    """
    return 0 if study.finished_at is None else counts[TrialState.PROPOSED]


def facts_of(
    study: StudyRow,
    trials: Sequence[TrialRow],
    *,
    epochs: int,
    epochs_expected: int | None,
    eta: float | None = None,
    still: bool = False,
) -> Facts:
    """Return the identity and the progress of a study as one row. Times are in seconds since 1970.

    ``trials`` must have all trials of the study. ``eta`` is the time left in seconds, or None.
    ``still`` is True if the study stands still because no scheduler runs.
    """
    counts, best = Counter(TrialState(trial.state) for trial in trials), front_of(study, trials)
    enqueued = enqueued_of(study, counts)
    only = best[0] if best and not study.further else None
    return {
        "id": study.id,
        "name": study.name,
        "status": study.status,
        "stands_still": still,
        "message": study.message,
        "direction": study.direction,
        "metric": study.metric,
        "objectives": [asdict(each) for each in study.objectives],
        "strategy": study.strategy,
        "sampler": study.sampler,
        "seed": study.seed,
        "seeding": study.seeding,
        "replicates": study.replicates,
        "created_at": study.created_at,
        "finished_at": study.finished_at,
        "response_seconds": study.response,
        "weight": study.weight,
        "priority": study.priority,
        "n_trials": None if study.endless else study.n_trials,
        "copied_trials": study.observations,
        "enqueued_trials": enqueued,
        "trials_over": sum(n for state, n in counts.items() if state in FINAL),
        "trials_expected": trials_expected(study, len(trials) - enqueued),
        "trials": {str(state): count for state, count in sorted(counts.items())},
        "epochs": epochs,
        "epochs_expected": epochs_expected,
        "eta_seconds": eta,
        "best": None if only is None else trial_facts(only),
        "best_mean": None if only is None else mean_of(best),
        "front": [trial.number for trial in best],
    }


def trial_facts(trial: TrialRow) -> Facts:
    """Return the facts about a trial as one row."""
    failure = trial.failure_kind and {
        "kind": trial.failure_kind,
        "message": trial.failure_message,
        "traceback": trial.failure_traceback,
    }
    finite = trial.value is not None and math.isfinite(trial.value)
    return {
        "id": trial.id,
        "number": trial.number,
        "state": trial.state,
        "epoch": trial.epoch,
        "target": trial.target,
        "value": trial.value if finite else None,
        "values": [value if math.isfinite(value) else None for value in trial.values],
        "constraints": trial.constraints,
        "params": trial.params,
        "device": trial.device or None,
        "slot": trial.slot,
        "failure": failure,
    }
