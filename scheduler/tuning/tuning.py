"""Tuning of system parameters: what a segment runs with, and what it tries.

Theory of operation. Trials of one *workload* (code, batch bucket, shards; on one kind of slot) are
peers: the fastest system configuration for one of them is the fastest for all. So each workload has
one race (``profiling.knobs.racing``). A trial that begins may be given configurations to try. Its
trainer measures windows of steps under each of them, between windows under the default, and reports
the results. They are compared by the time of a step, its joules, or both, as the study says. Exact
knobs are tried within the epoch. Others are tried before the first epoch, on a copy that is thrown
away, for at most ``PROBE_SHARE`` of the workload's seconds. Later trials begin with the winner.
Running trials take on its exact part: a bitwise trial keeps the other knobs for life, and its
signature says which. This describes ``race``; the module ``probing`` has the other strategies.

What the history knows of workloads with a similar profile arrives as an event (``Advised``). It is
entered like any other configuration and has to be faster here, too. A winner is measured again from
time to time. If it is no longer faster it loses its place, and the race begins again. When a trial
fails while it tries a configuration, or under one that it was not trained with before, it is sent
again without that configuration. If an epoch then ends, the configuration is infeasible. If not,
the failure is the trial's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from ...profiling.knobs.knobs import SystemConfig, merged, part
from ...profiling.knobs.racing import PROBING, Race
from ..model.decisions import Consult, Member, Remember
from ..model.events import Advised, AttemptFailed, Profiled, Window, WindowsMeasured
from ..model.study import StudySpec
from ..model.trial import Trial
from ..state.core import Core, Refused
from ..state.state import StudyState
from ..state.workloads import Tuned
from .probing import Probing

#: The part of a workload's seconds of training, known and expected, that may go to windows whose
#: training is thrown away.
PROBE_SHARE = 0.02

#: A probe is not begun with less time than this (seconds).
PROBE_LEAST = 0.02

#: The same if joules count: a window then takes 0.2 s, and three make a comparison.
PROBE_LEAST_JOULES = 0.6

#: After so many probes in a row without a result, none is sent until twice the time is allowed: the
#: code cannot be measured, or not in so few steps.
SILENT = 3

#: How many epochs of a workload are profiled, each of another trial. How far they are apart tells
#: which profiles are similar (``profiling.similarity.service``).
PROFILES = 2

#: How many trials begin under a winner before one measures it again.
RECHECK = 25

#: Kinds of failure that a system configuration may cause.
BLAMED = frozenset({"exception", "memory", "died", "system", "timeout"})


@dataclass(frozen=True, slots=True)
class SegmentTuning:
    """How a segment is sent.

    ``system`` is what it runs with. ``probe`` is what it tries, for at most ``epochs`` epochs'
    worth of time. ``profile``: its first epoch is profiled. ``whole``: its only epoch is measured
    as a whole.
    """

    system: SystemConfig = ()
    probe: tuple[SystemConfig, ...] = ()
    epochs: float = 0.0
    profile: bool = False
    whole: bool = False


_PLAIN = SegmentTuning()


class Tuning:
    """Chooses system configurations, and learns from their measurements."""

    def __init__(self, core: Core, *, probing: Probing) -> None:
        self._core = core
        self._state = core.state
        self._probing = probing

    def orders(self, study: StudyState, trial: Trial, members: tuple[Member, ...]) -> SegmentTuning:
        """How the next segment of ``trial`` on ``members`` is sent."""
        spec = study.spec
        if not _tunes(spec):
            return _PLAIN
        spot = self._probing.spot(members[0])
        key, tuned = self._probing.tuned(spec, trial, spot)
        if trial.suspect:
            trial.system = trial.trained_with
            return SegmentTuning(trial.system)
        fresh = not trial.signature
        if fresh and trial.epoch == trial.begin:
            trial.system = tuned.chosen
            tuned.begun += 1
        elif spec.exactness == "statistical":
            trial.system = tuned.chosen
        else:
            kept = part(trial.system, "rounding", "numerics")
            trial.system = merged(tuned.exact.chosen, kept)
        by_epoch = PROBING[spec.probing].by_epoch
        whole = by_epoch and self._probing.by_epoch(spec, trial, spot, len(members))
        profile = tuned.profiled < PROFILES and fresh and not trial.system and len(members) == 1
        if by_epoch:
            return SegmentTuning(trial.system, profile=profile, whole=whole)
        if not fresh or len(members) > 1 or self._probing.busy(tuned):
            return SegmentTuning(trial.system, profile=profile)
        self._probing.enter_arms(key, tuned, spec, spot)
        probe = tuple(c for race in tuned.races if not race.over for c in race.open())
        if tuned.over and tuned.begun > RECHECK:
            probe = tuple(race.chosen for race in tuned.races if race.chosen)
        seconds = self._probe_seconds(tuned, study, trial)
        least = PROBE_LEAST_JOULES if spec.energy_weight else PROBE_LEAST
        heard = tuned.silent < SILENT or seconds >= 2 * tuned.granted
        if probe and heard and seconds >= least:
            tuned.probing, tuned.granted = trial.id, seconds
            # Windows are compared with the default, so the trial that measures begins with it.
            tried = [tuned.race_of(config) for config in probe]
            still = [race for race in tuned.races if not any(race is each for each in tried)]
            trial.system = merged(*(race.chosen for race in still))
            each = self._state.epoch_seconds(trial)
            assert each  # otherwise ``seconds`` is 0
            return SegmentTuning(trial.system, probe, seconds / each, profile)
        return SegmentTuning(trial.system, profile=profile)

    def on_windows_measured(self, event: WindowsMeasured) -> None:
        trial = self._core.trial(event.trial)
        self._core.check_fence(trial, event.fence)
        if not event.windows and not event.failed:
            raise Refused("no window was measured")
        study = self._state.studies[trial.study]
        _, tuned = self._probing.tuned(study.spec, trial, self._probing.spot(trial.members[0]))
        found = [(w.config, worth) for w in event.windows if (worth := _worth(study.spec, w))]
        tuned.probing, tuned.silent = "", 0 if found or event.failed else tuned.silent + 1
        tuned.spent += sum(window.wasted for window in event.windows)
        if tuned.over and self._has_had_its_day(tuned, found):
            tuned.exact, tuned.others = Race(study.spec.probing), Race(study.spec.probing)
            tuned.remembered = None
            return
        for config, worth in found:
            tuned.race_of(config).saw(config, worth)
        for config, why in event.failed:
            tuned.race_of(config).fails(config, why)
        for race in tuned.races:
            if race.arms:
                race.judge()
        self._probing.tell(study.spec, trial, tuned)

    def on_profiled(self, event: Profiled) -> None:
        trial = self._core.trial(event.trial)
        self._core.check_fence(trial, event.fence)
        study = self._state.studies[trial.study]
        key, tuned = self._probing.tuned(study.spec, trial, self._probing.spot(trial.members[0]))
        if tuned.profiled >= PROFILES or trial.system:
            return
        machine = self._probing.machine(trial)
        tuned.profiled += 1
        self._core.decide(
            Remember,
            study=study.spec.id,
            workload=key,
            machine=machine,
            profile=event.values,
            config=(),
            speedup=1.0,
            windows=1,
        )
        if tuned.profiled == 1:
            tuned.profile = event.values
            self._core.decide(Consult, workload=key, machine=machine, profile=event.values)
            tuned.asked = cast(Consult, self._core.out[-1])

    def on_advised(self, event: Advised) -> None:
        tuned = self._state.tuned.get(event.workload)
        if tuned is None or tuned.asked is None or tuned.asked.id != event.cause:
            raise Refused(f"nothing was asked of the history for workload {event.workload}")
        tuned.asked, tuned.advice = None, event.why
        tuned.enter([event.config])

    def unfit(self, study: StudyState, trial: Trial, event: AttemptFailed) -> bool:
        """Whether the trial failed under a configuration that it was not trained with before.

        If so, it is sent again without that configuration. ``_convict`` decides on the cause later.
        """
        if trial.suspect:
            trial.suspect = ()  # it fails without it, too: its own failure
            return False
        known = set(trial.trained_with)
        config = event.trying or tuple(pair for pair in trial.system if pair not in known)
        if not config or event.kind not in BLAMED:
            return False
        trial.suspect, trial.suspicion = config, f"{event.kind}: {event.message}"
        trial.failures -= 1
        return True

    def _convict(self, study: StudyState, trial: Trial, tuned: Tuned) -> None:
        """Mark as infeasible what the trial failed with: an epoch has now ended without it."""
        config, trial.suspect = trial.suspect, ()
        if tuned.race_of(config).has(config):
            tuned.race_of(config).fails(config, trial.suspicion)
        else:
            for race, kinds in zip(tuned.races, (("exact",), tuned.kinds[1:]), strict=True):
                if part(config, *kinds):
                    race.fails(part(config, *kinds), trial.suspicion)
        self._probing.tell(study.spec, trial, tuned)

    def saw_training(self, study: StudyState, trial: Trial, seconds: float) -> None:
        if not _tunes(study.spec):
            return
        _, tuned = self._probing.tuned(study.spec, trial, self._probing.spot(trial.members[0]))
        tuned.trained += seconds
        by_epoch = PROBING[study.spec.probing].by_epoch
        if trial.suspect:
            self._convict(study, trial, tuned)
            if tuned.probing == trial.id and not by_epoch:
                tuned.probing = ""
        elif tuned.probing == trial.id and by_epoch:
            self._probing.saw_epoch(study.spec, trial, tuned, seconds)
        elif tuned.probing == trial.id:
            # Its first epoch has ended. Measurements arrive before that or not at all.
            tuned.probing = ""
            tuned.silent += 1

    def _probe_seconds(self, tuned: Tuned, study: StudyState, trial: Trial) -> float:
        """How many seconds of training may be thrown away for a probe now."""
        spec = study.spec
        each = self._state.epoch_seconds(trial)
        if each is None:
            return 0.0
        ahead = sum(t.target - t.epoch for t in self._core.trials_of(study) if t.target > t.epoch)
        first = spec.strategy.max_epochs if spec.strategy.name == "full" else None
        unborn = max(0, spec.n_trials - len(study.trials))
        ahead += unborn * (first or spec.strategy.min_epochs)
        return PROBE_SHARE * (tuned.trained + each * ahead) - tuned.spent

    def _has_had_its_day(self, tuned: Tuned, found: Sequence[tuple[SystemConfig, float]]) -> bool:
        """Whether a winner is worse than the default in every new window."""
        tuned.begun = 0
        own = [worth for config, worth in found if config == tuned.race_of(config).chosen]
        return bool(own) and min(own) > 1


def _worth(spec: StudySpec, window: Window) -> float | None:
    """Time^(1 - w) * joules^w of a step over the default's; None if its joules are not known."""
    if not spec.energy_weight:
        return window.ratio
    if window.joules is None:
        return None
    weight = spec.energy_weight
    return cast(float, window.ratio ** (1 - weight) * window.joules**weight)


def _tunes(spec: StudySpec) -> bool:
    return spec.system != "off" and spec.contract == "torch"
