"""Measure a width window: the steps of a trial on one device, then on several together.

Theory of operation. Each member makes a copy of the trial, so that no state is touched and none has
to be sent. Rank 0 measures alone first. So it learns how long the window may take, and the other
members have time to start. Then it announces one width after another
(``profiling.costs.width_window``). The first ``width`` members form a gang and take a step. If that
step does not show that the width is hopeless, rank 0 lets them take more steps. Rank 0 ends the
window, also if the others do not arrive in time, or if a cut shows that other trials want the
devices.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from statistics import median

from ...profiling.costs.width_window import MIN_STEPS, STEPS, WARM_UP, WidthWindow
from ..gangs.rendezvous import Rendezvous, RendezvousHandler
from ..process.pipe import Run
from ..training.data import length
from ..training.loop import time_steps
from ..training.training import Training

#: The topic on which rank 0 tells a gang if it takes more steps.
_GOES_ON = "goes on"


class _TooLate(Exception):
    """The members have not met in time, or the segment was cut before they met."""


def measure_widths(run: Run, make: Callable[[], Training], handler: RendezvousHandler) -> None:
    """Measure the widths that the segment names, and report them.

    ``make`` makes a new copy of the trial. Raises ``Lost`` and ``Abandoned``.
    """
    task = run.task
    run.prepared()
    try:
        training = make()
        per_epoch = -(-length(training.data.train) // training.batch_size)
        passes = task.width_epochs * per_epoch
        if task.rank == 0:
            _lead(run, training, handler, passes, per_epoch)
        else:
            rendezvous = handler.begin(run.members, task.fence, run.check)
            if passes >= MIN_STEPS and per_epoch >= STEPS:
                _follow(run, training, handler, rendezvous)
            run.say("widths", seconds=[], steps=per_epoch, meeting=0.0, met=False)
    except BaseException:
        for width in task.widths:  # each width has a gang of its own
            handler.leave(run.members[:width])
        handler.leave(run.members)
        raise


def _lead(
    run: Run, training: Training, handler: RendezvousHandler, passes: float, per_epoch: int
) -> None:
    began = time.monotonic()
    window = WidthWindow(run.task.widths, math.inf)
    meeting = _Meeting(run, handler, window)
    if passes >= MIN_STEPS and per_epoch >= STEPS:
        list(time_steps(training, 1, run.check))  # not counted: a process's first step takes longer
        for width in window.remaining():
            training.gang = None
            if run.cut or (width > 1 and not meeting.agree(width, training)):
                break
            window.found[width] = _step_seconds(
                training, run.check, partial(meeting.goes_on, width)
            )
            if width == 1:
                began = time.monotonic() - STEPS * window.found[1]
                window.limit = passes * window.found[1]
            window.spent = time.monotonic() - began
        meeting.end()
    run.say(
        "widths",
        seconds=[*window.found.items()],
        steps=per_epoch,
        meeting=meeting.seconds,
        met=meeting.rendezvous is not None,
    )


def _follow(
    run: Run, training: Training, handler: RendezvousHandler, rendezvous: Rendezvous
) -> None:
    turn = 0
    while width := int(rendezvous.exchange(f"width {turn}", 0)[0]):
        turn += 1
        if run.task.rank < width:
            gang = rendezvous.part(width)
            training.gang = handler.gang(gang)
            _step_seconds(training, run.check, partial(_told, gang))


def _told(gang: Rendezvous, _seconds: float) -> bool:
    """Return True if rank 0 lets the gang take more steps."""
    return bool(gang.exchange(_GOES_ON, 0)[0])


def _step_seconds(
    training: Training, check: Callable[[], None], goes_on: Callable[[float], bool]
) -> float:
    """Return the seconds of a step.

    ``goes_on`` is called with the seconds of the first step; if it returns False, no step follows.
    """
    times: list[float] = []
    for seconds in time_steps(training, STEPS, check):
        times.append(seconds)
        if len(times) == 1 and not goes_on(seconds):
            return seconds
    return median(times[WARM_UP:])


class _Meeting:
    """Rank 0's side of the exchanges with the other members."""

    def __init__(self, run: Run, handler: RendezvousHandler, window: WidthWindow) -> None:
        self._run, self._handler, self._window = run, handler, window
        #: Time after which a member comes too late (monotonic seconds).
        self._until = math.inf
        #: Seconds until the first gang had formed, or until rank 0 no longer waited for it.
        self.seconds = 0.0
        #: The rendezvous with all members, once they have met.
        self.rendezvous: Rendezvous | None = None
        self._turn = 0

    def agree(self, width: int, training: Training) -> bool:
        """Form the gang for ``width``. Return False if the members did not meet in time."""
        first = self.rendezvous is None
        began = time.monotonic()
        self._until = began + self._window.meeting_seconds()
        try:
            rendezvous = self.rendezvous or self._handler.begin(
                self._run.members, self._run.task.fence, self._check if first else self._run.check
            )
            self._say(rendezvous, width)
        except _TooLate:
            self.seconds = time.monotonic() - began
            return False
        training.gang = self._handler.gang(rendezvous.part(width))
        if first:
            self.rendezvous, self.seconds = rendezvous, time.monotonic() - began
        return True

    def goes_on(self, width: int, seconds: float) -> bool:
        """Return True if more steps follow a first one of ``seconds``, and tell the gang so."""
        if width == 1:
            return True
        goes_on = not self._window.is_hopeless(seconds)
        assert self.rendezvous is not None
        self.rendezvous.part(width).exchange(_GOES_ON, int(goes_on))
        return goes_on

    def end(self) -> None:
        """Release the other members, which wait for the next width."""
        if self.rendezvous is not None:
            self._say(self.rendezvous, 0)

    def _say(self, rendezvous: Rendezvous, width: int) -> None:
        rendezvous.exchange(f"width {self._turn}", width)
        self._turn += 1

    def _check(self) -> None:
        self._run.check()
        met = self.rendezvous is not None  # their common work may take longer
        if not met and (self._run.cut or time.monotonic() > self._until):
            raise _TooLate
