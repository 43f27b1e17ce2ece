"""Carries out what a form of a page asks for, as the command line does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...app.extensions import end_of
from ...app.ledger.codec import spec_from_json
from ...app.spec.space import Categorical, Parameter, parameter
from ...app.study.control import Control, drain, undrain
from ...profiling.base.errors import UsageError
from .forms import PARAM

if TYPE_CHECKING:
    from .site import Site

Fields = Mapping[str, str]


def carry_out(site: Site, fields: Fields) -> str:
    """Do what the form's ``fields`` ask for, and say what was done. Raises as ``Control``."""
    action = fields.get("action", "")
    does = _ACTIONS.get(action)
    if does is None:
        raise UsageError.refuse("action", action, f"one of {', '.join(_ACTIONS)}")
    return does(site, fields)


def _of_study(act: Callable[[Control, str], str]) -> Callable[[Site, Fields], str]:
    return lambda site, fields: act(site.control, fields.get("study", ""))


def _weight(site: Site, fields: Fields) -> str:
    weight = _number(fields, "weight")
    return site.control.set_weight(fields.get("study", ""), weight, _whole(fields, "priority"))


def _extend(site: Site, fields: Fields) -> str:
    return site.control.extend(fields.get("study", ""), _whole(fields, "by"), None)


def _enqueue(site: Site, fields: Fields) -> str:
    study = site.reader.study(fields.get("study", ""))
    space = dict(spec_from_json(study.spec_json).space or ())
    params = {
        name: _value(name, text, parameter(space[name]))
        for field, text in fields.items()
        if field.startswith(PARAM) and text and (name := field.removeprefix(PARAM)) in space
    }
    return site.control.enqueue(study.id, params)


def _of_trial(site: Site, fields: Fields) -> str:
    study = site.reader.study(fields.get("study", ""))
    verb, to = fields.get("verb", ""), fields.get("to", "")
    words: str = end_of("steering", "control", "what a trial's page offers").act(
        site.settings,
        study,
        _whole(fields, "n"),
        verb,
        to=_whole(fields, "to") if to else None,
        why=fields.get("reason", ""),
    )
    return words


def _value(name: str, text: str, given: Parameter) -> Any:
    """What was entered for a parameter: a number, or the choice at an index."""
    if isinstance(given, Categorical):
        known = [str(index) for index in range(len(given.choices))]
        if text not in known:
            raise UsageError.refuse(f"params[{name!r}]", text, f"one of {list(given.choices)}")
        return given.choices[int(text)]
    number = _float(f"params[{name!r}]", text)
    return int(number) if number.is_integer() and not isinstance(given.low, float) else number


def _number(fields: Fields, name: str) -> float:
    return _float(name, fields.get(name, ""))


def _whole(fields: Fields, name: str) -> int:
    number = _number(fields, name)
    if not number.is_integer():
        raise UsageError.refuse(name, fields.get(name, ""), "a whole number")
    return int(number)


def _float(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError.refuse(name, text, "a number") from None


_ACTIONS: dict[str, Callable[[Site, Fields], str]] = {
    "pause": _of_study(Control.pause),
    "resume": _of_study(Control.resume),
    "cancel": _of_study(Control.cancel),
    "weight": _weight,
    "extend": _extend,
    "enqueue": _enqueue,
    "trial": _of_trial,
    "drain": lambda site, fields: drain(site.settings, [fields.get("device", "")]),
    "undrain": lambda site, fields: undrain(site.settings, [fields.get("device", "")]),
}
