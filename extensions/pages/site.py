"""The data from which all pages are drawn: the ledger, the studies read so far, the scheduler."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...app.client.study.control import Control
from ...app.host import locks
from ...app.ledger.forecast import Forecasts
from ...app.server.services.services import scheduler_answers
from ...app.show.status.printed import Line, PrintedLines
from ...app.show.views.live import Watcher
from ...base.errors import PenstockError
from ...scheduler.model.study import study_of_trial
from .importances import Shares

if TYPE_CHECKING:
    from ...app.host.settings import Settings
    from ...app.ledger.reader import Reader
    from ...app.ledger.rows import EpochRow
    from ...app.show.views.progress import View

#: The number of studies, and the number of logs, that are kept in memory.
KEPT = 64
#: The number of lines at the end of a log that are kept.
LINES = 20


class Site:
    """The data of the installation of ``settings``, whose ledger ``reader`` reads.

    Pages are drawn in one thread at a time (``extensions.pages.follower``).
    """

    def __init__(self, settings: Settings, reader: Reader) -> None:
        self.settings = settings
        self.reader = reader
        self.control = Control(settings, reader)
        self.forecasts = Forecasts(reader)
        self.shares = Shares(reader)
        #: The best value after each trial of a finished study, by the study's id and the time of
        #: its end.
        self.bests: dict[tuple[str, float], Sequence[float]] = {}
        self._watchers: OrderedDict[str, Watcher] = OrderedDict()
        self._logs: OrderedDict[str, tuple[PrintedLines, deque[Line]]] = OrderedDict()
        self._newest = 0

    def serves(self) -> bool:
        """Return True if a scheduler is running."""
        return scheduler_answers(self.settings)

    def scheduler(self) -> tuple[bool, int | None]:
        """Return True if a scheduler runs, and its process id if the process is on this machine.

        If the result changes, the scheduler has started, stopped or been replaced.
        """
        return self.serves(), locks.pid_of(self.settings.run, "scheduler")

    def newest(self) -> int:
        """Return the number of the newest event in the ledger.

        The result is 0 if there is no event or if the ledger cannot be read.
        """
        try:
            newest = 0 if self.reader.is_empty() else self.reader.newest()
        except PenstockError:
            return 0
        if newest < self._newest:  # an older ledger was restored
            # Other ones, since a page may just be drawn from these.
            self._watchers = OrderedDict()
        self._newest = newest
        return newest

    def look(self, study_id: str) -> tuple[View, Sequence[EpochRow]]:
        """Return the current state of a study, and all its epochs in the order of acceptance."""
        # How often pages are drawn is up to the follower: what is drawn is never older.
        watchers = self._watchers
        watcher = watchers.pop(study_id, None) or Watcher(self.reader, study_id, rest=0.0)
        view = watcher.poll()
        watchers[study_id] = watcher
        while len(watchers) > KEPT:
            watchers.popitem(last=False)
        return view, watcher.epochs

    def printed(self, name: str) -> Sequence[Line]:
        """Return the newest lines that a trial, or all trials of a study, printed on this machine.

        ``name`` is the id of the trial or the study. Lines that were read from a log are kept.
        """
        log = self._logs.pop(name, None)
        if log is None:
            printed_lines = PrintedLines(
                self.settings.logs, lambda of: name in (of, study_of_trial(of))
            )
            log = printed_lines, deque(maxlen=LINES)
        reads, lines = self._logs[name] = log
        lines.extend(reads.new(LINES).lines)
        while len(self._logs) > KEPT:
            self._logs.popitem(last=False)
        return tuple(lines)
