"""Writes accepted epochs to logs of other tools (TensorBoard, MLflow): each once, and in order.

Theory of operation. Logged epochs come from the ledger, never from trainers. An epoch that was
replayed, or that a fenced-off worker reported, is not accepted twice and so not logged twice. The
process that watches a study also logs it. Before it writes a trial's first epoch, it asks the log
how much of the trial is there. So a watcher that was killed or that comes late continues where the
log ends. Two watchers would both find the same end, so a lock allows one at a time for each study,
kind of log and place.
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

from ....base.errors import BackendError
from ....scheduler.model.trial import FINAL
from ...common.text import in_shell
from ...host import locks

if TYPE_CHECKING:
    from ...ledger.rows import EpochRow, StudyRow, TrialRow
    from ...show.views.progress import View

log = logging.getLogger(__name__)

#: Seconds to wait before writing again to a log that did not answer.
RETRY = 30.0


@dataclass(frozen=True, slots=True)
class Point:
    """A trial's metrics after an epoch.

    ``at`` is the time (seconds since 1970) at which the scheduler accepted the epoch.
    """

    epoch: int
    at: float
    metrics: Mapping[str, float]


class Log(Protocol):
    """A log of one study."""

    def write(self, trial: TrialRow, points: Sequence[Point], *, over: bool) -> None:
        """Write the ``points`` that are not in the log yet; ``over`` means no more will come."""


class EpochCallback(ABC):
    """Logs a study to one place while it is watched. Pass it to ``optimize(callbacks=[...])``."""

    #: The kind of log: the name of its optional dependency.
    kind: str

    @property
    @abstractmethod
    def destination(self) -> str:
        """The folder or the address that this callback logs to."""

    @abstractmethod
    def check(self) -> None:
        """Raise UsageError if this callback cannot log."""

    @abstractmethod
    def open(self, study: StudyRow) -> Log:
        """Open the log of ``study``, after ``check``.

        Raises BackendError if the log does not answer.
        """


class Feed:
    """Sends each log the epochs that are new since the watcher's last look.

    A log that does not answer delays nobody: the failure is reported once, and the log is opened
    again later. The log is then asked which epochs it has, so that none is missing in the end.
    """

    def __init__(self, callbacks: Sequence[EpochCallback], run: Path) -> None:
        self._callbacks = callbacks
        self._run = run
        self._locks = contextlib.ExitStack()
        self._logs: dict[EpochCallback, _LogPosition] = {}
        self._retry_at: dict[EpochCallback, float] = {}

    def update(self, view: View, epochs: Sequence[EpochRow]) -> None:
        """Log the trials of ``view``. ``epochs`` are all accepted ones, in a growing list.

        Raises UsageError if another process logs this study to the same place.
        """
        over = view.study.finished_at is not None
        for callback in self._callbacks:
            if time.monotonic() < self._retry_at.get(callback, 0.0) and not over:
                continue
            if callback not in self._retry_at:
                self._hold(callback, view.study)
            try:
                if callback not in self._logs:
                    self._logs[callback] = _LogPosition(callback.open(view.study))
                self._logs[callback].update(view, epochs)
            except BackendError as error:
                self._logs.pop(callback, None)
                if over:
                    option = f"--{callback.kind}"
                    log.warning(
                        "%s: the log is incomplete; `penstock watch %s %s` adds what is missing",
                        *(error, in_shell(view.study.name, view.study.id), option),
                    )
                elif not self._retry_at[callback]:
                    log.warning("%s; the study continues and is logged when it answers", error)
                self._retry_at[callback] = time.monotonic() + RETRY
            else:
                self._retry_at[callback] = 0.0

    def close(self) -> None:
        self._locks.close()

    def _hold(self, callback: EpochCallback, study: StudyRow) -> None:
        callback.check()
        name = f"{callback.kind}-{study.id}-{crc32(callback.destination.encode()):08x}"
        self._locks.enter_context(locks.hold(self._run, name))
        self._retry_at[callback] = 0.0


class _LogPosition:
    """A log, and the position in the list of epochs up to which the log was written."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._delivered = 0
        self._reached: dict[str, int] = {}
        self._over: set[str] = set()

    def update(self, view: View, epochs: Sequence[EpochRow]) -> None:
        points: dict[str, list[Point]] = {}
        for row in epochs[self._delivered :]:
            points.setdefault(row.trial, []).append(Point(row.epoch, row.at, row.metrics))
            self._reached[row.trial] = row.epoch
        self._delivered = len(epochs)
        for trial in view.trials:
            over = trial.state in FINAL
            if over and trial.id in self._over and trial.id not in points:
                continue
            new_points = points.get(trial.id, [])
            if over and trial.epoch == 0 and trial.value is not None:
                # The objective reported nothing on the way, so only its value is logged.
                at = trial.finished_at or trial.created_at
                new_points = [Point(0, at, {view.study.metric: trial.value})]
            # Trials are read after epochs, so the last epochs may come with the next look.
            over = over and self._reached.get(trial.id, 0) >= trial.epoch
            if new_points or over:
                self._log.write(trial, new_points, over=over)
            if over:
                self._over.add(trial.id)
