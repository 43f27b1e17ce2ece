"""Read unfinished studies for the list of studies, from an SQLite file and without SQLAlchemy.

Every row is read whole, and its digest is compared. The structure of the tables of trials and
epochs is not checked, since such a check would read both tables completely and take longer than
Python's start. Instead the trials are counted by a second index. The count reveals a trial that is
missing in one of the indexes.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from typing import Any, NamedTuple

from .base import Ask, value
from .row_digest import first_fault
from .schema import EPOCH_COLUMNS, EVENT_COLUMNS, STUDY_COLUMNS, TRIAL_COLUMNS


class Going(NamedTuple):
    """Rows about the unfinished studies, as of one moment."""

    studies: list[Any]
    #: The trials of the studies, by study and number.
    trials: list[Any]
    #: The epochs of each study that were trained last, oldest first.
    recent: list[Any]
    #: Events with the attributes that users wrote into their studies, oldest first.
    written: list[Any]


def _columns(table: str, names: Sequence[str]) -> str:
    return ", ".join(f"{table}.{name}" for name in names)


# In a CROSS JOIN SQLite reads the tables in this order: a few studies, then their rows by indexes.
# A + before a column keeps SQLite from using the column's index.
_STUDIES = f"SELECT {_columns('study', STUDY_COLUMNS)} FROM study WHERE finished_at IS NULL"  # noqa: S608 - constants
_OF_THEM = "FROM study CROSS JOIN trial ON trial.study = study.id"
_TRIALS = f"""
SELECT {_columns("trial", TRIAL_COLUMNS)} {_OF_THEM}
WHERE study.finished_at IS NULL ORDER BY trial.study, trial.number
"""
_TRIALS_BY_ID = """
SELECT count(*) FROM study CROSS JOIN trial
ON trial.id > study.id || '-' AND trial.id < study.id || '.' AND +trial.study = study.id
WHERE study.finished_at IS NULL
"""
_RECENT = f"""
SELECT {_columns("epoch", EPOCH_COLUMNS)} FROM epoch WHERE id IN (
    SELECT id FROM (
        SELECT epoch.id, row_number() OVER (
            PARTITION BY trial.study ORDER BY epoch.at DESC, epoch.id DESC
        ) AS place
        {_OF_THEM} CROSS JOIN epoch ON epoch.trial = trial.id
        WHERE study.finished_at IS NULL AND epoch.taken_from = '' AND epoch.seconds > 0
    ) WHERE place <= %d
) ORDER BY at, id
"""  # noqa: S608 - constants
_WRITTEN = f"""
SELECT {_columns("event", EVENT_COLUMNS)}, before.digest
FROM study CROSS JOIN event ON event.trial = study.id
LEFT JOIN event AS before ON before.seq = event.seq - 1
WHERE study.finished_at IS NULL ORDER BY event.seq
"""  # noqa: S608 - constants


def read_going(ask: Ask, recent: int) -> Going | str:
    """Return the rows about the unfinished studies, with up to ``recent`` epochs of each study.

    If a row differs from what was written, return a message about the fault instead.
    """
    ask("BEGIN")  # what is asked from here on is as of one moment
    studies, trials, epochs = ask(_STUDIES), ask(_TRIALS), ask(_RECENT % recent)
    event_rows = ask(_WRITTEN)
    faults = (
        first_fault("study", studies),
        first_fault("trial", trials),
        first_fault("epoch", epochs, slice(1, -1)),
        first_fault("event", event_rows, slice(0, -2), lambda row: f"event {row[0]}"),
    )
    if first := next(filter(None, faults), None):
        return first
    if len({row[0] for row in trials}) != value(ask, _TRIALS_BY_ID):
        return "trials are missing in an index"
    return Going(
        _named(STUDY_COLUMNS, studies),
        _named(TRIAL_COLUMNS, trials),
        _named(EPOCH_COLUMNS, epochs),
        _named(EVENT_COLUMNS, event_rows),
    )


def _named(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[Any]:
    """Return the rows with columns as attributes, like rows of SQLAlchemy."""
    make: Any = namedtuple("Row", columns)  # type: ignore[misc]  # names are those of a table
    return [make(*row[: len(columns)]) for row in rows]
