"""Time limits on what a segment's trainer does now.

Theory of operation. An epoch has the study's time limit, if that has one. Loading the user's code
and data has as much, or the time of a start if that is longer, and the start of a trainer has its
own. The time is taken on the run's own clock, which stands still while other trials have their
turns in the trainer. So there are two moments: ``due``, when a check is worthwhile, and the end of
the limit, which may turn out to be later.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ....wire.messages import SegmentTask

#: Seconds in which a new trainer must start. The user's code and data must be loaded in as much
#: time if epochs have a time limit (in that limit if it is longer).
START_TIMEOUT = 120.0


class TimeLimit:
    """The limit of one segment, what it is of, and how fast that goes."""

    def __init__(self, task: SegmentTask, clock: Callable[[], float]) -> None:
        """``clock``: the run's own (seconds)."""
        self._clock = clock
        self._usual = task.epoch_timeout or 0.0
        self._first = task.first
        self._epoch = task.first
        self._preparing = False
        self._seconds = 0.0
        self._since = 0.0
        self._progress: tuple[float, int] | None = None
        #: When to look whether it is over (monotonic seconds); 0: never.
        self.due = 0.0
        #: Seconds of a step, as it was last.
        self.step_seconds = 0.0

    def begin(self, seconds: float = 0.0) -> None:
        """Restart the time, with the limit of an epoch if no other one is given."""
        self._seconds = seconds or self._usual
        self.due = time.monotonic() + self._seconds if self._seconds else 0.0
        self._since = self._clock()

    def epoch_over(self, epoch: int) -> None:
        """Begin the time of the next epoch, as the trainer has reported ``epoch``."""
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
        """Return True if it is exceeded. ``started``: the trainer is up, so use the run's clock."""
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
