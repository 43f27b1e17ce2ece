"""Agreement of a gang's members after an epoch."""

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
    """Agree on whether the segment ends after this epoch, and on the joules of all members.

    Rank 0 decides. All members' states must have the same bits as its state. If they may differ, a
    difference ends the segment: before the next one the members take over rank 0's state. The
    joules are None if one member does not know its own.
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
