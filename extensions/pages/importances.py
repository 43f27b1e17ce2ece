"""Computes the importances of hyperparameters in the background, and keeps them for the pages."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...app.server.optuna_bridge.importances import LEAST, Importances, importances
from ...base.errors import PenstockError
from ...scheduler.model.trial import FINAL

if TYPE_CHECKING:
    from ...app.ledger.reader import Reader
    from ...app.ledger.rows import EpochRow, StudyRow, TrialRow

log = logging.getLogger(__name__)

#: Seconds of rest after each second of computing, so that importances take little CPU time.
REST = 20.0


class Shares:
    """A cache of the importances of hyperparameters in the studies that pages show.

    A page gets the last result without waiting. A new result is computed in a thread if more trials
    are over than at the last one. One study is computed at a time, with a rest after each.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._lock = threading.Lock()
        #: By study id: the number of trials that were over, and the importances of the
        #: hyperparameters.
        self._known: dict[str, tuple[int, Importances | None]] = {}
        self._working = False
        #: The end of the rest after the last computation (monotonic seconds).
        self._rested = 0.0
        self._news = False
        #: True if a finished study had to wait because another study was being computed, or because
        #: of the rest.
        self._refused = False

    def of(
        self, study: StudyRow, trials: Sequence[TrialRow], epochs: Sequence[EpochRow]
    ) -> tuple[Importances | None, bool]:
        """Return the last known importances of a study, and True if newer ones are to come."""
        over = sum(trial.state in FINAL for trial in trials)
        with self._lock:
            worked_out, shares = self._known.get(study.id, (0, None))
            is_due = over != worked_out and len(trials) >= LEAST
            if is_due and not self._working and time.monotonic() >= self._rested:
                self._working = True
                arguments = (study, over, trials, epochs)
                threading.Thread(target=self._work, args=arguments, daemon=True).start()
            elif is_due and study.finished_at is not None:
                self._refused = True
        return shares, is_due

    def has_news(self) -> bool:
        """Return True, once, if a finished study has new importances or can be computed now.

        Neither leaves an event in the ledger, so the follower learns of both from this method.
        """
        with self._lock:
            again = self._refused and not self._working and time.monotonic() >= self._rested
            news, self._news = self._news or again, False
            self._refused = self._refused and not again
        return news

    def _work(
        self, study: StudyRow, over: int, trials: Sequence[TrialRow], epochs: Sequence[EpochRow]
    ) -> None:
        # Imported here because it imports Optuna, which takes a second.
        from ...app.server.optuna_bridge.frozen_trials import Results

        began = time.thread_time()
        shares, failed = None, True
        try:
            frozen = Results(self._reader, study.id).frozen(trials, epochs)
            shares = importances(frozen, study.plan)
            failed = False
        except PenstockError:
            pass  # the page itself says what is wrong with the ledger
        except Exception:  # the next ones are worked out all the same
            log.exception("the importances of parameters could not be worked out")
        with self._lock:
            if failed:  # what was known stays, and it is tried again after a rest
                before = self._known.get(study.id, (0, None))[1]
                self._known[study.id] = -1, before
            else:
                self._known[study.id] = over, shares
            self._rested = time.monotonic() + REST * (time.thread_time() - began)
            self._news = self._news or study.finished_at is not None
            self._working = False
