"""The trainer's end: measures system configurations in a trial's steps, and takes profiles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...profiling.knobs.knobs import SystemConfig, merged, part
from ...tasks.process.pipe import Run
from ...tasks.system.system import READING, System
from ...tasks.trainer.hooks import Epoch, Hook, Parts, Segment
from ...tasks.training import determinism
from ...tasks.training.data import by_rows, length
from ...tasks.training.loop import Result, Tick
from ...tasks.training.training import Training
from ...wire.messages import SegmentTask
from .measuring import windows
from .measuring.probe import probe
from .measuring.profiles import Profiles
from .measuring.rehearsal import rehearse
from .name import NAME
from .races.worth import Belief


def hook(parts: Parts) -> Hook:
    """Return the hook of one trainer."""
    return _Probing()


class _Probing(Hook):
    def __init__(self) -> None:
        self._profiles = Profiles()
        #: Seconds of other trials' turns in the lane before the profiled epoch, by trial.
        self._away: dict[str, float] = {}

    def before(self, segment: Segment) -> None:
        """Rehearse if asked to. Measure rounding candidates, and plan windows for exact ones."""
        run, training, request = segment.run, segment.training, _told(segment.task)
        if (
            rehearsal := request.get("rehearsal")
        ) is not None and training.epoch == run.task.origin:
            _rehearse(segment, rehearsal)
        candidates = [_config(each) for each in request.get("probe", ())]
        exact_ones = [c for c in candidates if part(c, "exact") == c]
        rounding = [c for c in candidates if c not in exact_ones]
        own = run.task.system
        if rounding and training.epoch == run.task.origin and not run.members:
            steps = -(-length(training.data.train) // training.batch_size)
            passes = request["epochs"] * steps
            probe_windows, failed = probe(training, rounding, passes, run, energy=request["energy"])
            if probe_windows or failed:
                run.windows(probe_windows, failed)
        if by_rows(training.data.train) is not None:
            why = "the data set is in memory: there is nothing to load"
            idle = [(c, why) for c in exact_ones if any(name in READING for name, _ in c)]
            exact_ones = [c for c in exact_ones if c not in [config for config, _ in idle]]
            if idle:
                run.windows([], idle)
        if exact_ones:
            steps = -(-length(training.data.train) // training.batch_size)
            training.windows = windows.interleave(own, exact_ones, steps)

    def before_epoch(self, epoch: Epoch) -> None:
        """Prepare to measure exact candidates in the windows of an epoch, or its profile."""
        run, training = epoch.segment.run, epoch.segment.training
        if training.windows:
            epoch.measured = True
            epoch.tick = _saying_windows(run, training, epoch.tick)
        if _told(run.task).get("profile") and epoch.number == run.task.first:
            epoch.measured = True
            self._away[run.task.trial] = 0.0 if run.turn is None else run.turn.away
            self._profiles.begin(training)

    def after_epoch(self, epoch: Epoch, result: Result) -> None:
        """Report the results of the epoch's windows, and its profile."""
        run, training = epoch.segment.run, epoch.segment.training
        if (away := self._away.pop(run.task.trial, None)) is not None:
            values = dict(self._profiles.end(training, result))
            if run.turn is None or run.turn.away == away:  # else it includes other trials' steps
                run.say("profiled", epoch=epoch.number, values=values)
        if training.windows:
            run.windows(windows.results(training.windows), [])
            training.windows = []

    def forget(self, trial: str) -> None:
        """Drop the data that are kept for a trial."""
        self._away.pop(trial, None)


def _rehearse(segment: Segment, request: Mapping[str, Any]) -> None:
    """Find the configuration of the study's trials, report it, and apply it to this trial.

    This report is sent before that of any epoch, so the scheduler knows the choice by then.
    """
    run, training = segment.run, segment.training
    beliefs = [(_config(config), Belief(*belief)) for config, *belief in request["known"]]
    base = _config(request["base"])
    outcome = rehearse(
        training, beliefs, base=base, epochs=request["epochs"], held=request["held"], watch=run
    )
    run.say(
        "rehearsed",
        chosen=outcome.chosen,
        windows=outcome.windows,
        failed=outcome.failed,
        spent=outcome.spent,
    )
    system = merged(run.task.system, outcome.chosen)
    run.task = run.task.model_copy(update={"system": system})
    training.reshape(System(system))
    training.system.enter()
    segment.warm.signature = determinism.signature(training)


def _config(given: Iterable[Sequence[Any]]) -> SystemConfig:
    return tuple((name, value) for name, value in given)


def _told(task: SegmentTask) -> dict[str, Any]:
    """Return the scheduler's instructions for the segment (``tuning``); empty if there are none."""
    request: dict[str, Any] = task.ext.get(NAME, {})
    return request


def _saying_windows(run: Run, training: Training, tick: Tick) -> Tick:
    """Return a tick that also reports the candidate at the start of each window."""
    begins = {window.first + 1: window.config or () for window in training.windows}

    def saying(epoch: int, step: int, steps: int) -> None:
        if step in begins:
            run.probing(begins[step])
        tick(epoch, step, steps)

    return saying
