"""Returns the figures of a study that is over as one JSON object, for users' tasks.

For a task that is sent when a study ends, the scheduler makes the object from its state. For a task
that waits for a study, the worker makes the object from the ledger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...scheduler.outlook.ending import LONGEST, best_trials, ending

if TYPE_CHECKING:
    from ...app.ledger.reader import Reader
    from ...app.ledger.rows import StudyRow
    from ...scheduler.model.trial import Trial
    from ...scheduler.state.state import StudyState

Facts = dict[str, Any]
#: The most trials of a Pareto front that the object has.
MOST = 100


def of_state(study: StudyState, trials: Sequence[Trial], at: float) -> Facts:
    """Return the figures of a study that ended at ``at``, from the engine's state."""
    spec, size = study.spec, study.spec.replicates
    best = [
        _trial(trial.number * size, (trial.value or 0.0, *trial.further), dict(trial.params))
        for trial in best_trials(spec, trials)
    ]
    figures = {"id": spec.id, "name": spec.name, **ending(study, trials, at)}
    return figures | _best(best, several=bool(spec.further))


def of_ledger(reader: Reader, study: StudyRow) -> Facts:
    """Return the figures of a study that is over, from the ledger."""
    from ...app.ledger.summary import front_of, mean_of

    trials = reader.trials(study.id)
    front = front_of(study, trials)
    if study.replicates > 1 and front:
        best = [_trial(front[0].number, (mean_of(front) or 0.0,), front[0].params)]
    else:
        best = [_trial(trial.number, trial.values, trial.params) for trial in front]
    return {
        "id": study.id,
        "name": study.name,
        "status": study.status,
        "message": study.message[:LONGEST],
        "seconds": study.response,
        "trials": dict(sorted(Counter(trial.state for trial in trials).items())),
        **_best(best, several=bool(study.further)),
    }


def _trial(number: int, values: Sequence[float], params: dict[str, Any]) -> Facts:
    return {"number": number, "values": list(values), "params": params}


def _best(best: list[Facts], *, several: bool) -> Facts:
    """Return the best trial under the key ``best``, or None under this key if there is no result.

    With several objectives, the key ``front`` has the trials of the Pareto front, and ``best`` is
    the trial of the front with the lowest number.
    """
    if several:
        front = sorted(best, key=lambda trial: int(trial["number"]))[:MOST]
        return {"best": front[0] if front else None, "front": front}
    if not best:
        return {"best": None}
    only = best[0]
    [value] = only.pop("values")
    return {"best": {**only, "value": value}}
