"""Tuples, and dicts whose keys are no texts, as JSON from which the same values are read.

JSON itself has neither: a tuple is read as a list, and the key 1 as ``"1"``. Here a tuple is
``{"tuple": [...]}``, a dict of any keys ``{"dict": [[key, value], ...]}``, and a list a list. The
whole text is marked by a space at its beginning, which JSON made from a value never has.
"""

from __future__ import annotations

import json
import sys
from typing import Any

#: Prefix of the text of such a value.
MARK = ' {"penstock.value": '
_SCALARS = frozenset({type(None), bool, int, float, str})


def is_json(value: Any) -> bool:
    """Return True if JSON gives ``value`` back, equal and of the same types.

    Numbers and texts of NumPy and torch count as equal to those of Python that are read back.
    """
    kind = type(value)
    if kind in _SCALARS:
        return True
    if kind is list:
        return all(map(is_json, value))
    if kind is dict:
        return all(type(key) is str and is_json(each) for key, each in value.items())
    return _is_scalar(value)


def _is_scalar(value: Any) -> bool:
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and isinstance(value, numpy.ndarray | numpy.generic):
        return value.ndim == 0 and value.dtype.kind in "biufU"
    return torch is not None and type(value) is torch.Tensor and value.ndim == 0


def to_text(value: Any) -> str:
    """Return the marked text of a value. Raises ``TypeError`` for a value that it cannot hold."""
    return f"{MARK}{json.dumps(_form(value))}}}"


def from_text(text: str) -> Any:
    """Return the value in a text that begins with ``MARK``.

    If the rest is no such value, which an import may bring, return the JSON value of the text.
    """
    value = json.loads(text)
    try:
        return _value(value["penstock.value"])
    except (KeyError, TypeError, ValueError, RecursionError):
        return value


def _form(value: Any) -> Any:
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is list:
        return list(map(_form, value))
    if kind is tuple:
        return {"tuple": list(map(_form, value))}
    if kind is dict and _SCALARS.issuperset(map(type, value)):
        return {"dict": [[key, _form(each)] for key, each in value.items()]}
    if _is_scalar(value):
        return value.item()
    raise TypeError(f"a {kind.__name__}")


def _value(form: Any) -> Any:
    if isinstance(form, list):
        return list(map(_value, form))
    if not isinstance(form, dict):
        return form
    if "tuple" in form:
        return tuple(map(_value, form["tuple"]))
    return {key: _value(each) for key, each in form["dict"]}
