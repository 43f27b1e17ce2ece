"""Giving way: a running trial goes back to the queue at the end of its epoch.

Theory of operation. A plan may hold running trials (``Plan.hold``), so that trials that wait come
before them. A segment of several epochs is cut, and when it closes the trial joins the end of the
queue. It keeps its time of arrival, and the next plan orders it among the others. If nothing waits
by then, it goes on where it is.

If lanes have several seats, a trial that waits may take a seat in a lane with held trials, which
then have no part of the lane's time (``Extension.seats``): they give way within a step, and go on
in the middle of their epoch.
"""

from __future__ import annotations

from ..model.decisions import Cut
from ..model.trial import Trial
from ..state.core import Core
from .slots import can_move


class GivingWay:
    """Has the trials that the standing plan holds give way."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._state = core.state

    def can_give_way(self, trial: Trial) -> bool:
        """Return True if a held trial goes back to the queue after its segment."""
        return can_move(self._state, trial) and bool(self._core.ready())

    def give_way(self, trial: Trial) -> None:
        """Put ``trial`` at the end of the queue."""
        self._state.hold.remove(trial.id)
        self._state.ready.append(trial.id)
        self._core.invalidate_plan()

    def cut_held(self) -> None:
        """Cut the segments of the trials that the plan holds at the end of their epoch."""
        for name in self._state.hold:
            trial = self._state.trials.get(name)  # its study may be over
            attempt = None if trial is None else self._state.attempts.get(trial.fence)
            if trial is None or attempt is None or attempt.cut:
                continue
            if trial.epoch + 1 >= attempt.segment.last:
                continue
            attempt.cut = True
            self._core.decide(Cut, trial=name, fence=trial.fence)
