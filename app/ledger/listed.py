"""Read the list of studies. A finished study takes one row of one table.

The list is the most frequent query. So this module does not import modules that know events or
whole specifications. Importing those modules takes longer than reading a thousand studies.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from .databases.read_only import ReadOnly
from .databases.schema import STUDY_COLUMNS

if TYPE_CHECKING:
    from .rows import EpochRow, StudyRow, TrialRow

#: The status of a deleted study. The name of the study may be used again, and readers do not find
#: the study.
DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class Listed:
    """A study in the list."""

    id: str
    status: str
    #: The time at which the study ended, in seconds by the scheduler's clock. It is None until
    #: then.
    finished_at: float | None
    _summary: str

    @property
    def facts(self) -> dict[str, Any] | None:
        """The facts that the list shows (``summary.facts_of``).

        It is None if no summary is stored.
        """
        facts: dict[str, Any] | None = json.loads(self._summary or "null")
        return facts


def read_listed(ledger: ReadOnly) -> list[Listed]:
    """Return all studies except deleted studies, oldest first."""
    rows = [dict(zip(STUDY_COLUMNS, row, strict=True)) for row in ledger.studies()]
    return [
        Listed(row["id"], row["status"], row["finished_at"], row["summary"])
        for row in rows
        if row["status"] != DELETED
    ]


class GoingStudy(NamedTuple):
    """An unfinished study with all its trials, by number, and its newest epochs, oldest first.

    Epochs that were taken over from another trial are left out.
    """

    study: StudyRow
    trials: list[TrialRow]
    recent: list[EpochRow]


def read_going(ledger: ReadOnly, recent: int) -> dict[str, GoingStudy]:
    """Return the unfinished studies by id, each with its last ``recent`` epochs.

    The result is empty if the database cannot be read without SQLAlchemy.
    """
    if (rows := ledger.going(recent)) is None:
        return {}
    from ...scheduler.model.study import study_of_trial
    from .rows import epoch_of, study_of, trial_of
    from .summary import metric_names

    studies = {row.id: GoingStudy(study_of(row), [], []) for row in rows.studies}
    for row in rows.trials:
        studies[row.study].trials.append(trial_of(row))
    for row in rows.recent:
        studies[study_of_trial(row.trial)].recent.append(epoch_of(row))
    for row in rows.written:
        if names := metric_names(json.loads(row.body).get("system_attrs", ())):
            going = studies[row.study]
            studies[row.study] = going._replace(study=replace(going.study, names=names))
    return studies
