"""Sends the command that edits a study, and describes the result, for scripts and command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...app.common.who import check_reason, user
from ...base.errors import UsageError
from .changes import SETTINGS, form_of
from .events import Change

if TYPE_CHECKING:
    from ...app.broker.client import Client
    from ...app.ledger.rows import StudyRow


def edit(
    client: Client,
    study: str,
    *,
    space: Mapping[str, Any],
    assumed: Mapping[str, Any],
    settings: Mapping[str, Any],
    why: str = "",
) -> list[Change]:
    """Change a running study, and return the changes.

    ``space`` has new ranges, choices or values by the parameter's name (``changes.form_of``).
    ``assumed`` has, for each added parameter, the value that earlier trials are assumed to have
    had. ``settings`` has new values by the setting's name. Raises UsageError if the edit is
    refused, and BackendError if no scheduler answers.
    """
    for name, mapping in (("space", space), ("assumed", assumed)):
        if not isinstance(mapping, Mapping):
            raise UsageError.refuse(name, mapping, "a mapping of the names of parameters")
    for name in settings:
        if name not in SETTINGS:
            raise UsageError(f"edit() takes no {name}: it takes {', '.join(SETTINGS)}", name)
    answer = client.send(
        "edit",
        study=study,
        space={name: form_of(name, mapping) for name, mapping in space.items()},
        assumed=dict(assumed),
        settings={name: SETTINGS[name](value) for name, value in settings.items()},
        who=user(),
        why=check_reason(why),
    )
    return [Change(*each) for each in answer["changes"]]


def told(study: StudyRow, changes: Sequence[Change]) -> str:
    """Return a text that tells the user which changes were made, with a line for each change."""
    lines = [f"{study.name} is edited; trials that have begun keep their values"]
    lines += [f"  {each.name}: {each.before} → {each.after}" for each in changes]
    return "\n".join(lines)
