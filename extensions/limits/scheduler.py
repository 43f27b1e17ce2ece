"""Ends or pauses studies when they reach their limits.

Theory of operation. The spending of a study is counted when its epochs are accepted and when its
attempts end (``scheduler.state.spending``). A limit that is reached then acts once. ``pause`` has
the effect of a user's pause. With ``stop`` and ``finish_best`` the study is *ending*: no trial
starts, and running segments (epochs of a trial sent as one task) are cut at the end of their epoch.
So at a limit each running trial trains at most to the end of its current epoch. Trials with an
epoch are stopped, trials without one are cancelled, and the study is over when nothing runs any
more. With ``finish_best``, the best trial so far goes on to its target if it has not reached the
target.

Time alone brings a study to its deadline, and a limit of device-hours or money can be reached in
the middle of an epoch. At that time the engine asks for a ``Tick``, so that no segment goes on to
its next epoch. If epochs are shorter than the delay of the scheduler's message, segments near a
limit close by themselves (``times``). If a user resumes or extends a study, the limits that the
study has reached no longer apply. Its other limits still apply.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ...profiling.devices.device import Device
from ...scheduler.engine.engine import Parts
from ...scheduler.model.decisions import Cut
from ...scheduler.model.events import EpochReported, PricesChosen, StudyReopened, Tick
from ...scheduler.model.study import OVER, StudySpec, deadline_of
from ...scheduler.model.trial import Trial, TrialState
from ...scheduler.state.extensions import Begins, Extension
from ...scheduler.state.slot_time import slot_seconds
from ...scheduler.state.spending import charged
from ...scheduler.state.state import Attempt, StudyState
from .limits import Limit, limits_of, no_price, unaccountable
from .times import begins_until, reached_at

#: The name of the extension, and the key of its state in ``EngineState.ext``.
NAME = "limits"

#: States of a trial that has not reached its target yet, and states of a trial that may be the
#: best.
_ON_ITS_WAY = (TrialState.WAITING, TrialState.RUNNING)
_COUNTS = (*_ON_ITS_WAY, TrialState.PAUSED, TrialState.COMPLETED, TrialState.STOPPED)


def plug(parts: Parts) -> Extension:
    """Return the extension that ends or pauses studies when they reach a limit."""
    keeper = _Keeper(parts)
    return Extension(
        name=NAME,
        needed_by=lambda spec: spec.limited,
        handlers={PricesChosen: keeper.on_prices_chosen, Tick: keeper.on_tick},
        refusal=keeper.refusal,
        on_charged=keeper.on_charged,
        on_accepted=keeper.on_accepted,
        on_begun=keeper.on_begun,
        on_edited=keeper.on_edited,
        forget=keeper.forget,
        until=keeper.until,
        deadlines=keeper.deadlines,
    )


def convert(snapshot: dict[str, Any]) -> None:
    """Move the studies' watts in a snapshot of release 0.2 to the state of this extension."""
    watts = {name: study.pop("power", 0.0) for name, study in snapshot["studies"].items()}
    if any(watts.values()):
        snapshot["ext"][NAME] = {"watts": {name: power for name, power in watts.items() if power}}


class _Keeper:
    """The handlers of the extension, which end or pause the studies that reach a limit."""

    def __init__(self, parts: Parts) -> None:
        self._core = parts.core
        self._state = parts.core.state
        self._proposals = parts.proposals
        #: Ids of studies whose limits must be checked, in order: their spending has changed, or a
        #: time at which they reach a limit has come.
        self._charged: dict[str, None] = {}

    def _watts(self) -> dict[str, float]:
        """Return the highest power of a device in an epoch (watts), by id of the study.

        Only studies that limit energy have an entry.
        """
        state: dict[str, dict[str, float]] = self._state.ext.setdefault(NAME, {"watts": {}})
        return state["watts"]

    def refusal(self, spec: StudySpec, device: Device) -> str:
        return unaccountable(spec, self._state.prices, device)

    def on_charged(self, study: StudyState) -> None:
        """Charge the study for its running attempts up to now, and have its limits checked.

        Without this, another epoch could begin after a limit is reached.
        """
        self._charged[study.spec.id] = None
        for attempt in self._state.attempts.values():
            if attempt.study == study.spec.id:
                had = slot_seconds(attempt, self._core.at)
                study.spent = charged(self._state, study.spent, attempt, had)
        self._core.after[self._enforce] = None

    def on_accepted(
        self, study: StudyState, trial: Trial, attempt: Attempt, event: EpochReported
    ) -> None:
        seconds = event.seconds * len(attempt.segment.members)
        if study.spec.kwh is not None and seconds > 0.0:
            highest, watts = self._watts(), (event.joules or 0.0) / seconds
            highest[study.spec.id] = max(highest.get(study.spec.id, 0.0), watts)
        self._enforce()

    def on_begun(self, study: StudyState, event: Begins) -> None:
        """Let trials of a reopened study run if the study's deadline has passed.

        The deadline is marked as reached, so that the deadline does not end the study again.
        """
        if isinstance(event, StudyReopened) and not study.spec.local:
            end = deadline_of(study.spec, study.created_at)
            if end is not None and end <= self._core.at and "deadline" not in study.spent.reached:
                study.spent = replace(study.spent, reached=(*study.spent.reached, "deadline"))

    def on_edited(self, study: StudyState, before: StudySpec) -> None:
        """Check the limits of an edited study, and let limits that the user has changed act again.

        This holds even if the study had been allowed to go on beyond its old limits.
        """
        reached = tuple(
            name
            for name in study.spent.reached
            if getattr(study.spec, name) == getattr(before, name)
        )
        study.spent = replace(study.spent, reached=reached)
        self.on_charged(study)

    def forget(self, study: str) -> None:
        if NAME in self._state.ext:
            self._watts().pop(study, None)

    def until(self, study: StudyState) -> float | None:
        watts = 0.0 if study.spec.kwh is None else self._watts().get(study.spec.id, 0.0)
        return begins_until(self._state, study, self._core.at, watts)

    def on_prices_chosen(self, event: PricesChosen) -> None:
        """Allow devices again that were refused because they had no price.

        Devices that still have no price are refused again later.
        """
        devices = [each.device for each in self._state.devices.values()]
        for study in self._state.studies.values():
            for each in devices:
                if study.refused.get(each.name) == no_price(each.kind):
                    del study.refused[each.name]

    def on_tick(self, event: Tick) -> None:
        for study, end in list(self._deadlines()):
            if end <= event.at:
                self.on_charged(study)
        self._enforce()  # before slots are filled

    def deadlines(self) -> Iterator[float]:
        """Yield the times (the runner's clock) at which studies are expected to reach a limit."""
        return (end for _, end in self._deadlines())

    def _deadlines(self) -> Iterator[tuple[StudyState, float]]:
        for study in self._state.studies.values():
            if not study.spec.limited or study.status in OVER or study.lacks:
                continue
            end = deadline_of(study.spec, study.created_at)
            if end is not None and "deadline" not in study.spent.reached:
                yield study, end
            if (end := reached_at(self._state, study)) is not None:
                yield study, end

    def _enforce(self) -> None:
        """Apply each limit that has been reached by a study in ``_charged``."""
        self._core.after.pop(self._enforce, None)
        names = list(self._charged)
        self._charged.clear()
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
        best = study.spec.at_limit == "finish_best"
        study.finishes = self._best_on_its_way(study) if best else ""
        study.asks.clear()
        for fence, attempt in self._state.attempts.items():
            trial = self._state.trials[attempt.segment.trial]
            if attempt.study != study.spec.id or not study.ends(trial) or attempt.cut:
                continue
            if attempt.segment.widths or trial.epoch + 1 < attempt.segment.last:
                attempt.cut = True
                self._core.decide(Cut, trial=trial.id, fence=fence)

    def _best_on_its_way(self, study: StudyState) -> str:
        """Return the id of the best trial so far, or "" if that trial is not waiting or running.

        With several objectives, the first objective decides. Of equal trials, the one with the
        lowest number is the best. A trial that the user trains also gives "".
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
    """Return a phrase for ``limit``: *2 device-hours*, *0.5 kWh*, *10 of money*, *its deadline*."""
    units = {"device_hours": " device-hours", "kwh": " kWh", "money": " of money"}
    if limit.name == "deadline":
        return "its deadline"
    return f"{limit.most:g}{units[limit.name]}"
