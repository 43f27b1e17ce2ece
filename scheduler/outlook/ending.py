"""Facts of a study that is over, for people and programs that are notified about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import isfinite
from typing import Any

from ..model.events import Event, StudyStopped
from ..model.pareto import front
from ..model.study import StudySpec
from ..model.trial import Trial, TrialState
from ..state.configurations import as_sampled
from ..state.state import StudyState

#: The longest message that is sent (characters).
LONGEST = 300


def ended_before(study: StudyState, event: Event, at: float) -> bool:
    """Return True if a study that is over after ``event`` was already over before it.

    Such a study was reopened for an action of its user. The action was refused, so the study is
    closed again.
    """
    end = at if study.finished_at is None else study.finished_at
    return isinstance(event, StudyStopped) and end < at


def ending(study: StudyState, trials: Sequence[Trial], at: float) -> dict[str, Any]:
    """Return a study's summary at its end: status, message, seconds, and trials by state."""
    states = Counter(str(trial.state) for trial in trials)
    return {
        "status": study.status,
        "message": study.message[:LONGEST],
        "seconds": max(0.0, at - study.created_at),
        "trials": dict(sorted(states.items())),
    }


def best_trials(spec: StudySpec, trials: Sequence[Trial]) -> list[Trial]:
    """Return the best trial of a study that is over, or the trials of its Pareto front.

    The result is empty if no trial has a value. The replicates of a configuration count as one
    trial, whose value is the mean of theirs and whose number is that of the configuration.
    """
    valued = [
        trial
        for trial in as_sampled(spec, trials)
        if trial.value is not None and isfinite(trial.value) and trial.feasible
    ]
    longest = max((trial.epoch for trial in valued), default=0)
    completed = [trial for trial in valued if trial.state is TrialState.COMPLETED]
    candidates = completed or [trial for trial in valued if trial.epoch == longest]
    if spec.further:
        signs = [each.sign for each in spec.objectives]
        values = [(trial.value or 0.0, *trial.further) for trial in candidates]
        scores = [[s * v for s, v in zip(signs, row, strict=True)] for row in values]
        return [candidates[index] for index in front(scores)]
    best = max(
        candidates,
        key=lambda trial: (spec.sign * (trial.value or 0.0), -trial.number),
        default=None,
    )
    return [] if best is None else [best]
