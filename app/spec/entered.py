"""Read the texts that people enter in fields of a form and at the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ...base.errors import UsageError
from .space import Categorical, Parameter, parameter

if TYPE_CHECKING:
    from ...scheduler.model.study import StudySpec

#: The fields of a form, by name.
Fields = Mapping[str, str]


def value(name: str, text: str, given: Parameter) -> Any:
    """Return a parameter's value from ``text``: a number, or the choice with that index."""
    if isinstance(given, Categorical):
        indices = [str(index) for index in range(len(given.choices))]
        if text not in indices:
            raise UsageError.refuse(f"params[{name!r}]", text, f"one of {list(given.choices)}")
        return given.choices[int(text)]
    if not isinstance(given.low, float):
        with suppress(ValueError):
            return int(text)  # large ones are no floats
    entered = _float(f"params[{name!r}]", text)
    return int(entered) if entered.is_integer() and not isinstance(given.low, float) else entered


def number(fields: Fields, name: str) -> float:
    """Return the number in a field. Raises UsageError if it is not a number."""
    return _float(name, fields.get(name, ""))


def whole(fields: Fields, name: str) -> int:
    """Return the whole number in a field. Raises UsageError if it is not a whole number."""
    entered = number(fields, name)
    if not entered.is_integer():
        raise UsageError.refuse(name, fields.get(name, ""), "a whole number")
    return int(entered)


def _float(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError.refuse(name, text, "a number") from None


def pairs(words: Sequence[str] | None) -> Iterator[tuple[str, str]]:
    """Yield name and text of each entry of ``words``, typed as ``NAME=TEXT``. Raises UsageError."""
    names = set[str]()
    for each in words or ():
        name, equals, text = each.partition("=")
        if not equals or not name:
            raise UsageError.refuse("a value", each, "a name and a value, as lr=3e-4")
        if name in names:
            raise UsageError.refuse("a value", each, f"one value of {name}")
        names.add(name)
        yield name, text


def choices_of(spec: StudySpec) -> dict[str, dict[str, Any]]:
    """Return, for each choice parameter by name, its values by their texts as users type them."""
    parameters = {name: parameter(text) for name, text in spec.space or ()}
    return {
        name: {str(choice): choice for choice in each.choices}
        for name, each in parameters.items()
        if isinstance(each, Categorical)
    }


def typed(text: str, choices: Mapping[str, Any]) -> Any:
    """Return the value of the typed ``text``: a choice, a number, JSON, or else the text itself."""
    if text in choices:
        return choices[text]
    for read in (json.loads, float):
        with suppress(ValueError):
            return read(text)
    return {"true": True, "false": False, "none": None}.get(text.lower(), text)
