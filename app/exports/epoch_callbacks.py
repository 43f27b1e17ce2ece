"""Accepted epochs into other people's logs (TensorBoard, MLflow): each once, and in order.

Theory of operation. What is logged comes from the ledger, never from trainers: an epoch that was
replayed, or reported by a worker that no longer counts, is not accepted twice and so not logged
twice. Whoever watches a study also logs it. A log is asked how far it has a trial before the first
of the trial's epochs is written, so that a watcher that was killed, or comes late, goes on where
the log ends. Two watchers would both find the same end: a lock lets one of a kind log a study to
one place at a time.
"""

from __future__ import annotations

import contextlib
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from zlib import crc32

from ...profiling.base.errors import BackendError
from ...scheduler.model.trial import FINAL
from ..host import locks

if TYPE_CHECKING:
    from ..ledger.rows import EpochRow, StudyRow, TrialRow
    from ..views.progress import View

log = logging.getLogger(__name__)

#: Seconds after which a log that did not answer is asked again.
RETRY = 30.0


@dataclass(frozen=True, slots=True)
class Point:
    """A trial's metrics after an epoch, and when they were accepted (seconds)."""

    epoch: int
    at: float
    metrics: Mapping[str, float]


class Log(Protocol):
    """Where one study is logged."""

    def write(self, trial: TrialRow, points: Sequence[Point], *, over: bool) -> None:
        """Write those of ``points`` that are not there yet; ``over`` where no more will come."""


class EpochCallback(ABC):
    """Logs a study to one place while it is watched; given in ``optimize(callbacks=[...])``."""

    #: What kind of log it is: the name of its extra.
    kind: str

    @property
    @abstractmethod
    def place(self) -> str:
        """Where it logs to."""

    @abstractmethod
    def check(self) -> None:
        """Raise UsageError where it cannot log."""

    @abstractmethod
    def open(self, study: StudyRow) -> Log:
        """The log of ``study``, after ``check``. BackendError where it does not answer."""


class Feed:
    """Hands each log what is new, from one look of a watcher to the next.

    One that does not answer holds up nobody: that is said once, and it is opened anew later. Since
    it is asked then how far it is, it misses nothing in the end.
    """

    def __init__(self, callbacks: Sequence[EpochCallback], run: Path) -> None:
        self._callbacks = callbacks
        self._run = run
        self._held = contextlib.ExitStack()
        self._logs: dict[EpochCallback, _Fed] = {}
        self._waits: dict[EpochCallback, float] = {}

    def look(self, view: View, epochs: Sequence[EpochRow]) -> None:
        """Log what ``view`` has; ``epochs`` are all accepted ones, longer from look to look.

        UsageError where another process logs this study to the same place.
        """
        over = view.study.finished_at is not None
        for callback in self._callbacks:
            if time.monotonic() < self._waits.get(callback, 0.0) and not over:
                continue
            if callback not in self._waits:
                self._hold(callback, view.study)
            try:
                if callback not in self._logs:
                    self._logs[callback] = _Fed(callback.open(view.study))
                self._logs[callback].look(view, epochs)
            except BackendError as error:
                self._logs.pop(callback, None)
                if over:
                    option = f"--{callback.kind}"
                    log.warning(
                        "%s: the log is not whole; `penstock watch %s %s` adds what is missing",
                        *(error, view.study.id, option),
                    )
                elif not self._waits[callback]:
                    log.warning("%s; the study goes on, and is logged when it answers", error)
                self._waits[callback] = time.monotonic() + RETRY
            else:
                self._waits[callback] = 0.0

    def close(self) -> None:
        self._held.close()

    def _hold(self, callback: EpochCallback, study: StudyRow) -> None:
        callback.check()
        name = f"{callback.kind}-{study.id}-{crc32(callback.place.encode()):08x}"
        self._held.enter_context(locks.hold(self._run, name))
        self._waits[callback] = 0.0


class _Fed:
    """A log, and how far it was fed."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._heard = 0
        self._reached: dict[str, int] = {}
        self._over: set[str] = set()

    def look(self, view: View, epochs: Sequence[EpochRow]) -> None:
        points: dict[str, list[Point]] = {}
        for row in epochs[self._heard :]:
            points.setdefault(row.trial, []).append(Point(row.epoch, row.at, row.metrics))
            self._reached[row.trial] = row.epoch
        self._heard = len(epochs)
        for trial in view.trials:
            over = trial.state in FINAL
            if over and trial.id in self._over and trial.id not in points:
                continue
            found = points.get(trial.id, [])
            if over and trial.epoch == 0 and trial.value is not None:
                # An objective that reported nothing on its way: its value is all there is.
                at = trial.finished_at or trial.created_at
                found = [Point(0, at, {view.study.metric: trial.value})]
            # Trials are read after the epochs: the last ones may come with the next look.
            over = over and self._reached.get(trial.id, 0) >= trial.epoch
            if found or over:
                self._log.write(trial, found, over=over)
            if over:
                self._over.add(trial.id)
