"""Read the texts that users type into the fields of a form or at the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ...base.errors import UsageError
from .space import Categorical, Parameter, parameter

if TYPE_CHECKING:
    from ...scheduler.model.study import StudySpec

#: The texts in the fields of a form, by the name of the field.
Fields = Mapping[str, str]


def value(name: str, text: str, given: Parameter) -> Any:
    """Return the value of a parameter that the user typed as ``text``.

    For a choice, ``text`` is the index of the choice. For a number, ``text`` is the number itself.
    Raises UsageError for any other text.
    """
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
    """Return the number in the field ``name``. Raises UsageError if the field has no number."""
    return _float(name, fields.get(name, ""))


def whole(fields: Fields, name: str) -> int:
    """Return the whole number in the field ``name``. Raises UsageError for any other text."""
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
    """Yield the name and the text of each entry of ``words``, which users type as ``NAME=TEXT``.

    Raises UsageError if an entry has another form, or if two entries have the same name.
    """
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
    """Return the values of each categorical parameter, by the text that users type for the value.

    The outer keys are the names of the parameters.
    """
    parameters = {name: parameter(text) for name, text in spec.space or ()}
    return {
        name: {str(choice): choice for choice in each.choices}
        for name, each in parameters.items()
        if isinstance(each, Categorical)
    }


def typed(text: str, choices: Mapping[str, Any]) -> Any:
    """Return the value that the user typed as ``text``.

    If the text is a key of ``choices``, the value is the choice under this key. Otherwise, the
    value is the text read as JSON or as a number. A text that is neither stands for itself, except
    that ``true``, ``false`` and ``none`` are recognised in any case.
    """
    if text in choices:
        return choices[text]
    for read in (json.loads, float):
        with suppress(ValueError):
            return read(text)
    return {"true": True, "false": False, "none": None}.get(text.lower(), text)
