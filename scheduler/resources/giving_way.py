"""Giving way: a running trial goes back to the queue at the end of its epoch.

Theory of operation. A plan may hold running trials (``Plan.hold``), so that waiting trials go
first. A held trial's segment of several epochs is cut. When the segment closes, the trial joins the
end of the queue. It keeps its time of arrival, and the next plan orders it among the others. If no
trial waits by then, it continues where it is.

If lanes have several seats, a waiting trial may take a seat in a lane with held trials, which then
have no part of the lane's time (``Extension.seats``). They give way within a step, and later
continue in the middle of their epoch.
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
        """Return True if a held trial goes back to the queue once its segment has closed.

        It does if it can continue on any device, and another trial waits.
        """
        return can_move(self._state, trial) and bool(self._core.ready())

    def give_way(self, trial: Trial) -> None:
        """Put ``trial`` at the end of the queue."""
        self._state.hold.remove(trial.id)
        self._state.ready.append(trial.id)
        self._core.invalidate_plan()

    def cut_held(self) -> None:
        """Cut the segments of the trials that the plan holds, each at the end of its epoch."""
        for name in self._state.hold:
            trial = self._state.trials.get(name)  # its study may have ended
            attempt = None if trial is None else self._state.attempts.get(trial.fence)
            if trial is None or attempt is None or attempt.cut:
                continue
            if trial.epoch + 1 >= attempt.segment.last:
                continue
            attempt.cut = True
            self._core.decide(Cut, trial=name, fence=trial.fence)
