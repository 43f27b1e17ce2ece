"""When a study is expected to be over, by the engine's own forecast of the state in the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...profiling.base.errors import LedgerRefused

if TYPE_CHECKING:
    from .reader import Reader
    from .rows import StudyRow


class Forecast(NamedTuple):
    """When a study is expected to be over, and by how many seconds it then misses its deadline.

    ``ends`` is in seconds since 1970. ``misses`` is 0 if it meets it, and None if it has none.
    """

    ends: float
    misses: float | None


def forecast_of(reader: Reader, study: StudyRow, now: float) -> Forecast | None:
    """The forecast of a study that runs; None if it is over, or nothing of it is known yet.

    None also where this version's engine cannot go on with the ledger, which can be read all the
    same. The whole state is read, which takes a second or two for 10,000 trials. Errors as the
    reader's.
    """
    if study.finished_at is not None:
        return None
    # Imported here because most readers need no engine.
    from ...scheduler.outlook.forecast import late_by, study_end
    from .restore import restore

    try:
        state = restore(reader).state
    except LedgerRefused:
        return None
    known = state.studies.get(study.id)
    with state.costs.read_only():
        ends = None if known is None else study_end(state, known, now)
    if known is None or ends is None:
        return None
    return Forecast(ends, late_by(known, ends))
