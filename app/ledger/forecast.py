"""The expected end of a study, as the engine forecasts it for the state in the ledger."""

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

#: The age in seconds from which a cached forecast is computed again.
KEPT = 10.0
#: The number of seconds of rest for each second of CPU time that a forecast took. So forecasts take
#: little CPU time.
REST = 20.0


class Forecast(NamedTuple):
    """The expected end of a study, and the time by which the study will miss its deadline.

    ``ends`` is in seconds since 1970. ``misses`` is a number of seconds. It is 0 if the study will
    meet its deadline, and None if the study has no deadline.
    """

    ends: float
    misses: float | None


def forecast_of(reader: Reader, study: StudyRow, now: float) -> Forecast | None:
    """Return the forecast for a running study at the time ``now`` (seconds since 1970).

    The result is None if the study is over, if nothing is known yet about its end, or if the engine
    of this version cannot go on with the ledger. The call reads the whole state of the engine,
    which takes a second or two for 10,000 trials. Raises BackendError if the ledger does not
    answer, and LedgerDamaged if a row differs from what was written.
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
    """Forecasts for a display that is refreshed often.

    Forecasts are computed in a thread and cached. The caller gets the forecast that was computed
    last, and never waits. Only one forecast is computed at a time, and a rest follows each
    computation. So with many or large studies, the forecasts get older but the CPU does not get
    busy.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._lock = threading.Lock()
        #: The time at which the forecast was computed (monotonic seconds), and the forecast, by the
        #: study's id and status.
        self._forecasts: dict[tuple[str, str], tuple[float, Forecast | None]] = {}
        self._making = False
        #: The time at which the rest after the last forecast is over (monotonic seconds).
        self._rested = 0.0

    def of(self, study: StudyRow) -> Forecast | None:
        """Return the study's last forecast, and start to compute a new forecast if one is due.

        The result is None if nothing was computed for the study's present status yet, or if the
        forecast itself is None.
        """
        key, now = (study.id, study.status), time.monotonic()
        with self._lock:
            made_at, forecast = self._forecasts.get(key, (-KEPT, None))
            is_due = study.finished_at is None and now >= max(made_at + KEPT, self._rested)
            if is_due and not self._making:
                self._making = True
                # A daemon, so that the process can end while a forecast takes seconds.
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
