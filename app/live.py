"""A study as it runs, on the terminal: a header, a table of trials, what the devices do, time left.

Theory of operation. ``follow`` reads the ledger a few times a second and knows nothing else, so it
may be started and stopped at any time and by anybody. ``picture`` is a pure function of the rows:
what one sees can be tested as text. Where the output is no terminal, plain lines are written as
things happen instead. Everything goes to standard error: standard output is the user's.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from ..profiling.errors import BackendError
from ..scheduler.trial import FINAL
from .codec import spec_from_json
from .picture import View, picture, progress, sentence
from .standing import standing

if TYPE_CHECKING:
    from .queries import EpochRow, Reader, StudyRow, TrialRow

PERIOD = 0.2  # seconds between two looks at the ledger
LINE_PERIOD = 5.0  # seconds between two progress lines where there is no terminal


@dataclass(slots=True)
class Watcher:
    """Reads a study again and again; epochs are read once each."""

    reader: Reader
    study_id: str
    _epochs: list[EpochRow] = field(default_factory=list)

    def look(self) -> View:
        """The study now. Raises BackendError when the ledger does not answer."""
        study = self.reader.study(self.study_id)
        after = self._epochs[-1].rowid if self._epochs else 0
        self._epochs += self.reader.epochs(study.id, after)
        trials = self.reader.trials(study.id)
        curves: dict[str, list[float]] = {}
        for row in self._epochs:
            curves.setdefault(row.trial, []).append(row.value)
        plan = spec_from_json(study.spec_json).strategy
        stand = standing(study, plan, trials, self._epochs)
        return View(study, stand, trials, curves, self.reader.devices(), self.reader.running())


def follow(
    reader: Reader,
    study_id: str,
    *,
    on_trial: Callable[[TrialRow], None] | None = None,
    show: bool = True,
    timeout: float | None = None,
    at_timeout: Callable[[], object] | None = None,
    alive: Callable[[], bool] | None = None,
) -> StudyRow:
    """Watch a study until it is finished, or for ``timeout`` seconds; returns it as it then stands.

    With ``at_timeout``, that is called after ``timeout`` instead, and the study watched to its end.
    ``on_trial`` hears of each trial once, when it has reached a final state. ``alive`` says whether
    a scheduler is at work, for the note shown when none is. A ledger that does not answer is shown
    and asked again; only one that never answered raises BackendError, after ``timeout``.
    """
    end = None if timeout is None else time.monotonic() + timeout
    watcher, told, view = Watcher(reader, study_id), set[str](), None
    with _screen(Console(stderr=True)) if show else contextlib.nullcontext(Screen()) as screen:
        while True:
            trouble = ""
            try:
                view = watcher.look()
            except BackendError as error:
                trouble = f"the ledger does not answer, asking again: {error}"
                if view is None and end is not None and time.monotonic() >= end:
                    raise
            finished = not trouble and view is not None and view.study.finished_at is not None
            paused = view is not None and view.study.status == "paused"
            if not (trouble or finished or paused) and alive is not None and not alive():
                trouble = "no scheduler is running: the study goes on when one does (penstock up)"
            for trial in view.trials if view and not trouble else ():
                if trial.state in FINAL and trial.id not in told:
                    told.add(trial.id)
                    if on_trial is not None:
                        on_trial(trial)
            if paused and not trouble:
                trouble = f"it is paused and goes on with: penstock resume {study_id}"
            screen.draw(view, trouble)
            if view is not None and finished:
                return view.study
            if view is not None and end is not None and time.monotonic() >= end:
                if at_timeout is None:
                    return view.study
                at_timeout()
                end = None
            time.sleep(PERIOD)


class Screen:
    def draw(self, view: View | None, trouble: str) -> None:
        """Show nothing."""


@contextlib.contextmanager
def _screen(console: Console) -> Iterator[Screen]:
    if not console.is_terminal:
        yield Lines(console)
        return
    with Live(console=console, refresh_per_second=8, transient=False) as live:
        yield LiveTable(live)


@dataclass(slots=True)
class LiveTable(Screen):
    live: Live

    def draw(self, view: View | None, trouble: str) -> None:
        notice = Text(trouble, style="yellow")
        if view is None:
            self.live.update(notice)
        else:
            shown = picture(view, time.time())
            self.live.update(Group(shown, notice) if trouble else shown)


@dataclass(slots=True)
class Lines(Screen):
    """Plain lines: a trial that is over, a note every few seconds, trouble once."""

    console: Console
    _told: set[str] = field(default_factory=set)
    _next: float = 0.0
    _trouble: str = ""
    _over: bool = False

    def draw(self, view: View | None, trouble: str) -> None:
        """Write what is new in ``view``."""
        if trouble and trouble != self._trouble:
            self._write(trouble)
        self._trouble = trouble
        if view is None:
            return
        for trial in view.trials:
            if trial.state in FINAL and trial.id not in self._told:
                self._told.add(trial.id)
                self._write(sentence(view.study, trial))
        over = view.study.finished_at is not None and not self._over
        if over or (not self._over and time.monotonic() >= self._next):
            self._next = time.monotonic() + LINE_PERIOD
            self._over = over
            self._write(f"{view.study.name}: {view.study.status}, {progress(view)}")
            if over and view.study.message:
                self._write(view.study.message)

    def _write(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)
