"""When a study is expected to be over, by the engine's own forecast of the state in the ledger."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from ...base.errors import LedgerRefused, PenstockError

if TYPE_CHECKING:
    from .reader import Reader
    from .rows import StudyRow

log = logging.getLogger(__name__)

#: Seconds after which a kept forecast is made again, at the soonest.
KEPT = 10.0
#: Seconds of rest for each second of work: the CPU time that forecasts take is small.
REST = 20.0


class Forecast(NamedTuple):
    """When a study is expected to be over, and by how many seconds it then misses its deadline.

    ``ends`` is in seconds since 1970. ``misses`` is 0 if it meets it, and None if it has none.
    """

    ends: float
    misses: float | None


def forecast_of(reader: Reader, study: StudyRow, now: float) -> Forecast | None:
    """Return the forecast of a running study; None if it is over, or nothing of it is known yet.

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
        engine = restore(reader)
    except LedgerRefused:
        return None
    study_state = engine.state.studies.get(study.id)
    with engine.state.costs.read_only():
        ends = None if study_state is None else study_end(engine, study_state, now)
    if study_state is None or ends is None:
        return None
    return Forecast(ends, late_by(study_state, ends))


class Forecasts:
    """The forecasts of studies for who shows them again and again, made aside and kept for a while.

    Who asks gets the one that was made last and waits for none. One is made at a time, and after it
    comes a rest, so that many and large studies make forecasts older instead of the CPU busy.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._lock = threading.Lock()
        #: By study and status: when the forecast was made (monotonic seconds), and the forecast.
        self._forecasts: dict[tuple[str, str], tuple[float, Forecast | None]] = {}
        self._making = False
        #: When the rest after the last one is over (monotonic seconds).
        self._rested = 0.0

    def of(self, study: StudyRow) -> Forecast | None:
        """Return the known forecast; None also for a study whose first one is being made."""
        key, now = (study.id, study.status), time.monotonic()
        with self._lock:
            made_at, forecast = self._forecasts.get(key, (-KEPT, None))
            is_due = study.finished_at is None and now >= max(made_at + KEPT, self._rested)
            if is_due and not self._making:
                self._making = True
                # It may be in the middle of seconds of work when the process is to end.
                threading.Thread(target=self._make, args=(study,), daemon=True).start()
        return forecast

    def _make(self, study: StudyRow) -> None:
        began, forecast = time.thread_time(), None
        try:
            forecast = forecast_of(self._reader, study, time.time())
        except PenstockError:
            pass  # who shows the study says what is wrong with the ledger
        except Exception:  # the next one is made all the same
            log.exception("when a study is expected to be over could not be worked out")
        spent = time.thread_time() - began
        with self._lock:
            now = time.monotonic()
            for other in [key for key in self._forecasts if key[0] == study.id]:
                del self._forecasts[other]
            self._forecasts[study.id, study.status] = now, forecast
            self._rested, self._making = now + REST * spent, False
