"""Time limits on the present step of a segment's trainer: start, loading, or an epoch.

Theory of operation. An epoch has the time limit of its study, if the study has one. Loading the
user's code and data has the same limit, or ``START_TIMEOUT`` if that is longer. The start of a
trainer has the limit ``START_TIMEOUT``. Time is measured on the run's own clock, which stands still
while other trials have their turns in the trainer. So there are two moments: ``due``, when a check
is worthwhile, and the end of the limit, which may turn out to be later.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ....wire.messages import SegmentTask

#: Seconds in which a new trainer must start. If epochs have a time limit, the user's code and data
#: must be loaded in this time, too, or in the epochs' limit if that is longer.
START_TIMEOUT = 120.0


class TimeLimit:
    """The time limit of a segment's present step, and the speed of its epoch."""

    def __init__(self, task: SegmentTask, clock: Callable[[], float]) -> None:
        """``clock`` returns the seconds of the run's own clock."""
        self._clock = clock
        self._usual = task.epoch_timeout or 0.0
        self._first = task.first
        self._epoch = task.first
        self._preparing = False
        self._seconds = 0.0
        self._since = 0.0
        self._progress: tuple[float, int] | None = None
        #: When to check whether the limit is exceeded (monotonic seconds); 0: never.
        self.due = 0.0
        #: Seconds of a training step, as last measured.
        self.step_seconds = 0.0

    def begin(self, seconds: float = 0.0) -> None:
        """Restart the time with a limit of ``seconds``, or the limit of an epoch if that is 0."""
        self._seconds = seconds or self._usual
        self.due = time.monotonic() + self._seconds if self._seconds else 0.0
        self._since = self._clock()

    def epoch_over(self, epoch: int) -> None:
        """Start the time of the next epoch, since the trainer has reported ``epoch``."""
        self._epoch = epoch + 1
        self.begin()

    def step(self, epoch: int, step: int) -> None:
        """Note that the trainer is at this step of this epoch."""
        now = time.monotonic()
        if self._progress and step > self._progress[1]:
            before, earlier = self._progress
            self.step_seconds = (now - before) / (step - earlier)
        self._progress = (now, step)
        if epoch != self._epoch:  # a replayed epoch has its own time
            self._epoch = epoch
            self._preparing = False
            self.begin()

    def loading(self) -> None:
        """Note that the trainer loads the user's code and data."""
        self._preparing = True
        if self._usual:
            self.begin(max(START_TIMEOUT, self._usual))

    def loaded(self) -> None:
        """Note that the trainer has loaded the user's code and data."""
        self._preparing = False
        self._epoch = self._first
        self.begin()

    def is_over(self, *, started: bool) -> bool:
        """Return True if the limit is exceeded. ``started``: the trainer is up and has a clock."""
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
