"""System parameters tuned while hyperparameters are: what a segment runs with, and what it tries.

Theory of operation. Trials of one *workload* (code, batch bucket, shards; on one kind of slot) are
one another's neighbours: what is the fastest system configuration for one is it for all. So there
is one race a workload (``profiling.knobs.racing``). A trial that begins may be given configurations
to try: its trainer measures windows of steps under each of them between windows under the default,
and says what came out. What counts is the time of a step, its joules, or both, as the study says.
Exact knobs are tried inside the epoch; others before the first one, on a copy that is thrown away,
at no more than ``PROBE_SHARE`` of the workload's seconds. The winner is what later trials begin
with, and running ones too as far as it is exact: a bitwise trial keeps the others for life, and its
signature says which. That is ``race``; ``probing`` has the other strategies.

What the history knows of workloads with a like profile arrives as an event (``Advised``), and is an
arm as any other: it has to be faster here, too. A winner is measured again now and then; one that
is no longer faster loses its place, and the race is run anew. A trial that fails while it tries a
configuration, or under one that it was not trained with before, is sent again without. If an epoch
then ends the configuration is infeasible; if not, the trial has failed of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from ...profiling.knobs.knobs import SystemConfig, merged, part
from ...profiling.knobs.racing import Race
from ..model.decisions import Consult, Member, Remember
from ..model.events import Advised, AttemptFailed, Profiled, Window, WindowsMeasured
from ..model.study import StudySpec
from ..model.trial import Trial
from ..state.core import Core, Refused
from ..state.state import StudyState
from ..state.workloads import Tuned
from .probing import Probing

#: Of a workload's seconds of training, known and expected, what windows may take that are thrown
#: away; and seconds below which a probe is not begun.
PROBE_SHARE = 0.02

PROBE_LEAST = 0.02

#: The same where joules count: a window of them takes 0.2 s, and three make a comparison.
PROBE_LEAST_JOULES = 0.6

#: Probes in a row that nothing came of, after which none is sent until twice as much is allowed:
#: the code cannot be measured, or not in so few steps.
SILENT = 3

#: Epochs of a workload that are profiled, of as many trials: how far they are apart tells what is
#: near (``profiling.similarity.service``).
PROFILES = 2

#: Trials that begin under a winner between two that measure it again.
RECHECK = 25

#: Kinds of failure that a configuration may be to blame for.
BLAMED = frozenset({"exception", "memory", "died", "system", "timeout"})


@dataclass(frozen=True, slots=True)
class Orders:
    """What a segment runs with, what it tries for how many epochs' worth, whether it is profiled.

    ``whole``: its one epoch is measured as a whole.
    """

    system: SystemConfig = ()
    probe: tuple[SystemConfig, ...] = ()
    epochs: float = 0.0
    profile: bool = False
    whole: bool = False


_PLAIN = Orders()


class Tuning:
    """Chooses system configurations, and learns from what was measured of them."""

    def __init__(self, core: Core, *, probing: Probing) -> None:
        self._core = core
        self._state = core.state
        self._probing = probing

    def orders(self, study: StudyState, trial: Trial, members: tuple[Member, ...]) -> Orders:
        """What the next segment of ``trial`` on ``members`` is sent with."""
        spec = study.spec
        if not _tunes(spec):
            return _PLAIN
        spot = self._probing.spot(members[0])
        key, tuned = self._probing.tuned(spec, trial, spot)
        if trial.suspect:
            trial.system = trial.trained_with
            return Orders(trial.system)
        fresh = not trial.signature
        if fresh and trial.epoch == trial.begin:
            trial.system = tuned.chosen
            tuned.begun += 1
        elif spec.exactness == "statistical":
            trial.system = tuned.chosen
        else:
            kept = part(trial.system, "rounding", "numerics")
            trial.system = merged(tuned.exact.chosen, kept)
        whole = spec.probing == "grid" and self._probing.by_epoch(spec, trial, spot, len(members))
        profile = tuned.profiled < PROFILES and fresh and not trial.system and len(members) == 1
        if spec.probing == "grid":
            return Orders(trial.system, profile=profile, whole=whole)
        if not fresh or len(members) > 1 or self._probing.busy(tuned):
            return Orders(trial.system, profile=profile)
        self._probing.enter_arms(key, tuned, spec, spot)
        probe = tuple(c for race in tuned.races if not race.over for c in race.open())
        if tuned.over and tuned.begun > RECHECK:
            probe = tuple(race.chosen for race in tuned.races if race.chosen)
        seconds = self._probe_seconds(tuned, study, trial)
        least = PROBE_LEAST_JOULES if spec.energy_weight else PROBE_LEAST
        heard = tuned.silent < SILENT or seconds >= 2 * tuned.granted
        if probe and heard and seconds >= least:
            tuned.probing, tuned.granted = trial.id, seconds
            # Measured against the default, so the trial that measures begins with that.
            tried = [tuned.race_of(config) for config in probe]
            still = [race for race in tuned.races if not any(race is each for each in tried)]
            trial.system = merged(*(race.chosen for race in still))
            each = self._state.epoch_seconds(trial)
            assert each  # else there were no seconds
            return Orders(trial.system, probe, seconds / each, profile)
        return Orders(trial.system, profile=profile)

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
        """Whether it failed under what it was not trained with before: it goes on without that.

        Who is to blame is known when it has: see ``_convict``.
        """
        if trial.suspect:
            trial.suspect = ()  # it fails without, too: its own fault
            return False
        known = set(trial.trained_with)
        config = event.trying or tuple(pair for pair in trial.system if pair not in known)
        if not config or event.kind not in BLAMED:
            return False
        trial.suspect, trial.suspicion = config, f"{event.kind}: {event.message}"
        trial.failures -= 1
        return True

    def _convict(self, study: StudyState, trial: Trial, tuned: Tuned) -> None:
        """An epoch ended without the configuration that the trial had failed with before."""
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
        if trial.suspect:
            self._convict(study, trial, tuned)
            if study.spec.probing != "grid" and tuned.probing == trial.id:
                tuned.probing = ""
        elif tuned.probing == trial.id and study.spec.probing == "grid":
            self._probing.saw_epoch(study.spec, trial, tuned, seconds)
        elif tuned.probing == trial.id:
            # Its first epoch has ended; what it measured came before that, or never will.
            tuned.probing = ""
            tuned.silent += 1

    def _probe_seconds(self, tuned: Tuned, study: StudyState, trial: Trial) -> float:
        """Seconds of windows that may be thrown away now."""
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
    """Time^(1 - w) * joules^w of a step over the default's; None where its joules are not known."""
    if not spec.energy_weight:
        return window.ratio
    if window.joules is None:
        return None
    weight = spec.energy_weight
    return cast(float, window.ratio ** (1 - weight) * window.joules**weight)


def _tunes(spec: StudySpec) -> bool:
    return spec.system != "off" and spec.contract == "torch"
