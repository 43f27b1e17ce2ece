"""Rows of the ledger as the trials that ``scheduler.prefixes`` knows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...scheduler.model.trial import Origin, Trial, TrialState
from .tree import Way, way_of

if TYPE_CHECKING:
    from ...app.ledger.rows import TrialRow
    from ...scheduler.model.study import StudySpec


def ways_of(spec: StudySpec, rows: Iterable[TrialRow]) -> list[Way]:
    """The epochs of each trial, in the order of ``rows``."""
    return [way_of(spec, _trial(spec, row)) for row in rows]


def _trial(spec: StudySpec, row: TrialRow) -> Trial:
    origin = None
    if row.origin_trial is not None:
        origin = Origin(row.origin_trial, row.origin_epoch or 0, row.replaces or "")
    return Trial(
        id=row.id,
        study=spec.id,
        number=row.number,
        params=tuple(row.params.items()),
        created_at=row.created_at,
        state=TrialState(row.state),
        target=row.target,
        epoch=row.epoch,
        origin=origin,
    )
