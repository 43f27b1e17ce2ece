"""Turns users' commands for branches into events, checked against the engine's state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ...app.common.validation import finite, whole
from ...app.runner.user_commands import Context, Words, no_trial
from ...app.spec.conditions import is_active
from ...app.spec.space import Categorical, Int, Parameter, check_params, parameter
from ...profiling.base.errors import UsageError
from ...profiling.base.values import Natural
from ...scheduler.model.events import Event
from ...scheduler.model.finished import FinishedStudy
from ...scheduler.model.study import (
    Params,
    Scalar,
    StudyRecord,
    StudySpec,
    number_of,
    study_of_trial,
)
from ...scheduler.model.trial import Trial
from ...scheduler.state.state import EngineState, StudyState
from ...scheduler.strategies.full import FullBudget
from .checks import last_epoch, refusal
from .events import Branched


def _branched(
    context: Context,
    *,
    study: str,
    number: Natural,
    epoch: Natural,
    params: dict[str, Scalar],
    to: Natural = 0,
    copies: Natural = 1,
    outside: bool = False,
    who: Words = "",
    why: Words = "",
) -> Event:
    known, trial = context.trial_at_work(study, number)
    to = to or last_epoch(known)
    _refuse(known, trial, epoch, to, copies)
    values = values_of(known.spec, trial.params, params, outside=outside)
    if not values.changed and copies == 1:
        raise UsageError(
            f"a branch with the values of trial {number} would be trial {number} again: give a"
            f" value that differs, as lr=0.001, or --copies 2"
        )
    return Branched(
        at=context.at,
        trial=trial.id,
        epoch=epoch,
        to=to,
        params=values.params,
        changed=values.changed,
        copies=copies,
        outside=values.outside,
        who=who,
        why=why,
    )


#: Kinds of command, each with the function whose arguments are its fields.
COMMANDS: Mapping[str, Callable[..., Event]] = {"branch": _branched}


def answer(event: Event, state: EngineState) -> Iterator[tuple[str, Any]]:
    """Yield what the reply to a command says: the numbers of the trials that were made."""
    study = state.studies.get(study_of_trial(event.trial)) if isinstance(event, Branched) else None
    if isinstance(event, Branched) and study is not None:
        yield "numbers", [number_of(name) for name in study.trials[-event.copies :]]


def reopens(body: Mapping[str, Any]) -> bool:
    """Tell whether a command has a trial made of one whose study is over."""
    return body.get("kind") == "branch"


def check_past(body: Mapping[str, Any], record: StudyRecord, past: FinishedStudy) -> None:
    """Check a command on a trial of a study that is over, before that is reopened for it.

    Raises UsageError as the command itself would; what its fields are is checked with that.
    """
    if not reopens(body):
        return
    number, epoch, to, copies = (
        body.get(name, default)
        for name, default in (("number", -1), ("epoch", 0), ("to", 0), ("copies", 1))
    )
    spec, found = record.spec, [trial for trial in past.trials if trial.number == number]
    if not found or not all(isinstance(each, int) for each in (epoch, to, copies)):
        raise no_trial(spec.name, number, len(past.trials))
    study = StudyState(spec, FullBudget(0, 0), past.created_at)
    _refuse(study, found[0].record(), epoch, to or last_epoch(study), copies)
    params = body.get("params")
    if isinstance(params, dict):
        values_of(spec, found[0].params, params, outside=bool(body.get("outside")))


def _refuse(study: StudyState, trial: Trial, epoch: int, to: int, copies: int) -> None:
    if refused := refusal(study, trial, epoch, to, copies):
        name = study.spec.name
        raise UsageError(f"trial {trial.number} of {name} cannot be branched: {refused}")


class Values(NamedTuple):
    """The parameters of a branch."""

    params: Params
    #: Those that differ from the parent's.
    changed: Params
    #: The names of those that lie outside of the space.
    outside: tuple[str, ...]


def values_of(
    spec: StudySpec, parent: Params, given: Mapping[str, Any], *, outside: bool
) -> Values:
    """Return the parameters of a branch: the parent's, but for what is ``given``.

    Those that are inactive with it are left out. Raises UsageError for an unknown name, a value of
    a wrong type or outside its range (unless ``outside``), and where a parameter has no value.
    """
    known = {name: parameter(text, f"space[{name!r}]") for name, text in spec.space or ()}
    for name in given:
        if name not in known:
            raise UsageError.refuse("a name in params", name, f"one of {', '.join(known)}")
    before, merged = dict(parent), dict[str, Any]()
    added = dict(spec.edits.assumed) if spec.edits is not None else {}
    for name in known:
        if name in given:
            merged[name] = given[name]
        elif is_active(name, spec.conditions, merged):
            if name not in before:
                if name in added:  # after the parent: it goes on without
                    continue
                raise UsageError(f"with these values {name} is a parameter, too: give its value")
            merged[name] = before[name]
    beyond = [name for name, value in given.items() if _is_beyond(known[name], value)]
    numbers = {name: _number(known[name], given[name]) for name in beyond}
    for name in beyond:
        if not outside:
            check_params(spec.space, {name: given[name]})
        if getattr(known[name], "log", False) and merged[name] <= 0:
            raise UsageError.refuse(f"params[{name!r}]", merged[name], "more than 0: it is log")
    # What lies outside, and what the parent has, also where its study was edited since, is taken.
    taken = {name: value for name, value in merged.items() if name not in given} | numbers
    texts = {name: Categorical([value]).to_json() for name, value in taken.items()}
    space = tuple((name, texts.get(name, text)) for name, text in spec.space or ())
    params = dict(check_params(space, merged | numbers, spec.conditions))
    changed = {name: value for name, value in params.items() if before.get(name, params) != value}
    return Values(
        tuple(params.items()), tuple(changed.items()), tuple(n for n in beyond if n in changed)
    )


def _is_beyond(known: Parameter, value: Any) -> bool:
    """Tell whether a number lies outside of the range of its parameter."""
    if not _is_number(value):
        return False
    if isinstance(known, Categorical):  # a number that was fixed, or else any choice but it
        return (
            len(known.choices) == 1 and _is_number(known.choices[0]) and value != known.choices[0]
        )
    return not known.low <= value <= known.high


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(known: Parameter, value: Any) -> Scalar:
    is_whole = isinstance(known, Int) or (
        isinstance(known, Categorical) and isinstance(known.choices[0], int)
    )
    number: Scalar = whole("a value", value) if is_whole else finite("a value", value)
    return number
