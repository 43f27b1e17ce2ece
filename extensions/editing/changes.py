"""Computes a study's specification after a user's edit, and refuses edits that are impossible."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ...app.common.text import number
from ...app.common.validation import finite, seconds, whole
from ...app.extensions import FIELDS, end_of
from ...app.spec.amounts import check_priority, check_weight
from ...app.spec.sampler_options import check_space
from ...app.spec.space import Categorical, Float, Int, Space, as_parameter, parameter, parse_space
from ...base.errors import UsageError
from ...scheduler.model.study import Edits, Scalar, StudySpec
from ...scheduler.strategies.base import RULES, rungs_of
from .events import Change

#: The change of a parameter in a command: a distribution of Optuna's as JSON, or a mapping of the
#: fields to change.
Form = str | Mapping[str, Any]
#: The contracts whose trials train epoch by epoch. Such trials can be trained to a later last
#: epoch.
_BY_EPOCHS = ("torch", "empty", "epochs")
_LIMITS = [name for name, extension in FIELDS.items() if extension == "limits"]


def _limit(name: str, value: Any) -> Any:
    return end_of(FIELDS[name], "spec", name).CHECKS[name](name, value)


def _epoch_timeout(value: Any) -> float | None:
    return None if value is None else seconds("epoch_timeout", value)


#: The settings that can be edited, each with the function that checks a value for the setting.
SETTINGS: Mapping[str, Callable[[Any], Any]] = {
    "max_epochs": partial(whole, "max_epochs", low=1),
    **{name: partial(_limit, name) for name in _LIMITS},
    "epoch_timeout": _epoch_timeout,
    "retries": partial(whole, "retries", low=0),
    "weight": check_weight,
    "priority": check_priority,
}


def form_of(name: str, given: Any) -> Form:
    """Return the form in which a change of the parameter ``name`` is sent to the scheduler.

    ``given`` is the change as a script writes it. A tuple of two numbers is a new range, with which
    the parameter keeps its step and scale. A list has new choices. A distribution replaces the old
    one. Any other plain value fixes the parameter. Raises UsageError if ``given`` is none of these.
    """
    if isinstance(given, tuple) and len(given) == 2:
        low, high = given
        return {"low": low, "high": high}
    if given is None or isinstance(given, bool | int | float | str):
        return {"fixed": given}
    if getattr(given, "when", None) is not None:
        raise UsageError(f"space[{name!r}]: the condition of a parameter cannot be edited")
    [(_, text)] = parse_space({name: as_parameter(f"space[{name!r}]", given)})
    return text


def edited(
    spec: StudySpec,
    space: Mapping[str, Form],
    assumed: Mapping[str, Scalar],
    settings: Mapping[str, Any],
) -> tuple[StudySpec, tuple[Change, ...]]:
    """Return the study's specification after an edit, and the changes in words.

    ``space`` has the changed and added parameters. ``assumed`` has, for each added parameter, the
    value that earlier trials are assumed to have had. ``settings`` has the changed settings. Raises
    UsageError if a change is impossible, or if nothing would change.
    """
    if spec.contract == "ask":
        raise UsageError(
            f"{spec.name} is trained by its own script (ask and tell): nothing to edit"
        )
    changes = list[Change]()
    edits = spec.edits or Edits()
    after = _with_settings(spec, settings, changes)
    fields = tuple(dict.fromkeys((*edits.fields, *(each.name for each in changes))))
    edits = replace(edits, fields=fields)
    if space or assumed:
        after, edits = _with_space(after, edits, space, assumed, changes)
    if not changes:
        raise UsageError(f"nothing of {spec.name} would change: it has these settings already")
    return replace(after, edits=edits), tuple(changes)


def _with_settings(spec: StudySpec, given: Mapping[str, Any], changes: list[Change]) -> StudySpec:
    for name, value in given.items():
        if name not in SETTINGS:
            raise UsageError.refuse("a setting", name, f"one of {', '.join(SETTINGS)}")
        before = spec.strategy.max_epochs if name == "max_epochs" else getattr(spec, name)
        after = SETTINGS[name](value)
        if after == before:
            continue
        longer = name == "max_epochs"
        spec = _longer(spec, after) if longer else replace(spec, **{name: after})
        changes.append(Change(name, _words(before), _words(after)))
    return spec


def _longer(spec: StudySpec, epochs: int) -> StudySpec:
    """Return the specification with ``epochs`` as the last epoch of each trial.

    Raises UsageError if the study's trials cannot train to another last epoch.
    """
    plan = spec.strategy
    longer = replace(plan, max_epochs=epochs)
    promote = "or send single trials on: penstock trial promote STUDY/7 --to EPOCH"
    if plan.supernet is not None:
        raise UsageError(f"an epoch of {spec.name} is an evaluation by its super-net: it has one")
    if spec.contract not in _BY_EPOCHS or plan.max_epochs is None:
        raise UsageError(f"{spec.name}'s objective says itself how long it is trained")
    if plan.name not in ("full", "asha", *RULES):
        raise UsageError(
            f"max_epochs of {spec.name} stays {plan.max_epochs}: {plan.name} plans its rungs as it"
            f" begins; make a new study, {promote}"
        )
    if epochs < plan.max_epochs:
        raise UsageError.refuse("max_epochs", epochs, f"more than {plan.max_epochs}")
    rungs, further = rungs_of(plan), rungs_of(longer)
    if further[: len(rungs)] != rungs:
        raise UsageError(
            f"max_epochs of {spec.name} stays {plan.max_epochs}: its rungs are"
            f" {', '.join(map(str, rungs))}, and would be {', '.join(map(str, further))}, so that"
            f" trials at epoch {plan.max_epochs} would be at none; make a new study, {promote}"
        )
    return replace(spec, strategy=longer)


def _with_space(
    spec: StudySpec,
    edits: Edits,
    given: Mapping[str, Form],
    assumed: Mapping[str, Scalar],
    changes: list[Change],
) -> tuple[StudySpec, Edits]:
    _check_editable(spec)
    before, space = dict(spec.space or ()), dict(spec.space or ())
    past = dict(edits.past)
    for name, form in given.items():
        if name not in before:
            if "@" in name:
                raise UsageError(f"{name} would be a piece of a Steps, which cannot be added")
            if name not in assumed:
                raise UsageError(
                    f"{name} is a new parameter: say which value earlier trials are taken to have"
                    f" had, as assumed={{{name!r}: ...}}, or --assume {name}=VALUE"
                )
            space[name] = _added(name, form)
            value = _assumed(name, space[name], assumed[name])
            edits = replace(edits, assumed=(*edits.assumed, (name, value)))
            words = f"{_range(space[name])}; {_words(value)} in earlier trials"
            changes.append(Change(name, "not there", words))
            continue
        space[name] = text = _changed(name, before[name], form)
        if json.loads(text) == json.loads(before[name]):
            space[name] = before[name]
            continue
        past[name] = (*past.get(name, ()), before[name])
        changes.append(Change(name, _range(before[name]), _range(text)))
    for name in assumed:
        if name not in given or name in before:
            raise UsageError.refuse("assumed", name, "the name of a parameter that this edit adds")
    whole_space: Space = tuple(space.items())
    check_space(spec.sampler, spec.sampler_options, whole_space, spec.conditions)
    parameters = tuple(dict.fromkeys((*edits.parameters, *given)))
    edits = replace(edits, parameters=parameters, past=tuple(past.items()))
    return replace(spec, space=whole_space), edits


def _check_editable(spec: StudySpec) -> None:
    """Raise UsageError if the search space of the study cannot be edited."""
    if spec.space is None:
        raise UsageError(
            f"the objective of {spec.name} says its parameters and their ranges as it runs: change"
            " it there, and run more trials of it"
        )
    if spec.strategy.supernet is not None:
        raise UsageError(f"{spec.name} chooses among the models of its super-net, which is trained")
    if spec.hosted:
        raise UsageError(f"{spec.name} has a sampler of its user's own, which knows its space")
    if json.loads(spec.sampler_options).get("with_margin"):
        raise UsageError(
            f"{spec.name} samples by CMA-ES with margin, which keeps its space: start another"
        )
    if spec.strategy.name == "pbt":
        raise UsageError(f"{spec.name} is a population, which explores the space that it has")


def _fields(text: str) -> dict[str, Any]:
    attributes: dict[str, Any] = json.loads(text)["attributes"]
    return attributes


def _changed(name: str, before: str, form: Form) -> str:
    """Return the distribution of a parameter after a change, as JSON.

    ``before`` is the old distribution. Raises UsageError if ``form`` would change the kind or the
    scale of the distribution.
    """
    distribution, field = json.loads(before), f"space[{name!r}]"
    kind, had = distribution["name"].removesuffix("Distribution"), distribution["attributes"]
    if isinstance(form, str):
        parameter(form, field)
        now = json.loads(form)
        same = now["name"] == distribution["name"]
        if not same or now["attributes"].get("log") != had.get("log"):
            logarithmic = ", log=True" if had.get("log") else ""
            allowed = f"a {kind} as before{logarithmic}: earlier trials drew from that"
            raise UsageError.refuse(field, str(parameter(form)), allowed)
        return form
    if "fixed" in form:
        value = form["fixed"]
        if kind == "Categorical":
            if value not in had["choices"]:
                raise UsageError.refuse(field, value, f"one of {had['choices']}, to fix it")
            choice = had["choices"][had["choices"].index(value)]
            return parse_space({name: [choice]})[0][1]
        value = whole(field, value) if kind == "Int" else finite(field, value)
        if had["log"] and value <= 0:
            raise UsageError.refuse(field, value, "more than 0, because its range is log")
        return json.dumps(distribution | {"attributes": had | {"low": value, "high": value}})
    if kind == "Categorical":
        raise UsageError.refuse(field, f"{form['low']} to {form['high']}", "a list of choices")
    cls: type[Float] | type[Int] = Int if kind == "Int" else Float
    return cls(form["low"], form["high"], log=had["log"], step=had["step"]).to_json()


def _added(name: str, form: Form) -> str:
    """Return the distribution of a new parameter as JSON.

    Raises UsageError if ``form`` is a single value, since a new parameter needs a range.
    """
    if isinstance(form, str):
        parameter(form, f"space[{name!r}]")
        return form
    if "fixed" in form:
        raise UsageError(
            f"{name} is a new parameter with one value only: give its range, as {name}=LOW..HIGH or"
            f" {name}=Float(LOW, HIGH)"
        )
    low, high = form["low"], form["high"]
    are_whole = isinstance(low, int) and isinstance(high, int)
    return parse_space({name: Int(low, high) if are_whole else Float(low, high)})[0][1]


def _assumed(name: str, text: str, value: Any) -> Scalar:
    """Return the value that earlier trials are assumed to have for a new parameter.

    The value of a numeric parameter may be outside its range.
    """
    distribution, field = parameter(text), f"assumed[{name!r}]"
    if isinstance(distribution, Categorical):
        if value not in distribution.choices:
            raise UsageError.refuse(field, value, f"one of {list(distribution.choices)}")
        return distribution.choices[distribution.choices.index(value)]
    assumed_value: Scalar = (
        whole(field, value) if isinstance(distribution, Int) else finite(field, value)
    )
    return assumed_value


def _range(text: str) -> str:
    """Return the range of a parameter in words."""
    fields = _fields(text)
    if "low" in fields and fields["low"] == fields["high"]:
        return f"fixed at {number(fields['low'])}"
    return str(parameter(text))


def _words(value: Any) -> str:
    return "none" if value is None else number(value) if isinstance(value, float) else str(value)
