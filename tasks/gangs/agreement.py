"""The agreement of a gang's members after an epoch."""

from __future__ import annotations

from ...base.errors import TrialFailed
from .gang import Gang


def agree(
    gang: Gang,
    state_hash: str,
    *,
    may_differ: bool,
    closes: bool,
    joules: float | None,
    epoch: int,
) -> tuple[bool, float | None]:
    """Return True if the segment ends after this epoch, and the joules of all members together.

    Rank 0 decides on the end. All members' states must have the same bits, else ``TrialFailed``
    (diverged) is raised. If they may differ, a difference ends the segment, and the members take
    over rank 0's state before the next one. The joules are None if a member does not know its own.
    """
    reports = gang.collect([[state_hash, closes, joules]])
    hashes = [each for each, _, _ in reports]
    measured = [each for _, _, each in reports if each is not None]
    same = len(set(hashes)) == 1
    if not same and not may_differ:
        raise TrialFailed(
            "diverged",
            f"members of a gang disagree on the state of epoch {epoch}: {', '.join(hashes)}",
        )
    return bool(reports[0][1]) or not same, sum(measured) if len(measured) == len(reports) else None
