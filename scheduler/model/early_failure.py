"""Whether a study fails before its trials are done, because all of them would fail.

Two mistakes of the user meet every trial: a metric that the code never reports, and an error that
the code raises whatever the parameters are. They show in the first trials. Without an end there,
the study would run, and fail, all of its trials before anyone is told.
"""

from __future__ import annotations

from collections.abc import Sequence

from .study import StudySpec
from .trial import FINAL, Failure, Trial, TrialState

#: After so many trials without the study's metric, and none with it, the study fails.
METRIC_LIMIT = 3
#: Kinds of failures that have an exception and a line of the user's code.
_RAISED = frozenset({"exception", "code"})
_SHOWN = 300  # characters of the exception in the study's message


def missing_metric(spec: StudySpec, trials: Sequence[Trial]) -> str:
    """Why the study should fail for want of its metric; empty if it should not.

    It should when ``METRIC_LIMIT`` trials ended without the metric and no trial had it.
    """
    failures = [t.failure for t in trials if t.failure and t.failure.kind == "metric"]
    if len(failures) < METRIC_LIMIT or any(t.value is not None for t in trials):
        return ""
    reason = f"the first {len(failures)} trials ended without {spec.metric}"
    return f"{reason}, as all would: {failures[0].message}"


def failing_alike(spec: StudySpec, trials: Sequence[Trial]) -> str:
    """Why the study should fail for an error that meets every trial; empty if it should not.

    It should when ``spec.fail_early`` trials or more have ended, all with one exception in one
    line, and no trial has an accepted epoch or a value. A trial that began before the first failure
    and is still at work may get further, so it is waited for.
    """
    ended = [trial for trial in trials if trial.state in FINAL]
    if not spec.fail_early or len(ended) < spec.fail_early:
        return ""
    if any(trial.epoch or trial.value is not None for trial in trials):
        return ""
    alike = {_raised(trial.failure) for trial in ended}
    if None in alike or len(alike) > 1 or _any_older(ended, trials):
        return ""
    failure = ended[0].failure
    assert failure is not None, "each one that ended has failed"
    return (
        f"the first {len(ended)} trials failed alike, as all would: {_said(failure)}."
        " Correct the code and submit the study again under a new name, or let it go on in spite of"
        " failures: optimize(..., catch=(Exception,)), or limits=penstock.Limits(fail_early=0)"
    )


def _any_older(ended: Sequence[Trial], trials: Sequence[Trial]) -> bool:
    """Whether a trial is at work that began before the first one failed."""
    first = min(trial.finished_at or 0.0 for trial in ended)
    running = [trial for trial in trials if trial.state is TrialState.RUNNING]
    return any((trial.dispatched_at or 0.0) < first for trial in running)


def _raised(failure: Failure | None) -> tuple[str, str] | None:
    """The type of the exception, and the line that raised it. None for other failures.

    Without a line of the user's code, its text stands for it.
    """
    if failure is None or failure.kind not in _RAISED:
        return None
    return failure.message.partition(":")[0], _line(failure) or failure.message


def _line(failure: Failure) -> str:
    """The innermost line of the user's code, as ``/path/train.py:12``; empty if there is none."""
    for text in reversed(failure.traceback.splitlines()):
        head, found, rest = text.partition('", line ')
        if found and head.lstrip(" |").startswith('File "'):
            file, number = head.partition('"')[2], rest.partition(",")[0]
            return f"{file}:{number}"
    return ""


def _said(failure: Failure) -> str:
    """The exception and its line, for the study's message."""
    said = failure.message if len(failure.message) <= _SHOWN else f"{failure.message[:_SHOWN]}..."
    line = _line(failure)
    return f"{said.rstrip('.')} (at {line})" if line else said.rstrip(".")
