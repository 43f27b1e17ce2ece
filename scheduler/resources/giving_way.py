"""Giving way: a running trial goes back to the queue at the end of its epoch.

Theory of operation. A plan may name running trials that are *held* (``Plan.hold``), so that waiting
trials go first. The segment of a held trial is cut at the end of the current epoch. When the
segment closes, the trial joins the end of the queue. It keeps its time of arrival, and the next
plan orders it among the waiting trials. If no trial waits by then, it continues in its slot.

If lanes have several seats, a waiting trial may take a seat in a lane with held trials, which then
have no part of the lane's time (``Extension.seats``). Held trials there stop after their current
step, and later continue in the middle of their epoch.
"""

from __future__ import annotations

from ..model.decisions import Cut
from ..model.trial import Trial
from ..state.core import Core
from .slots import can_move


class GivingWay:
    """Makes running trials give way if the standing plan holds them (``Plan.hold``)."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._state = core.state

    def can_give_way(self, trial: Trial) -> bool:
        """Return True if a held trial, whose segment has closed, goes back to the queue.

        It does if it can continue on any device, and another trial waits.
        """
        return can_move(self._state, trial) and bool(self._core.ready())

    def give_way(self, trial: Trial) -> None:
        """Put ``trial``, which is held, at the end of the queue."""
        self._state.hold.remove(trial.id)
        self._state.ready.append(trial.id)
        self._core.invalidate_plan()

    def cut_held(self) -> None:
        """Cut the segments of the trials that the plan holds, each at the end of its epoch."""
        for name in self._state.hold:
            trial = self._state.trials.get(name)  # None if its study has ended
            attempt = None if trial is None else self._state.attempts.get(trial.fence)
            if trial is None or attempt is None or attempt.cut:
                continue
            if trial.epoch + 1 >= attempt.segment.last:
                continue
            attempt.cut = True
            self._core.decide(Cut, trial=name, fence=trial.fence)
