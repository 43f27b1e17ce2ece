"""The expected end of a study: the engine's own forecast for the state in the ledger."""

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

#: The least age (seconds) at which a kept forecast is made again.
KEPT = 10.0
#: Seconds of rest after each second of work, so that forecasts take little CPU time.
REST = 20.0


class Forecast(NamedTuple):
    """The expected end of a study, and the seconds by which the study then misses its deadline.

    ``ends`` is in seconds since 1970. ``misses`` is 0 if the study meets its deadline, and None if
    it has no deadline.
    """

    ends: float
    misses: float | None


def forecast_of(reader: Reader, study: StudyRow, now: float) -> Forecast | None:
    """Return the forecast of a running study; None if it is over, or nothing is known about it yet.

    Also returns None if this version's engine cannot go on with the ledger, though it can be read.
    Reads the engine's whole state, which takes a second or two for 10,000 trials. Raises as
    ``Reader`` does.
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
    """Forecasts of studies for repeated display: made in a thread and kept for a while.

    A caller gets the forecast that was made last, and never waits. One forecast is made at a time,
    followed by a rest. So with many or large studies forecasts get older, and the CPU is not busy.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._lock = threading.Lock()
        #: When the forecast was made (monotonic seconds), and the forecast, by study and status.
        self._forecasts: dict[tuple[str, str], tuple[float, Forecast | None]] = {}
        self._making = False
        #: When the rest after the last forecast is over (monotonic seconds).
        self._rested = 0.0

    def of(self, study: StudyRow) -> Forecast | None:
        """Return the forecast made last; None if there is none, or while the first is made."""
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
