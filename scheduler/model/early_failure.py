"""Early failure: a study fails or pauses after its first trials if all of them would fail alike.

Theory of operation. Two mistakes of the user affect every trial: a metric that the code never
reports, and an error that the code raises whatever the parameters are. Both show in the first
trials. Without an early end, the study would run and fail all of its trials before its user is
told.

An error may also affect only a part of the search space, such as ``heads=5`` if half of all choices
are invalid, and by chance the first trials may lie in that part. So there must be evidence that all
trials would fail: the same exception in the same line, and no parameter that tells the failed
trials from trials that may pass. A parameter tells them apart if all failed trials have one value
of the parameter and the space has further values, or if the values of the failed trials lie on one
side of the middle of the parameter's range. If objectives draw their parameters, the range is the
one that all failed trials drew from. If that range is not known, trials with ``VARIED`` different
numbers have to fail. If a trial fails before it drew any parameter, the code is at fault.

The study continues until no parameter tells the trials apart any more, and then it fails. If a
parameter still does after ``MOST`` trials, the study pauses and names that parameter: the user may
correct the space or resume the study. People who watch the study are notified of the pause at once,
as they are of a failure.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from .study import Scalar, StudySpec
from .trial import FINAL, Failure, Trial, TrialState

#: Number of trials without the study's metric at which the study fails, if no trial had the metric.
METRIC_LIMIT = 3
#: Number of trials that failed alike at which the study pauses, if a parameter tells them from
#: trials that may pass.
MOST = 12
#: Number of different values that suffice as evidence for a numeric parameter of unknown range.
VARIED = 6
#: The most values that a message lists. For more values the message gives a bound.
_NAMED = 3
#: The distributions of a study's parameters, as JSON text by name.
Space = Sequence[tuple[str, str]]
#: Kinds of failures that have an exception and a line of the user's code.
_RAISED = frozenset({"exception", "code"})
_SHOWN = 300  # characters of the exception in the study's message
#: The start of the message of a study that pauses because a part of its space fails.
_IN_PART = re.compile(r"the first \d+ trials failed alike, and ")


def missing_metric(spec: StudySpec, trials: Sequence[Trial]) -> str:
    """Return the reason why the study should fail for lack of its metric; empty if there is none.

    The study fails when ``METRIC_LIMIT`` trials ended without the metric and no trial had it.
    """
    failures = [t.failure for t in trials if t.failure and t.failure.kind == "metric"]
    if len(failures) < METRIC_LIMIT or any(t.value is not None for t in trials):
        return ""
    reason = f"the first {len(failures)} trials ended without {spec.metric}"
    return f"{reason}, as all would: {failures[0].message}"


def failing_alike(spec: StudySpec, trials: Sequence[Trial]) -> str:
    """Return the reason to fail the study for an error that every trial meets; empty if none.

    The study should fail when at least ``spec.fail_early`` trials have ended, all with the same
    exception in the same line, and no trial has an accepted epoch or a value. A trial that was
    dispatched before the first failure and still runs may get further, so the study waits for that
    trial. With ``spec.evidence``, the study fails only if no parameter tells the failed trials from
    trials that may pass.
    """
    ended = _alike(spec, trials)
    if not ended or (spec.evidence and _may_differ(spec, ended)):
        return ""
    failure = ended[0].failure
    assert failure is not None, "each one that ended has failed"
    return (
        f"the first {len(ended)} trials failed alike, as all would: {_said(failure)}."
        " Correct the code and submit the study again under a new name, or let it go on in spite of"
        " failures: optimize(..., catch=(Exception,)), or limits=penstock.Limits(fail_early=0)"
    )


def failing_in_part(spec: StudySpec, trials: Sequence[Trial]) -> str:
    """Return the reason to pause the study for an error in a part of its space; empty if none.

    The study should pause when ``MOST`` trials have failed as ``failing_alike`` describes, or
    ``spec.fail_early`` trials if that is more. Call this only if ``failing_alike`` gives no reason:
    then a parameter still tells the failed trials from trials that may pass.
    """
    ended = _alike(spec, trials) if spec.evidence else ()
    if len(ended) < max(MOST, spec.fail_early):
        return ""
    failure = ended[0].failure
    assert failure is not None, "each one that ended has failed"
    params = [dict(trial.params) for trial in ended]
    shared = telling(params, space=_space(spec, ended))
    typed = spec.id if spec.name.startswith("-") else shlex.quote(spec.name)
    which = f"all have {', '.join(shared)}" if shared else "too few of their parameters differ"
    return (
        f"the first {len(ended)} trials failed alike, and {which}, so others may pass:"
        f" {_said(failure)}. `penstock resume {typed}` has the study go on. If the code or the"
        f" space is wrong, `penstock cancel {typed}`, correct it, and submit it under a new name"
    )


def is_in_part(message: str) -> bool:
    """Return True if ``message``, which a study has, was made by ``failing_in_part``."""
    return _IN_PART.match(message) is not None


def telling(
    failed: Sequence[Mapping[str, Scalar]],
    passed: Sequence[Mapping[str, Scalar]] = (),
    space: Space | None = None,
) -> tuple[str, ...]:
    """Describe how parameters of failed trials differ: *heads = 5*, *lr above 0.1*.

    The failed trials are compared with the trials that ``passed``, or, if none passed, with the
    rest of ``space``. If the distribution of a parameter is not known, the rest of the space is
    assumed to have further values. The result is empty if no parameter differs.
    """
    names = [name for name in failed[0] if all(name in each for each in failed)] if failed else []
    attributes = {name: _attributes(text) for name, text in space or ()}
    words = []
    for name in names:
        values = [each[name] for each in failed]
        values_passed = [each[name] for each in passed if name in each]
        apart = (
            _apart(values, values_passed)
            if passed
            else _one_sided(values, attributes.get(name, {}))
        )
        if apart:
            words.append(f"{name} {apart}")
    return tuple(words)


def _apart(values: Sequence[Scalar], others: Sequence[Scalar]) -> str:
    """Return words that tell ``values`` from all ``others``; empty if there are none."""
    kinds = {_key(value): value for value in values}
    if not others or kinds.keys() & {_key(value) for value in others}:
        return ""
    if len(kinds) <= _NAMED:
        return f"= {' or '.join(map(str, kinds.values()))}"
    numbers, rest = _numbers(values), _numbers(others)
    if not numbers or not rest:
        return ""
    if min(numbers) > max(rest):
        return f"above {max(rest):.4g}"
    return f"below {min(rest):.4g}" if max(numbers) < min(rest) else ""


def _attributes(text: str) -> Mapping[str, Any]:
    """Return the attributes of a distribution (JSON); empty if it has none.

    An objective may have reported any JSON text as a distribution.
    """
    body = json.loads(text)
    attributes = body.get("attributes") if isinstance(body, dict) else None
    return attributes if isinstance(attributes, dict) else {}


def _one_sided(values: Sequence[Scalar], attributes: Mapping[str, Any]) -> str:
    """Return words for the value, or the side of the range, that all ``values`` have in common.

    The result is empty if they have neither, or if the range has only this value.
    """
    choices, bounds = attributes.get("choices"), [attributes.get("low"), attributes.get("high")]
    if len({_key(value) for value in values}) == 1:
        only = isinstance(choices, list) and len(choices) == 1
        return "" if only or (_numbers(bounds) and bounds[0] == bounds[1]) else f"= {values[0]}"
    numbers = _numbers(values)
    if choices is not None or not _numbers(bounds) or not numbers:
        return ""
    low, high = _numbers(bounds)
    log = bool(attributes.get("log")) and low > 0
    middle = math.sqrt(low) * math.sqrt(high) if log else (low + high) / 2
    if min(numbers) > middle:
        return f"above {middle:.4g}"
    return f"below {middle:.4g}" if max(numbers) < middle else ""


def _key(value: Scalar) -> tuple[bool, Scalar]:
    """Return a key for ``value``, with which True differs from 1, and False from 0."""
    return isinstance(value, bool), value


def _numbers(values: Sequence[Scalar]) -> list[float]:
    """Return ``values`` if all of them are numbers; else an empty list."""
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    return numbers if len(numbers) == len(values) else []


def _may_differ(spec: StudySpec, ended: Sequence[Trial]) -> bool:
    """Return True if trials with other parameters than the failed ones may pass."""
    params = [dict(trial.params) for trial in ended]
    space = _space(spec, ended)
    if telling(params, space=space):
        return True
    if spec.space is not None:
        return False
    # A few numbers of an unknown range may well lie on one side of its middle.
    unknown = params[0].keys() - {name for name, _ in space}
    columns = ([each[name] for each in params if name in each] for name in unknown)
    return any(
        _numbers(values) and len({*values}) < VARIED
        for values in columns
        if len(values) == len(params)
    )


def _space(spec: StudySpec, ended: Sequence[Trial]) -> Space:
    """Return the study's space, or else the distributions that all ``ended`` trials drew from."""
    if spec.space is not None:
        return spec.space
    ranges = [{(each.name, each.distribution) for each in trial.suggestions} for trial in ended]
    return sorted(ranges[0].intersection(*ranges[1:]))


def _alike(spec: StudySpec, trials: Sequence[Trial]) -> Sequence[Trial]:
    """Return the ended trials if all failed alike and no running trial may get further.

    Otherwise the result is empty, as it is if fewer than ``spec.fail_early`` trials have ended.
    """
    ended = [trial for trial in trials if trial.state in FINAL]
    if not spec.fail_early or len(ended) < spec.fail_early:
        return ()
    if any(trial.epoch or trial.value is not None for trial in trials):
        return ()
    alike = {_raised(trial.failure) for trial in ended}
    if None in alike or len(alike) > 1 or _any_older(ended, trials):
        return ()
    return ended


def _any_older(ended: Sequence[Trial], trials: Sequence[Trial]) -> bool:
    """Return True if a running trial was dispatched before the first trial ended."""
    first = min(trial.finished_at or 0.0 for trial in ended)
    running = [trial for trial in trials if trial.state is TrialState.RUNNING]
    return any((trial.dispatched_at or 0.0) < first for trial in running)


def _raised(failure: Failure | None) -> tuple[str, str] | None:
    """Return the type of the exception and the line that raised it; None for other failures.

    If no line of the user's code is known, the failure's message takes the line's place.
    """
    if failure is None or failure.kind not in _RAISED:
        return None
    return failure.message.partition(":")[0], _line(failure) or failure.message


def _line(failure: Failure) -> str:
    """Return the innermost line of the user's code (``/path/train.py:12``); empty if none."""
    for text in reversed(failure.traceback.splitlines()):
        head, separator, rest = text.partition('", line ')
        if separator and head.lstrip(" |").startswith('File "'):
            file, number = head.partition('"')[2], rest.partition(",")[0]
            return f"{file}:{number}"
    return ""


def _said(failure: Failure) -> str:
    """Return the exception and its line as words for the study's message."""
    message = (
        failure.message if len(failure.message) <= _SHOWN else f"{failure.message[:_SHOWN]}..."
    )
    line = _line(failure)
    return f"{message.rstrip('.')} (at {line})" if line else message.rstrip(".")
