"""Follow a running study on the terminal: a header, the trials, the devices and the time left.

Theory of operation. ``follow`` only reads the ledger, a few times a second. So anyone may start and
stop ``follow`` at any time. ``study_screen`` is a pure function of the rows, so tests can compare
the screen as text. If the output is not a terminal, ``follow`` writes plain lines as things happen.
In a notebook, ``follow`` replaces the same output again and again. Everything goes to standard
error, since standard output belongs to the user.
"""

from __future__ import annotations

import io
import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from ....base.errors import LASTING, BackendError
from ....scheduler.model.trial import FINAL, TrialState
from ...common.console import PlainConsole
from ...common.timeouts import call_with_notices
from .progress import View, study_progress
from .screen import progress_words, sentence, study_screen

if TYPE_CHECKING:
    from ...ledger.reader import Reader
    from ...ledger.rows import EpochRow, StudyRow, TrialRow

#: Bounds, in seconds, of the time between two polls of the ledger. Between these bounds, the time
#: is a tenth of the time watched so far. So the end of a study that takes one second is noticed
#: soon.
MIN_PERIOD, MAX_PERIOD = 0.01, 0.2
#: The upper bound, in seconds, if only the end of the study matters. The ``wait`` of a script still
#: returns at once when the study ends.
MAX_IDLE_PERIOD = 1.0
#: The pause after all rows of a study were read, as a multiple of the CPU time of reading them.
REREAD_FACTOR = 25.0
#: The number of changed trials above which all trials are read again.
MANY = 500
LINE_PERIOD = 5.0  # seconds between two progress lines where there is no terminal
NOTEBOOK_WIDTH = 110  # characters

#: The number of seconds after which a ledger that does not answer is reported.
SILENCE = 3.0
WAITING = "the ledger does not answer, waiting for it"

#: Options with which Rich renders the table as a string, even in a notebook.
_NO_NOTEBOOK: dict[str, Any] = {"force_jupyter": False, "force_terminal": True}
_PRE = '<pre style="white-space: pre; line-height: 1.25; overflow-x: auto">{code}</pre>'


@dataclass(slots=True)
class Watcher:
    """A repeated reader of a study, which reads each epoch once and only those trials that changed.

    Every poll reads the row of the study, to see if the study is over. Trials, epochs and devices
    are read only when a reading is due, which is seldom for a study of many trials. So reading
    takes a few hundredths of a CPU core.
    """

    reader: Reader
    study_id: str
    #: True if trials, epochs and devices are read only at the first poll and at the end of the
    #: study.
    idle: bool = False
    #: The pause after trials, epochs and devices were read, as a multiple of the CPU time of
    #: reading.
    rest: float = REREAD_FACTOR
    #: All accepted epochs so far, in the order in which they were accepted.
    epochs: list[EpochRow] = field(default_factory=list)
    #: ``_trials`` contains the trials as they were last read, by id. ``_digests`` contains the
    #: digest of each trial's row at that time.
    _trials: dict[str, TrialRow] = field(default_factory=dict)
    _digests: dict[str, int] = field(default_factory=dict)
    #: The view that was read last.
    _view: View | None = None
    #: The time of the next reading of trials, epochs and devices, in monotonic seconds.
    _due: float = 0.0

    def poll(self) -> View:
        """Return the present view of the study.

        Raises BackendError if the ledger does not answer.
        """
        study = self.reader.study(self.study_id)
        if self._view is not None and not study.stands and time.monotonic() < self._due:
            return replace(self._view, study=replace(study, names=self._view.study.names))
        # CPU time, not wall time: waiting for a slow ledger is no load.
        began = time.thread_time()
        self._view = self._read(study)
        pause = math.inf if self.idle else self.rest * (time.thread_time() - began)
        self._due = time.monotonic() + pause
        return self._view

    def _read(self, study: StudyRow) -> View:
        study = self.reader.with_names(study)
        after = self.epochs[-1].rowid if self.epochs else 0
        self.epochs += self.reader.epochs(study.id, after)
        trials = self._read_trials()
        curves: dict[str, list[float]] = {}
        for row in self.epochs:
            curves.setdefault(row.trial, []).append(row.value)
        progress = study_progress(study, trials, self.epochs)
        return View(study, progress, trials, curves, self.reader.devices(), self.reader.running())

    def _read_trials(self) -> list[TrialRow]:
        digests = self.reader.trial_digests(self.study_id)
        changed = [name for name, digest in digests.items() if self._digests.get(name) != digest]
        if len(changed) > MANY:
            trials = self.reader.trials(self.study_id)
        else:
            trials = self.reader.trials_of(changed)
        self._trials |= {trial.id: trial for trial in trials}
        # If a row changes meanwhile, its digest differs from this one, and it is read again.
        self._digests = digests
        # If the study is deleted just now, trials may vanish between the two queries.
        return [self._trials[name] for name in digests if name in self._trials]


def follow(
    reader: Reader,
    study_id: str,
    *,
    on_trial: Callable[[TrialRow], None] | None = None,
    on_poll: Callable[[View, Sequence[EpochRow]], None] | None = None,
    show: bool = True,
    timeout: float | None = None,
    at_timeout: Callable[[], object] | None = None,
    before: Collection[str] = (),
    unwritten: Collection[str] = (),
    why: Callable[[StudyRow], str] = lambda study: "",
    still: Callable[[], bool] = lambda: False,
    wait: Callable[[float], Sequence[str] | None] = time.sleep,
) -> StudyRow:
    """Watch a study until it ends, or for ``timeout`` seconds, and return the study's last row.

    A study that has paused itself counts as ended, until its user acts.

    With ``at_timeout`` the study is always watched to its end. ``at_timeout`` is then called
    ``timeout`` seconds after the first trial has begun. For this time, trials whose ids are in
    ``before`` do not count. ``on_trial`` is called once for each trial that reaches a final state,
    except for trials whose ids are in ``before``. If plain lines are written, trials in
    ``unwritten`` get no line. ``on_poll`` is called after each poll of the ledger, with the view
    and with all epochs so far in the order of their acceptance.

    ``why`` returns the reason why the study makes no progress (``app.show.status.stall_monitor``).
    The reason is shown even if ``show`` is False. ``still`` returns True if the study stands still
    because no scheduler runs. ``wait`` is called between two polls with the longest time to wait,
    in seconds. ``wait`` may return earlier with the ids of trials that have ended, for which
    ``on_trial`` is then called at once.

    A ledger that does not answer is reported and polled again. Raises BackendError after
    ``timeout`` if the ledger never answered. Raises LedgerRefused or LedgerDamaged at once.
    """
    begun = time.monotonic()
    limit = Limit(timeout, at_timeout, before)
    # With ``at_timeout`` the trials are needed: the time counts from the first one's begin.
    idle = not show and on_trial is None and on_poll is None and at_timeout is None
    watcher, reported, view = Watcher(reader, study_id, idle), set(before), None
    live_screen: AbstractContextManager[Screen] = (
        _screen(PlainConsole(stderr=True), unwritten) if show else nullcontext(Quiet())
    )

    def report(trials: Sequence[TrialRow]) -> None:
        for trial in trials:
            if trial.state in FINAL and trial.id not in reported:
                reported.add(trial.id)
                if on_trial is not None:
                    on_trial(trial)

    with live_screen as screen:
        while True:
            trouble = ""
            try:
                view = call_with_notices(
                    SILENCE, "ledger-look", watcher.poll, partial(screen.draw, view, WAITING)
                )
            except LASTING:
                raise  # a second try would give the same error
            except BackendError as error:
                trouble = f"the ledger does not answer, asking again: {error}"
                if view is None and limit.is_over():
                    raise
            else:
                view = replace(view, still=still())
                if on_poll is not None:
                    on_poll(view, watcher.epochs)
            finished = not trouble and view is not None and view.study.stands
            report(view.trials if view and not trouble else ())
            screen.draw(view, trouble or ("" if view is None else why(view.study)))
            if view is not None and finished:
                return view.study
            limit.poll(view)
            if limit.is_over():
                if at_timeout is None and view is not None:
                    return view.study
                limit.carry_out()
            longest = MAX_IDLE_PERIOD if idle else MAX_PERIOD
            period = min(longest, max(MIN_PERIOD, (time.monotonic() - begun) / 10))
            until = time.monotonic() + period
            while (remaining := until - time.monotonic()) > 0 and (names := wait(remaining)):
                rows: dict[str, TrialRow] = {}
                with suppress(BackendError):  # the next look says it
                    rows = {row.id: row for row in reader.trials_of(names)}
                report([rows[name] for name in names if name in rows])


class Limit:
    """The time for which a study is watched or, with ``at_end``, may begin new trials."""

    def __init__(
        self, timeout: float | None, at_end: Callable[[], object] | None, before: Collection[str]
    ) -> None:
        self._timeout = timeout
        self._at_end = at_end
        self._before = before
        at_once = timeout is not None and at_end is None
        self._end = time.monotonic() + timeout if timeout is not None and at_once else None

    def poll(self, view: View | None) -> None:
        """Start the clock when the first trial begins that is not in ``before``."""
        if self._timeout is None or self._end is not None or view is None:
            return
        resting = (TrialState.PROPOSED, TrialState.WAITING)
        if any(t.state not in resting for t in view.trials if t.id not in self._before):
            self._end = time.monotonic() + self._timeout

    def is_over(self) -> bool:
        """Return True if the time is over."""
        return self._end is not None and time.monotonic() >= self._end

    def carry_out(self) -> None:
        """Call the function that was given for the end of the time. A second call does nothing."""
        if self._at_end is not None:
            self._at_end()
            self._timeout = self._end = None


class Screen(Protocol):
    def draw(self, view: View | None, trouble: str) -> None:
        """Show the study, and the reason why the study makes no progress."""


@contextmanager
def _screen(console: PlainConsole, unwritten: Collection[str]) -> Iterator[Screen]:
    if console.is_jupyter:
        yield Notebook()
        return
    if not console.is_terminal:
        yield Lines(console, set(unwritten))
        return
    with Live(console=console, refresh_per_second=8, transient=False) as live:
        yield LiveTable(live)


@dataclass(slots=True)
class LiveTable(Screen):
    live: Live

    def draw(self, view: View | None, trouble: str) -> None:
        self.live.update(_shown(view, trouble))


class Notebook(Screen):
    """The table of a study below the cell of a notebook, as one output that each poll replaces."""

    def __init__(self) -> None:
        self._place: Any = None

    def draw(self, view: View | None, trouble: str) -> None:
        # IPython is installed, because this code runs in it; only a part of it has types. Rich's
        # own notebook view would need ipywidgets.
        from IPython.display import display

        console = PlainConsole(
            file=io.StringIO(), record=True, width=NOTEBOOK_WIDTH, **_NO_NOTEBOOK
        )
        console.print(_shown(view, trouble), highlight=False)
        text = console.export_text(clear=False, styles=False)
        page = console.export_html(inline_styles=True, code_format=_PRE)
        bundle = {"text/plain": text, "text/html": page}
        if self._place is None:
            self._place = display(bundle, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._place.update(bundle, raw=True)


def _shown(view: View | None, trouble: str) -> RenderableType:
    notice = Text(trouble, style="yellow")
    if view is None:
        return notice
    content = study_screen(view, time.time())
    return Group(content, notice) if trouble else content


@dataclass(slots=True)
class Quiet(Screen):
    """A screen that writes only messages of trouble, each message once."""

    console: PlainConsole = field(default_factory=lambda: PlainConsole(stderr=True))
    _trouble: str = ""

    def draw(self, view: View | None, trouble: str) -> None:
        if trouble and trouble != self._trouble:
            name = "" if view is None else f"{view.study.name}: "
            _write(self.console, f"{name}{trouble}")
        self._trouble = trouble


@dataclass(slots=True)
class Lines(Screen):
    """A screen of plain lines: ended trials, progress every few seconds, each message once."""

    console: PlainConsole
    #: The ids of trials that get no line. A trial gets none if it already had a line, or if the
    #: caller named it in ``unwritten``.
    _written: set[str] = field(default_factory=set)
    _next: float = 0.0
    _over: bool = False
    #: The study's message when the study was last drawn.
    _message: str = ""
    _quiet: Quiet = field(init=False)

    def __post_init__(self) -> None:
        self._quiet = Quiet(self.console)

    def draw(self, view: View | None, trouble: str) -> None:
        """Write lines for all that is new in ``view``."""
        self._quiet.draw(view, trouble)
        if view is None:
            return
        for trial in view.trials:
            if trial.state in FINAL and trial.id not in self._written:
                self._written.add(trial.id)
                _write(self.console, sentence(view.study, trial))
        over = view.study.finished_at is not None and not self._over
        if over or (not self._over and time.monotonic() >= self._next):
            self._next = time.monotonic() + LINE_PERIOD
            self._over = over
            _write(self.console, f"{view.study.name}: {view.status}, {progress_words(view)}")
        message = view.study.reason
        if message and message != self._message:
            _write(self.console, f"{view.study.name}: {message}")
        self._message = message


def _write(console: PlainConsole, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
