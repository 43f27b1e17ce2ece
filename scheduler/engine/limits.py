"""Limits of a study: device-hours, energy, money and a deadline, and what happens at them.

Theory of operation. What a study spends is counted as its epochs are accepted and its attempts end
(``scheduler.state.spending``). A limit that is reached then acts, once. ``pause`` does what the
user's pause does. With ``stop`` and ``finish_best`` the study is *ending*: nothing new begins, and
what runs is cut at the end of its epoch. So at a limit each running trial trains at most the epoch
that it is in. Trials with an epoch are stopped, those without one are cancelled, and the study is
over when nothing runs any more. With ``finish_best`` the best trial so far goes on to its target,
if it has not reached it.

A deadline is reached by time alone, and device-hours and money in the middle of epochs: the engine
wants a ``Tick`` then, so that no segment goes on to its next epoch. Where epochs are shorter than
the way of that word, segments near a limit close by themselves (``scheduler.state.limit_times``). A
user who resumes or extends a study goes on beyond the limits that it has reached. Its other limits
hold.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from ..model.decisions import Cut
from ..model.events import PricesChosen, Tick
from ..model.study import OVER
from ..model.trial import Trial, TrialState
from ..resources.environments import exclude_unable
from ..state.core import Core
from ..state.limit_times import reached_at
from ..state.limits import Limit, deadline_of, limits_of, no_price
from ..state.state import StudyState
from .devices import Devices
from .proposals import Proposals

#: States of a trial that is on its way to its target, and of one that may be the best.
_ON_ITS_WAY = (TrialState.WAITING, TrialState.RUNNING)
_COUNTS = (*_ON_ITS_WAY, TrialState.PAUSED, TrialState.COMPLETED, TrialState.STOPPED)


class LimitKeeper:
    """Ends or pauses the studies that reach a limit."""

    def __init__(self, core: Core, *, proposals: Proposals, devices: Devices) -> None:
        self._core = core
        self._state = core.state
        self._proposals = proposals
        self._devices = devices

    def on_prices_chosen(self, event: PricesChosen) -> None:
        self._state.prices = dict(event.prices)
        devices = [each.device for each in self._state.devices.values()]
        for study in self._state.studies.values():
            for each in devices:
                if study.refused.get(each.name) == no_price(each.kind):
                    del study.refused[each.name]
            exclude_unable(study, devices, self._state.prices)
        self._core.offer_slots()

    def on_tick(self, event: Tick) -> None:
        for study, end in list(self._deadlines()):
            if end <= event.at:
                self._core.charge_all(study)
        self.enforce()  # before slots are filled
        self._devices.on_tick(event)

    def deadlines(self) -> Iterator[float]:
        """When studies reach limits, as things are (the runner's clock)."""
        return (end for _, end in self._deadlines())

    def _deadlines(self) -> Iterator[tuple[StudyState, float]]:
        for study in self._state.studies.values():
            if not study.spec.limited or study.status in OVER:
                continue
            end = deadline_of(study.spec, study.created_at)
            if end is not None and "deadline" not in study.spent.reached:
                yield study, end
            if (end := reached_at(self._state, study)) is not None:
                yield study, end

    def enforce(self) -> None:
        """Have the limits act that the studies which this event was counted for have reached."""
        names = list(self._core.charged)
        self._core.charged.clear()
        for name in names:
            study = self._state.studies.get(name)
            if study is None or study.status in OVER:
                continue
            for limit in limits_of(study.spec, study.spent, study.created_at, self._core.at):
                if limit.is_reached and limit.name not in study.spent.reached:
                    self._reach(study, limit)
            self._core.touch_study(study)
            if study.ending:
                self._proposals.settle(study)
                self._core.offer_slots()

    def _reach(self, study: StudyState, limit: Limit) -> None:
        reached = (*study.spent.reached, limit.name)
        study.spent = replace(study.spent, reached=reached)
        study.message = f"it has reached its limit: {words(limit)}"
        if study.ending:
            return
        if study.spec.at_limit == "pause":
            if study.status == "running":
                self._core.pause(study)
                self._core.offer_slots()
            return
        study.ending = True
        if study.spec.at_limit == "finish_best":
            study.finishes = self._best_on_its_way(study)
        study.asks.clear()
        for fence, attempt in self._state.attempts.items():
            trial = self._state.trials[attempt.segment.trial]
            if attempt.study != study.spec.id or not study.ends(trial) or attempt.cut:
                continue
            if attempt.segment.widths or trial.epoch + 1 < attempt.segment.last:
                attempt.cut = True
                self._core.decide(Cut, trial=trial.id, fence=fence)

    def _best_on_its_way(self, study: StudyState) -> str:
        """The best trial so far, if it has not reached its target; else nothing.

        Of several objectives the first one decides, and of equal trials the first.
        """

        def rank(trial: Trial) -> tuple[bool, float, int]:
            assert trial.value is not None
            return trial.feasible, study.spec.sign * trial.value, -trial.number

        trials = self._core.trials_of(study)
        valued = [t for t in trials if t.value is not None and math.isfinite(t.value)]
        best = max((t for t in valued if t.state in _COUNTS), key=rank, default=None)
        if best is None or best.state not in _ON_ITS_WAY or best.id in study.handed_out:
            return ""
        return best.id


def words(limit: Limit) -> str:
    """The limit for people: *2 device-hours*, *0.5 kWh*, *10 of money*, *its deadline*."""
    units = {"device_hours": " device-hours", "kwh": " kWh", "money": " of money"}
    if limit.name == "deadline":
        return "its deadline"
    return f"{limit.most:g}{units[limit.name]}"
