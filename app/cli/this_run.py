"""Makes of a study's outcome what one run of a script says: what it did of it, in its words.

A study may have trials from before: of earlier runs, copied from a storage, or added by its user.
They are results like any other, but they took no time of this run, and failed in none of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...scheduler.model.trial import TOLD, TrialState
from ..views.progress import told

if TYPE_CHECKING:
    from ..ledger.reader import Reader
    from ..ledger.rows import TrialRow
    from ..study.script import Outcome


def of_this_run(result: Outcome, reader: Reader, since: float, start_up: float | None) -> Outcome:
    """``result`` with the times, the counts and the failures of a run's own trials.

    The run began at ``since``, and what it did for the study at ``start_up`` (seconds of the
    clock; None where only the study's first dispatch tells). A run without trials has no times,
    and leaves the rest as it is.
    """
    trials = [each for each in reader.trials(result.study.id) if _is_of_run(each, since)]
    if not trials:
        return replace(result, start_up=None, training=0.0)
    states = Counter(TrialState(each.state) for each in trials)
    result = replace(
        result,
        progress=replace(result.progress, counts=states),
        failed=tuple(each for each in trials if each.state == TrialState.FAILED),
    )
    own = {each.id for each in trials}
    epochs = [row for row in reader.epochs(result.study.id) if row.trial in own and row.at >= since]
    if epochs:
        started = min(row.at - row.seconds for row in epochs)
        ended = result.study.finished_at or max(row.at for row in epochs)
    elif states[TrialState.COMPLETED]:
        started = min(map(_began, trials))
        ended = max(each.finished_at or started for each in trials)
    else:
        return replace(result, start_up=None, training=0.0)
    # What was at work already, because the study went on without a script, needed no start-up.
    started = max(started, since)
    begin = _first(trials, since) if start_up is None else start_up
    return replace(result, start_up=max(0.0, started - begin), training=max(0.0, ended - started))


def as_named(result: Outcome, reader: Reader) -> Outcome:
    """``result`` with the names that the study's user gave the values of its objectives.

    Of trials that failed because their user said so it says that.
    """
    study = reader.with_names(result.study)
    failed = [
        replace(each, failure_message=told(each)) if each.failure_kind == TOLD else each
        for each in result.failed
    ]
    study = replace(study, metric=study.shown_metric)
    return replace(result, study=study, failed=tuple(failed))


def _is_of_run(trial: TrialRow, since: float) -> bool:
    if trial.finished_at is not None and trial.finished_at < since:
        return False
    # A trial that was added with its result never ran here: it ended when it began.
    return trial.dispatched_at is not None or trial.finished_at not in (None, trial.created_at)


def _first(trials: Sequence[TrialRow], since: float) -> float:
    return max(since, min(map(_began, trials)))


def _began(trial: TrialRow) -> float:
    return trial.created_at if trial.dispatched_at is None else trial.dispatched_at
