"""Time limits on the current activity of a segment's trainer: its start, loading, or an epoch.

Theory of operation. The start of a trainer has the limit ``START_TIMEOUT``. An epoch has the time
limit of its study, if the study has one. Loading the user's code and data then has the same limit,
or ``START_TIMEOUT`` if that is longer.

Time is measured on the run's own clock, which stands still while other trials have their turns in
the trainer. So the limit may be reached later than wall time suggests. ``due`` is the time of the
next check, and a check may find that time is left.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ....wire.messages import SegmentTask

#: Seconds in which a new trainer must start. If epochs have a time limit, the user's code and data
#: must be loaded within the longer of the two times.
START_TIMEOUT = 120.0


class TimeLimit:
    """The time limit of the segment's current activity, and the duration of its training steps."""

    def __init__(self, task: SegmentTask, clock: Callable[[], float]) -> None:
        """Create a time limit that does not run yet.

        ``clock`` returns the seconds of the run's own clock.
        """
        self._clock = clock
        self._usual = task.epoch_timeout or 0.0
        self._first = task.first
        self._epoch = task.first
        self._preparing = False
        self._seconds = 0.0
        self._since = 0.0
        self._progress: tuple[float, int] | None = None
        #: The time (monotonic, in seconds) of the next check whether the limit is exceeded. 0 if
        #: there is no limit.
        self.due = 0.0
        #: The duration of a training step in seconds, as last measured.
        self.step_seconds = 0.0

    def begin(self, seconds: float = 0.0) -> None:
        """Restart the time limit with ``seconds``, or with an epoch's limit if ``seconds`` is 0."""
        self._seconds = seconds or self._usual
        self.due = time.monotonic() + self._seconds if self._seconds else 0.0
        self._since = self._clock()

    def epoch_over(self, epoch: int) -> None:
        """Restart the time limit for the next epoch, because the trainer has reported ``epoch``."""
        self._epoch = epoch + 1
        self.begin()

    def step(self, epoch: int, step: int) -> None:
        """Note that the trainer has reached ``step`` of ``epoch``."""
        now = time.monotonic()
        if self._progress and step > self._progress[1]:
            before, earlier = self._progress
            self.step_seconds = (now - before) / (step - earlier)
        self._progress = (now, step)
        if epoch != self._epoch:  # each replayed epoch gets a time limit of its own
            self._epoch = epoch
            self._preparing = False
            self.begin()

    def loading(self) -> None:
        """Note that the trainer has begun to load the user's code and data."""
        self._preparing = True
        if self._usual:
            self.begin(max(START_TIMEOUT, self._usual))

    def loaded(self) -> None:
        """Note that the trainer has loaded the user's code and data."""
        self._preparing = False
        self._epoch = self._first
        self.begin()

    def is_over(self, *, started: bool) -> bool:
        """Return True if the time limit is exceeded.

        ``started`` is True if the trainer is ready, so that the run's own clock can be read.
        """
        now = time.monotonic()
        if not self.due or now < self.due:
            return False
        if started and (remaining := self._seconds - self._clock() + self._since) > 0.0:
            self.due = now + remaining
            return False
        return True

    def __str__(self) -> str:
        activity = "loading its code and data" if self._preparing else f"epoch {self._epoch}"
        return f"{activity} took longer than {self._seconds:g} s"
