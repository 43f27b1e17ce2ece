"""Tuning of system parameters: chooses the configuration of each segment, and those it tries.

Theory of operation. A *workload* is the code, the batch bucket, the shards, the size of the
architecture (if models make choices), and the kind of slot. The fastest system configuration for
one trial of a workload is taken to be the fastest for all its trials. So each workload has one race
(``racing``). A trial that starts may be given configurations to try. Its trainer measures windows
of steps under each of them, between windows under the default, and reports the results. These are
compared by the time of a step, its joules, or both, as the study is set. Exact knobs are tried
within the epoch. Other knobs are tried before the first epoch, on a copy that is thrown away, for
at most ``PROBE_SHARE`` of the workload's seconds. Later trials start with the winner. Running
trials take on only its exact part: a bitwise trial never changes its other knobs, which are part of
its signature. This describes ``race``; the module ``probing`` has the other strategies.

The history's advice, from workloads with a similar profile, arrives as an event (``Advised``). The
advised configuration is entered like any other, and must be faster here, too. A winner is measured
again from time to time. If it is no longer faster, it loses its place, and the race starts again.
If a trial fails while it tries a configuration, or under a configuration that is new to it, the
trial is sent again without that configuration. If the trial then ends an epoch, the configuration
is infeasible. If not, the trial itself is the cause of the failure.
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

#: The part of a workload's seconds of training, past and expected, that windows on thrown-away
#: copies may take.
PROBE_SHARE = 0.02

#: The least time (seconds) for which a probe is started.
MIN_PROBE_SECONDS = 0.02

#: The same if joules are compared: a window then takes 0.2 s, and a comparison needs three windows.
MIN_PROBE_SECONDS_JOULES = 0.6

#: Consecutive probes without a result after which none is sent until twice the time is allowed.
#: Such code cannot be measured, or not in a few steps.
MAX_SILENT_PROBES = 3

#: Number of epochs of a workload that are profiled, each of another trial. The distance between
#: these profiles shows which profiles are similar (``profiling.similarity.service``).
MAX_PROFILES = 2

#: Number of trials that start under a winner before one of them measures it again.
RECHECK_INTERVAL = 25

#: Kinds of failure that a system configuration may cause.
BLAMABLE_FAILURES = frozenset({"exception", "memory", "died", "system", "timeout"})

#: The instructions to a trainer for a segment that tries nothing.
_NOTHING_TRIED: dict[str, Any] = {"probe": (), "epochs": 0.0, "energy": False, "profile": False}


class Tuning:
    """Chooses system configurations for segments, and learns from their measurements."""

    def __init__(self, core: Core, *, probing: Probing, fixing: Fixing) -> None:
        self._core = core
        self._state = core.state
        self._probing = probing
        self._fixing = fixing

    def first_or_next_segment(
        self, study: StudyState, trial: Trial, members: tuple[Member, ...]
    ) -> SegmentValues:
        """Return the values of ``next_segment``, and a rehearsal if the trial must do one."""
        rehearsal = self._fixing.segment(study, trial, members)
        values = self.next_segment(study, trial, members)
        if rehearsal is None:
            return values
        ext = {NAME: {**values.ext.get(NAME, _NOTHING_TRIED), "rehearsal": rehearsal}}
        return replace(values, undivided=True, ext=ext)

    def next_segment(
        self, study: StudyState, trial: Trial, members: tuple[Member, ...]
    ) -> SegmentValues:
        """Choose the configuration of the trial's next segment, and those that it tries."""
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

        If so, the trial is sent again without that configuration, and ``_confirm_suspect`` finds
        the cause later.
        """
        why = f"{event.kind}: {event.message}"
        if event.kind in BLAMABLE_FAILURES and self._fixing.excuses(study, trial, event, why):
            return True
        suspects = tuning_in(self._state).suspects
        if suspects.pop(trial.id, None):
            return False  # it fails without the configuration, too: the trial is the cause
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
        """Mark the suspect as infeasible, since the trial has ended an epoch without it."""
        config = suspect.config
        if workload.race_of(config).has(config):
            workload.race_of(config).mark_infeasible(config, suspect.why)
        else:
            for race, kinds in zip(workload.races, (("exact",), workload.kinds[1:]), strict=True):
                if part(config, *kinds):
                    race.mark_infeasible(part(config, *kinds), suspect.why)
        self._probing.remember(study.spec, trial, workload)

    def observe_training(self, study: StudyState, trial: Trial, seconds: float) -> None:
        """Add an accepted epoch's seconds, and learn from it if it was measured."""
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
        """Drop the state of the trials of a study that has ended."""
        own = tuning_in(self._state)
        for name in study.trials:
            own.sizes.pop(name, None)
        self._fixing.forget(study.spec.id)

    def questions(self) -> list[Decision]:
        """Return the open questions to models and to the history."""
        workloads = workloads_in(self._state).values()
        requests = [workload.asked for workload in workloads if workload.asked is not None]
        sought = (ask for workload in workloads for ask in workload.sought)
        return [*self._fixing.questions(), *sought, *requests]

    def _probe_budget(
        self, key: str, workload: WorkloadTuning, study: StudyState, trial: Trial
    ) -> float:
        """Return the seconds that a probe may take now on a copy that is thrown away."""
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
        """Return True if every new window of the winners was slower than the default.

        Starts to count trials for the next check, too.
        """
        workload.begun = 0
        own = [cost for config, cost in costs if config == workload.race_of(config).chosen]
        return bool(own) and min(own) > 1


def _relative_cost(spec: StudySpec, window: Window) -> float | None:
    """Return time^(1 - w) * joules^w of a step over the default's; None if joules are missing."""
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

    The segment tries ``probe`` for at most the time of ``epochs`` epochs. If joules are compared,
    the windows are long enough to measure them. If ``profile`` is True, the segment's first epoch
    is profiled.
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
