"""Refuses arguments that ``create_study`` does not take, and shows what was probably meant.

A user who wrote ``create_study(max_width=8)`` for version 0.1, or tries an option by its name, is
told the new form: ``create_study(resources=penstock.Resources(max_width=8))``. So is a user who
mistyped it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

from ...profiling.base.errors import UsageError
from ...profiling.base.wording import worded
from ..common.text import closest
from ..spec.options import GROUPS, option_paths
from ..spec.sampler_options import Sampler

P = ParamSpec("P")
R = TypeVar("R")

#: The group and field of each old argument, without those that ``create_study`` still has.
_PATHS_BY_NAME = {name: path for name, path in option_paths().items() if name not in GROUPS} | {
    "system_objective": ("system", "energy_weight"),
    "sampler_options": ("sampler", ""),
    "metrics": ("metric", ""),
}
#: Groups whose first field may be given alone; it then becomes part of the new form.
_ALONE = ("system", "sampler")
_WEIGHTS = {"time": 0, "energy": 1}


def in_groups(function: Callable[P, R]) -> Callable[P, R]:
    """``function``, made to refuse arguments that now belong to a group or that are unknown.

    Raises UsageError with the new form, or with the nearest argument that there is.
    """
    known = list(signature(function).parameters)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        old = {name: value for name, value in kwargs.items() if name in _PATHS_BY_NAME}
        if old:
            given = ", ".join(f"{name}={worded(value)}" for name, value in old.items())
            new = ", ".join(f"{name}={_in_python(name, kwargs, old)}" for name in _arguments(old))
            message = f"create_study({given}): now create_study({new})"
            raise UsageError(message, field=next(iter(old)))
        for name in kwargs:
            if name not in known:
                raise UsageError(
                    f"create_study() takes no {name}{_meant(name, kwargs, known)}", name
                )
        return function(*args, **kwargs)

    return call


def _meant(name: str, given: Mapping[str, Any], known: list[str]) -> str:
    """What the unknown argument ``name`` was probably meant to be, in the form that is taken."""
    close = closest(name, [*known, *_PATHS_BY_NAME])
    if close is None:
        return f": it takes {', '.join(known)}"
    if close in _PATHS_BY_NAME:
        argument, _ = _PATHS_BY_NAME[close]
        close = f"{argument}={_in_python(argument, given, {close: given[name]})}"
    return f": did you mean {close}?"


def new_key(name: str, given: Mapping[str, Any]) -> str | None:
    """The new form of an old key in a study's file; None if ``name`` is not an old key."""
    if name not in _PATHS_BY_NAME:
        return None
    argument, _ = _PATHS_BY_NAME[name]
    if argument == "metric":
        return f"metric: {json.dumps(given[name], default=str)}"
    alone, held = _given(argument, given)
    values = held | _values(argument, {name: given[name]})
    if argument == "sampler":
        return f"sampler: {{{alone or 'tpe'}: {_in_yaml(values)}}}"
    return f"{argument}: {_in_yaml(({} if alone is None else {'mode': alone}) | values)}"


def _arguments(old: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(_PATHS_BY_NAME[name][0] for name in old))


def _given(argument: str, given: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """What the group has already: its first field if that was given alone, and its other fields.

    Fields with their defaults are left out. In a study's file a group is a mapping, and a sampler
    with options is one of its name to these.
    """
    value = given.get(argument)
    if isinstance(value, Sampler):
        return value.name, json.loads(value.options)
    if isinstance(value, Mapping):
        held = dict(value)
        if argument == "sampler":
            name, options = next(iter(held.items()), (None, {}))
            return name, dict(options) if isinstance(options, Mapping) else {}
        return held.pop("mode", None), held
    if value is not None and type(value) in GROUPS.values():
        held = {
            each.name: getattr(value, each.name)
            for each in fields(value)
            if getattr(value, each.name) != each.default
        }
        return held.pop("mode", None), held
    return (value if argument in _ALONE else None), {}


def _values(argument: str, old: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a group, from old arguments."""
    values: dict[str, Any] = {}
    for name, value in old.items():
        if _PATHS_BY_NAME[name][0] != argument:
            continue
        if name == "sampler_options":
            values |= value if isinstance(value, Mapping) else {}
        elif name == "exactness" and isinstance(value, Mapping):
            values |= {"exactness" if key == "mode" else key: each for key, each in value.items()}
        elif name == "system_objective" and isinstance(value, str):
            values["energy_weight"] = _WEIGHTS.get(value, value)
        else:
            values[_PATHS_BY_NAME[name][1]] = value
    return values


def _in_python(argument: str, given: Mapping[str, Any], old: Mapping[str, Any]) -> str:
    if argument == "metric":
        return worded(old["metrics"])
    alone, held = _given(argument, given)
    kind = "Sampler" if argument == "sampler" else GROUPS[argument].__name__
    if argument == "sampler" and alone is None:
        alone = "tpe"
    first = [] if alone is None else [worded(alone)]
    values = held | _values(argument, old)
    words = first + [f"{name}={worded(value)}" for name, value in values.items()]
    return f"penstock.{kind}({', '.join(words)})"


def _in_yaml(values: Mapping[str, Any]) -> str:
    inner = (f"{name}: {json.dumps(value, default=str)}" for name, value in values.items())
    return f"{{{', '.join(inner)}}}"
