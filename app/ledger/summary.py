"""Summarises a study: which trials are the best, and what the list of studies shows of it.

Theory of operation. A study that is over does not change, so what the list shows of it is kept in
its row (``tables.STUDY``, column ``summary``), and the list reads nothing else. The ledger's writer
computes it from the rows of the study's trials after the transaction that ends the study
(``SqlLedger``), and when it opens a ledger, for whatever has none. Every write of a study's row
empties it again. So it is right or empty, whenever the writer was killed. Of a study without one
the list reads the trials (``listed``).

It is arithmetic over rows, and imports no SQLAlchemy and nothing that knows events.
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

#: The attribute of a study in which Optuna has the names of values.
METRIC_NAMES = "study:metric_names"


def sign(study: StudyRow) -> float:
    """+1 where larger is better, -1 where smaller is."""
    return 1.0 if study.direction == "maximize" else -1.0


def ranked(study: StudyRow, trials: Iterable[TrialRow]) -> list[TrialRow]:
    """Trials that have a value, best first; equal values in the order of their numbers.

    Failed trials are left out, because their last value is not a result. Trials that violate a
    constraint come last. With several objectives the Pareto front comes first; within it and after
    it the first objective decides.
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
    """Return the trials that no other one beats in every objective, in their order."""
    feasible = [trial for trial in valued if trial.feasible]
    signs = [each.sign for each in study.objectives]
    rows = [[s * v for s, v in zip(signs, trial.values, strict=True)] for trial in feasible]
    return [feasible[index] for index in front(rows)]


def front_of(study: StudyRow, trials: Iterable[TrialRow]) -> list[TrialRow]:
    """Return the best trials, best first: the best one, or the Pareto front of the objectives.

    While the study runs it is the best so far, whatever its epoch. Once the study is over it is a
    completed trial, as in ``Study.best_trial``. If no trial completed, it is the best of those
    trained longest. With replicates it is those of the best configuration, in their order
    (``best_replicates``).
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
    """Return the mean of the trials' values; None without any."""
    values = [trial.value for trial in trials if trial.value is not None]
    return sum(values) / len(values) if values else None


def trials_expected(study: StudyRow, so_far: int) -> int | None:
    """Return the expected number of trials in all, given ``so_far``; None if it is open."""
    if study.n_trials >= ENDLESS:
        return None if study.endless else so_far
    return max(study.n_trials, so_far)


def epochs_of(trials: Iterable[TrialRow]) -> int:
    """Return the number of epochs of ``trials`` by their rows, without those of their origins."""
    return sum(max(0, trial.epoch - (trial.origin_epoch or 0)) for trial in trials)


def metric_names(system_attrs: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return the names of values that a study's attributes give; empty where they give none."""
    names = json.loads(dict(system_attrs).get(METRIC_NAMES, "[]"))
    return tuple(map(str, names)) if isinstance(names, list) else ()


def enqueued_of(study: StudyRow, counts: Mapping[TrialState, int]) -> int:
    """Return the number of further trials that the user has enqueued in a study that is over."""
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
    """Return a study in one row: its identity and its progress. Times are seconds since 1970.

    ``trials`` are all of its trials. ``eta`` is in seconds, and ``still`` is as in
    ``views.progress.View``.
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
    """Return a trial in one row."""
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
