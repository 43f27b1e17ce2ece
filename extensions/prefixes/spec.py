"""Checks of a study's settings for common epochs, the same in script, command and scheduler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...base.errors import UsageError
from ...tasks.contracts.by_value import is_by_value
from .chain import obstacle

if TYPE_CHECKING:
    from ...scheduler.model.study import StudySpec

#: The most letters of a data token.
_LONGEST_TOKEN = 200


def _token(field: str, token: Any) -> str | None:
    """Return ``token`` if it is a valid data token: one line of readable text."""
    if token is None:
        return None
    is_text = isinstance(token, str) and token.strip() and token.isprintable()
    if not is_text or len(token) > _LONGEST_TOKEN:
        allowed = f"None or 1 to {_LONGEST_TOKEN} printable characters"
        raise UsageError.refuse(field, token, allowed)
    return str(token)


#: The check of each field, as in every extension. The core checks ``seeding``.
CHECKS: Mapping[str, Callable[[str, Any], Any]] = {
    "seeding": lambda _, value: value,
    "data_token": _token,
}


def check_spec(spec: StudySpec) -> None:
    """Refuse a data token if the study's trials cannot take over epochs of other studies.

    Raises UsageError.
    """
    if spec.data_token is None:
        return
    token = _token("share.data_token", spec.data_token)
    why = obstacle(spec)
    if not why and spec.environment:
        why = "what an environment of its own has installed is not known here"
    if not why and spec.contract == "torch" and is_by_value(spec.code.target):
        why = "its code must be at the top level of a .py file, so that it is known what it imports"
    if why:
        raise UsageError.refuse("share.data_token", token, f"None here: {why}")
