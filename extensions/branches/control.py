"""Sends the command for branches, and describes the result: for CLI, scripts and pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...app.common.text import in_shell
from ...app.common.validation import whole
from ...app.common.who import check_reason, user
from ...base.errors import UsageError

if TYPE_CHECKING:
    from ...app.broker.client import Client
    from ...app.ledger.rows import StudyRow


def branch(
    client: Client,
    study: str,
    number: int,
    epoch: int,
    params: Mapping[str, Any],
    *,
    to: int | None = None,
    copies: int = 1,
    outside: bool = False,
    why: str = "",
) -> list[int]:
    """Create trials that continue from a trial's state after ``epoch`` with other values.

    Returns the numbers of the new trials. Raises UsageError if the command is refused, and
    BackendError if no scheduler answers.
    """
    if not isinstance(params, Mapping):
        raise UsageError.refuse("params", params, "a mapping of names to values")
    answer = client.send(
        "branch",
        study=study,
        number=whole("trial", number, low=0),
        epoch=whole("at", epoch, low=1),
        params=dict(params),
        to=0 if to is None else whole("to", to, low=1),
        copies=whole("copies", copies, low=1),
        outside=outside,
        who=user(),
        why=check_reason(why),
    )
    return [int(each) for each in answer["numbers"]]


def made(study: StudyRow, parent: int, epoch: int, numbers: Sequence[int]) -> str:
    """Return a sentence that names the branches made of trial ``parent``."""
    several = len(numbers) > 1
    those = f"trials {numbers[0]} to {numbers[-1]}" if several else f"trial {numbers[0]}"
    goes = "go on" if several else "goes on"
    name, then = in_shell(study.name, study.id), ""
    if study.status == "paused":
        then = f", once {study.name} is resumed"
    return (
        f"{those} of {study.name} {goes} from trial {parent}'s state after epoch {epoch}{then}:"
        f" penstock story {name}/{numbers[0]}"
    )
