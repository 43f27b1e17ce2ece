"""Tuning of system parameters: what a segment runs with, and what it tries.

Theory of operation. Trials of one *workload* (code, batch bucket, shards, and the size of the
architecture where models make choices; on one kind of slot) are peers: the fastest system
configuration for one of them is the fastest for all. So each workload has one race
(``racing``). A trial that begins may be given configurations to try. Its trainer
measures windows of steps under each of them, between windows under the default, and reports the
results. They are compared by the time of a step, its joules, or both, as the study says. Exact
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
from dataclasses import replace
from typing import Any, cast

from ...profiling.knobs.knobs import SystemConfig, merged, part
from ...scheduler.model.decisions import Decision, Member
from ...scheduler.model.events import AttemptFailed
from ...scheduler.model.study import StudySpec
from ...scheduler.model.trial import Trial
from ...scheduler.state.core import Core, Refused
from ...scheduler.state.extensions import SegmentValues
from ...scheduler.state.state import StudyState
from .asked.decisions import Advised, Consult, Remember
from .fixing import Fixing
from .name import NAME
from .probing import Probing
from .races.measured import Profiled, Window, WindowsMeasured
from .races.racing import PROBING, Race
from .workloads import Suspect, WorkloadTuning, tuning_in, workloads_in

#: The part of a workload's seconds of training, known and expected, that may go to windows whose
#: training is thrown away.
PROBE_SHARE = 0.02

#: A probe is not begun with less time than this (seconds).
MIN_PROBE_SECONDS = 0.02

#: The same if joules count: a window then takes 0.2 s, and three make a comparison.
MIN_PROBE_SECONDS_JOULES = 0.6

#: Probes in a row without a result after which none is sent until twice the time is allowed: the
#: code cannot be measured, or not in so few steps.
MAX_SILENT_PROBES = 3

#: Number of epochs of a workload that are profiled, each of another trial. Their distance tells
#: which profiles are similar (``profiling.similarity.service``).
MAX_PROFILES = 2

#: Number of trials that begin under a winner before one measures it again.
RECHECK_INTERVAL = 25

#: Kinds of failure that a system configuration may cause.
BLAMABLE_FAILURES = frozenset({"exception", "memory", "died", "system", "timeout"})

#: The words to a trainer where a segment tries nothing.
_NOTHING_TRIED: dict[str, Any] = {"probe": (), "epochs": 0.0, "energy": False, "profile": False}


class Tuning:
    """Chooses system configurations, and learns from their measurements."""

    def __init__(self, core: Core, *, probing: Probing, fixing: Fixing) -> None:
        self._core = core
        self._state = core.state
        self._probing = probing
        self._fixing = fixing

    def first_or_next_segment(
        self, study: StudyState, trial: Trial, members: tuple[Member, ...]
    ) -> SegmentValues:
        """Do as ``next_segment``, and rehearse a configuration if all trials are to have one."""
        rehearsal = self._fixing.segment(study, trial, members)
        values = self.next_segment(study, trial, members)
        if rehearsal is None:
            return values
        ext = {NAME: {**values.ext.get(NAME, _NOTHING_TRIED), "rehearsal": rehearsal}}
        return replace(values, undivided=True, ext=ext)

    def next_segment(
        self, study: StudyState, trial: Trial, members: tuple[Member, ...]
    ) -> SegmentValues:
        """Choose the system configuration of the trial's next segment, and what it tries."""
        spec = study.spec
        slot_class = self._probing.slot_class(members[0])
        key, workload = self._probing.workload(spec, trial, slot_class)
        if trial.id in tuning_in(self._state).suspects:
            trial.system = merged(trial.trained_with, study.system or ())
            return SegmentValues(trial.system)
        untrained = not trial.signature
        if untrained and trial.epoch == trial.begin:
            trial.system = merged(workload.chosen, study.system or ())
            workload.begun += 1
        elif spec.system_fixed:
            trial.system = merged(workload.exact.chosen, study.system or ())
        elif spec.exactness == "statistical":
            trial.system = workload.chosen
        else:
            numerics = part(trial.system, "rounding", "numerics")
            trial.system = merged(workload.exact.chosen, numerics)
        by_epoch = PROBING[spec.probing].by_epoch
        whole = by_epoch and self._probing.probes_by_epoch(spec, trial, slot_class, len(members))
        profile = (
            workload.profiled < MAX_PROFILES
            and untrained
            and not (part(trial.system, "exact") if spec.system_fixed else trial.system)
            and len(members) == 1
        )
        if by_epoch:
            return _values(spec, trial, profile=profile, one_epoch=whole)
        if not untrained or len(members) > 1 or self._probing.busy(workload):
            return _values(spec, trial, profile=profile)
        self._probing.enter_configs(key, workload, spec, slot_class)
        probe = tuple(c for race in workload.races if not race.over for c in race.open())
        if workload.over and workload.begun > RECHECK_INTERVAL:
            probe = tuple(race.chosen for race in workload.races if race.chosen)
        seconds = self._probe_budget(key, workload, study, trial)
        minimum = MIN_PROBE_SECONDS_JOULES if spec.energy_weight else MIN_PROBE_SECONDS
        responsive = workload.silent < MAX_SILENT_PROBES or seconds >= 2 * workload.granted
        if probe and responsive and seconds >= minimum:
            workload.probing, workload.granted = trial.id, seconds
            # Windows are compared with the default, so the trial that measures begins with it.
            probed = [workload.race_of(config) for config in probe]
            settled = [
                race
                for race in workload.races
                if not any(race is epoch_seconds for epoch_seconds in probed)
            ]
            trial.system = merged(*(race.chosen for race in settled), study.system or ())
            epoch_seconds = self._state.epoch_seconds(trial)
            assert epoch_seconds  # otherwise ``seconds`` is 0
            return _values(
                spec, trial, probe=probe, epochs=seconds / epoch_seconds, profile=profile
            )
        return _values(spec, trial, profile=profile)

    def on_windows_measured(self, event: WindowsMeasured) -> None:
        trial = self._core.trial(event.trial)
        self._core.check_training(trial, event.fence)
        if not event.windows and not event.failed:
            raise Refused("no window was measured")
        study = self._state.studies[trial.study]
        _, workload = self._probing.workload(
            study.spec, trial, self._probing.slot_class(trial.members[0])
        )
        costs = [(w.config, cost) for w in event.windows if (cost := _relative_cost(study.spec, w))]
        self._state.attempts[event.fence].undivided = False
        workload.probing, workload.silent = "", 0 if costs or event.failed else workload.silent + 1
        workload.spent += sum(window.wasted for window in event.windows)
        if workload.over and self._winner_regressed(workload, costs):
            workload.exact, workload.others = Race(study.spec.probing), Race(study.spec.probing)
            workload.remembered = None
            return
        for config, cost in costs:
            workload.race_of(config).observe(config, cost)
        for config, reason in event.failed:
            workload.race_of(config).mark_infeasible(config, reason)
        for race in workload.races:
            if race.arms:
                race.judge()
        self._probing.remember(study.spec, trial, workload)

    def on_profiled(self, event: Profiled) -> None:
        trial = self._core.trial(event.trial)
        self._core.check_training(trial, event.fence)
        study = self._state.studies[trial.study]
        key, workload = self._probing.workload(
            study.spec, trial, self._probing.slot_class(trial.members[0])
        )
        if workload.profiled >= MAX_PROFILES or (trial.system and not study.spec.system_fixed):
            return
        machine = self._probing.machine(trial)
        counted_trial = self._state.counted(trial)
        profile = (*event.values, *(counted_trial.profile if counted_trial else ()))
        workload.profiled += 1
        self._fixing.remember(study, profile)
        self._core.decide(
            Remember,
            study=study.spec.id,
            workload=key,
            machine=machine,
            profile=profile,
            config=(),
            speedup=1.0,
            windows=1,
        )
        if workload.profiled == 1:
            workload.profile = profile
            self._core.decide(Consult, workload=key, machine=machine, profile=profile)
            workload.asked = cast(Consult, self._core.out[-1])

    def on_advised(self, event: Advised) -> None:
        workload = workloads_in(self._state).get(event.workload)
        if workload is None or workload.asked is None or workload.asked.id != event.cause:
            raise Refused(f"nothing was asked of the history for workload {event.workload}")
        workload.asked, workload.advice = None, event.why
        workload.enter([event.config])

    def suspects_config(self, study: StudyState, trial: Trial, event: AttemptFailed) -> bool:
        """Return True if the trial failed under a configuration that is new to it.

        If so, it is sent again without that configuration. ``_confirm_suspect`` decides on the
        cause later.
        """
        why = f"{event.kind}: {event.message}"
        if event.kind in BLAMABLE_FAILURES and self._fixing.excuses(study, trial, event, why):
            return True
        suspects = tuning_in(self._state).suspects
        if suspects.pop(trial.id, None):
            return False  # it fails without it, too: its own failure
        usual_values = {*trial.trained_with, *(study.system or ())}
        config = event.trying or tuple(pair for pair in trial.system if pair not in usual_values)
        if not config or event.kind not in BLAMABLE_FAILURES:
            return False
        for name in [each for each in suspects if each not in self._state.trials]:
            del suspects[name]
        suspects[trial.id] = Suspect(config, why)
        return True

    def _confirm_suspect(
        self, study: StudyState, trial: Trial, suspect: Suspect, workload: WorkloadTuning
    ) -> None:
        """Mark as infeasible what the trial failed with: an epoch has now ended without it."""
        config = suspect.config
        if workload.race_of(config).has(config):
            workload.race_of(config).mark_infeasible(config, suspect.why)
        else:
            for race, kinds in zip(workload.races, (("exact",), workload.kinds[1:]), strict=True):
                if part(config, *kinds):
                    race.mark_infeasible(part(config, *kinds), suspect.why)
        self._probing.remember(study.spec, trial, workload)

    def observe_training(self, study: StudyState, trial: Trial, seconds: float) -> None:
        """Take in an accepted epoch, which has its seconds by the configuration."""
        self._state.attempts[trial.fence].undivided = False
        _, workload = self._probing.workload(
            study.spec, trial, self._probing.slot_class(trial.members[0])
        )
        if study.spec.system_fixed:
            self._fixing.on_trained(study, trial, workload.profile)
        workload.trained += seconds
        by_epoch = PROBING[study.spec.probing].by_epoch
        if suspect := tuning_in(self._state).suspects.pop(trial.id, None):
            self._confirm_suspect(study, trial, suspect, workload)
            if workload.probing == trial.id and not by_epoch:
                workload.probing = ""
        elif workload.probing == trial.id and by_epoch:
            self._probing.observe_epoch(study.spec, trial, workload, seconds)
        elif workload.probing == trial.id:
            # Its first epoch has ended. Measurements arrive before that or not at all.
            workload.probing = ""
            workload.silent += 1

    def forget(self, study: StudyState) -> None:
        """Forget what is known of the trials of a study that is over."""
        own = tuning_in(self._state)
        for name in study.trials:
            own.sizes.pop(name, None)
        self._fixing.forget(study.spec.id)

    def questions(self) -> list[Decision]:
        """Return the questions to models and to the history that are unanswered."""
        workloads = workloads_in(self._state).values()
        requests = [workload.asked for workload in workloads if workload.asked is not None]
        sought = (ask for workload in workloads for ask in workload.sought)
        return [*self._fixing.questions(), *sought, *requests]

    def _probe_budget(
        self, key: str, workload: WorkloadTuning, study: StudyState, trial: Trial
    ) -> float:
        """Return the seconds of training that may be thrown away for a probe now."""
        epoch_seconds = self._state.epoch_seconds(trial)
        if epoch_seconds is None:
            return 0.0
        seconds_ahead = epoch_seconds * self._core.epochs_ahead(study)
        family = self._probing.family(key, workload)
        trained = sum(each.trained for each in family)
        return PROBE_SHARE * (trained + seconds_ahead) - sum(each.spent for each in family)

    def _winner_regressed(
        self, workload: WorkloadTuning, costs: Sequence[tuple[SystemConfig, float]]
    ) -> bool:
        """Return True if a winner is worse than the default in every new window."""
        workload.begun = 0
        own = [cost for config, cost in costs if config == workload.race_of(config).chosen]
        return bool(own) and min(own) > 1


def _relative_cost(spec: StudySpec, window: Window) -> float | None:
    """Time^(1 - w) * joules^w of a step over the default's; None if its joules are not known."""
    if not spec.energy_weight:
        return window.ratio
    if window.joules is None:
        return None
    weight = spec.energy_weight
    return cast(float, window.ratio ** (1 - weight) * window.joules**weight)


def _values(
    spec: StudySpec,
    trial: Trial,
    *,
    probe: tuple[SystemConfig, ...] = (),
    epochs: float = 0.0,
    profile: bool = False,
    one_epoch: bool = False,
) -> SegmentValues:
    """Return the values of a segment that runs with the trial's configuration.

    It tries ``probe`` for at most ``epochs`` epochs' worth of time, in windows that are long enough
    for their joules where these count. ``profile``: its first epoch is profiled.
    """
    values = _NOTHING_TRIED | {
        "probe": probe,
        "epochs": epochs,
        "energy": spec.energy_weight > 0,
        "profile": profile,
    }
    return SegmentValues(
        trial.system,
        one_epoch=one_epoch,
        undivided=bool(probe),
        ext={NAME: values} if probe or profile else {},
    )
