"""Trials and their parts in the form of messages, which the scheduler's ``user_commands`` reads."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from datetime import datetime
from math import isfinite
from typing import TYPE_CHECKING, Any

from optuna.distributions import BaseDistribution, check_distribution_compatibility

from ...base.errors import UsageError
from ...wire.messages import MAX_MESSAGE, number_text
from . import typed_json
from .distributions import scalar_of, to_text

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from .objects import Keep

#: Most characters of an attribute's JSON that a message carries.
LONGEST = MAX_MESSAGE // 2


def attribute(key: str, value: Any, keep: Keep | None = None) -> tuple[str, str]:
    """Return an attribute with its value as JSON text; NumPy's numbers and arrays become Python's.

    ``keep`` stores a value that is no JSON, or is too long for a message, and returns the text of
    its placeholder. For a value that is no JSON, without ``keep`` or if ``keep`` fails, raises
    ``TypeError``, which names the key as in Optuna's own storages. Raises ``UsageError`` for a key
    that cannot be sent.
    """
    check_name("the key of an attribute", key)
    text = ""
    try:
        text = json.dumps(value, default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        if keep is None:
            raise TypeError(f"the attribute {key!r} is no JSON: {error}") from error
    else:
        if keep is None or len(text) <= LONGEST:
            return key, text
    try:
        return key, keep(value)
    except TypeError as error:
        if text:
            return key, text
        raise TypeError(f"the attribute {key!r} is no JSON, and {error}") from error


def user_attribute(key: str, value: Any, keep: Keep | None = None) -> tuple[str, str]:
    """Return a user's attribute that is read back as the same value.

    A value that JSON gives back unchanged is as in ``attribute``. Tuples, and dicts with other keys
    than texts, take the form of ``typed_json``. Any other value, such as an array, is stored by
    ``keep``. Without ``keep``, or if it fails, the value is JSON as in ``attribute``. Raises as
    ``attribute`` does.
    """
    try:
        if keep is None or typed_json.is_json(value):
            return attribute(key, value, keep)
        check_name("the key of an attribute", key)
        try:
            text = typed_json.to_text(value)
        except TypeError:
            text = ""
        return key, text if 0 < len(text) <= LONGEST else keep(value)
    except (TypeError, RecursionError):
        return attribute(key, value, keep)


def attributes(found: Mapping[str, Any], keep: Keep | None = None) -> list[tuple[str, str]]:
    """Return several attributes, with ``keep`` and errors as in ``attribute``."""
    return [attribute(key, value, keep) for key, value in found.items()]


def user_attributes(found: Mapping[str, Any], keep: Keep | None = None) -> list[tuple[str, str]]:
    """Return several attributes as ``user_attribute`` does, and raise as it does."""
    return [user_attribute(key, value, keep) for key, value in found.items()]


def check_name(what: str, name: object) -> None:
    """Raise ``UsageError`` unless ``name`` is a text that messages and ledgers can hold."""
    if not isinstance(name, str) or not _is_utf8(name):
        raise UsageError.refuse(what, name, "a str that UTF-8 can hold")


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_plain(choice: object) -> bool:
    """Return True if ``choice`` is a scalar that JSON and UTF-8 can hold."""
    if isinstance(choice, str):
        return _is_utf8(choice)
    return isinstance(choice, int | None) or (isinstance(choice, float) and isfinite(choice))


def _plain(value: Any) -> Any:
    """Return a number or an array as Python's own. Raises ``TypeError`` for anything else."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and isinstance(value, numpy.ndarray | numpy.generic):
        return value.tolist()
    if torch is not None and isinstance(value, torch.Tensor):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__}")


def suggestion(
    name: str, internal: float, distribution: BaseDistribution
) -> tuple[str, Any, str, float | str]:
    """Return a parameter in the form of messages, from its value in Optuna's internal form."""
    value = distribution.to_external_repr(internal)
    return name, scalar_of(value), to_text(distribution), number_text(internal)


def check_compatible(
    name: str, distribution: BaseDistribution, trials: Iterable[FrozenTrial]
) -> None:
    """Raise ``ValueError`` if ``trials`` have a parameter ``name`` of another kind."""
    earlier = next((t.distributions[name] for t in trials if name in t.distributions), None)
    if earlier is not None:
        check_distribution_compatibility(earlier, distribution)


def writing_of(trial: FrozenTrial, keep: Keep | None = None) -> dict[str, Any]:
    """Return the parameters, intermediate values and attributes of ``trial`` as a message.

    ``keep`` is as in ``attribute``.
    """
    dists = trial.distributions
    return {
        "suggestions": [
            suggestion(name, dists[name].to_internal_repr(value), dists[name])
            for name, value in trial.params.items()
        ],
        "steps": [(step, number_text(v)) for step, v in trial.intermediate_values.items()],
        "user_attrs": user_attributes(trial.user_attrs, keep),
        "system_attrs": attributes(trial.system_attrs, keep),
    }


def record_of(trial: FrozenTrial | None, keep: Keep | None = None) -> dict[str, Any]:
    """Return the fields of the command that adds ``trial``.

    If ``trial`` is None, it is a new trial that its user trains. ``keep`` is as in ``attribute``.
    """
    if trial is None:
        return {"state": "running", "writing": {}, "started": datetime.now().timestamp()}  # noqa: DTZ005 - Optuna's times are naive
    return {
        "state": trial.state.name.lower(),
        "values": [number_text(value) for value in trial.values or ()],
        "writing": writing_of(trial, keep),
        "started": _seconds(trial.datetime_start),
        "ended": _seconds(trial.datetime_complete),
    }


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()
