"""Chooses the system configurations that are tried for a workload, and the trial that tries them.

Theory of operation. Both follow from the study's probing strategy. ``race`` and ``bandit`` enter
all configurations at once and measure them in windows; they differ in how they judge the results
(``racing``). ``bayesian`` races a few configurations at a time. When such a race is decided, a
model of the results is asked for the next ones. Like a sampler, the model is not part of the
engine: the question is a decision (``AskConfigs``), and the answer is an event.

``grid`` is PipeTune as published (Middleware 2020, sections 5.2 and 5.6). It runs each
configuration for one whole epoch, after a first epoch under the default; the shortest epoch wins.
The cost of ``grid`` is not bounded. Knobs that must not change after a trial's first epoch cannot
be tried this way, so in a bitwise study only exact knobs are tried.
"""

from __future__ import annotations

from math import prod
from typing import cast

from ...profiling.knobs.knobs import SlotClass, knob_values, system_configs
from ...profiling.similarity.history import machine_class
from ...scheduler.model.decisions import Member
from ...scheduler.model.study import StudySpec
from ...scheduler.model.trial import Trial, TrialState
from ...scheduler.state.core import Core, Refused
from .asked.decisions import AskConfigs, ConfigsProposed, Remember
from .races.racing import PROBING, Race
from .workloads import (
    WorkloadTuning,
    slot_class_of,
    slot_text,
    tuning_in,
    workload_of,
    workloads_in,
)

#: Number of times that a model is asked for configurations, for each race of a workload.
PROPOSALS = 3

#: Number of workloads that are kept. If there are more, the least recently used is dropped.
WORKLOADS_KEPT = 256


class Probing:
    """Keeps the workloads, and enters the configurations to try into their races."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._state = core.state

    def workload(
        self, spec: StudySpec, trial: Trial, slot_class: SlotClass
    ) -> tuple[str, WorkloadTuning]:
        """Return the key of the trial's workload, and the workload.

        Architectures of one size are one workload. A trial stays in the workload in which it
        started, even if its architecture becomes known later.
        """
        own = tuning_in(self._state)
        if (
            trial.dispatched_at is None
            and (counted_trial := self._state.counted(trial)) is not None
        ):
            own.sizes[trial.id] = counted_trial.size
        size, workloads = own.sizes.get(trial.id, ""), own.workloads
        slot = slot_text(slot_class)
        family = f"{workload_of(spec, trial)}/{slot}"
        key = f"{workload_of(spec, trial, size)}/{slot}" if size else family
        existing = workloads.pop(key, None)
        kinds = _kinds(spec)
        workload = existing or WorkloadTuning(
            family if size else "",
            kinds,
            knob_values(slot_class, kinds, spec.knobs),
            Race(spec.probing),
            Race(spec.probing),
        )
        workloads[key] = workload
        if len(workloads) > WORKLOADS_KEPT:
            workloads.pop(next(iter(workloads)))
        return key, workload

    def family(self, key: str, workload: WorkloadTuning) -> list[WorkloadTuning]:
        """Return all workloads of this code, one for each size of architecture."""
        own, workloads = workload.family or key, workloads_in(self._state)
        return [each for name, each in workloads.items() if (each.family or name) == own]

    def slot_class(self, member: Member) -> SlotClass:
        return slot_class_of(self._state.devices[member.device].device)

    def machine(self, trial: Trial) -> str:
        return machine_class(self._state.devices[trial.members[0].device].device)

    def busy(self, workload: WorkloadTuning) -> bool:
        """Return True if a trial is now measuring for this workload."""
        trial = self._state.trials.get(workload.probing)
        if trial is None or trial.state is not TrialState.RUNNING:
            workload.probing = ""
        return bool(workload.probing)

    def enter_configs(
        self, key: str, workload: WorkloadTuning, spec: StudySpec, slot_class: SlotClass
    ) -> None:
        """Enter the configurations to try; none if the study only reuses earlier results."""
        if spec.system != "tune":
            return
        strategy = PROBING[spec.probing]
        if strategy.asks:
            self._ask_for_configs(key, workload, spec, slot_class)
        elif not (workload.exact.arms or workload.others.arms):
            if strategy.by_epoch:
                workload.enter(system_configs(slot_class, workload.kinds, spec.knobs))
                return
            workload.exact.enter(system_configs(slot_class, ("exact",), spec.knobs))
            if workload.kinds[1:]:
                workload.others.enter(system_configs(slot_class, workload.kinds[1:], spec.knobs))

    def _ask_for_configs(
        self, key: str, workload: WorkloadTuning, spec: StudySpec, slot_class: SlotClass
    ) -> None:
        """Ask a model for more configurations, for each race that is decided or has no arms."""
        if workload.sought:
            return
        for race, kinds in zip(workload.races, (("exact",), workload.kinds[1:]), strict=True):
            choices = knob_values(slot_class, kinds, spec.knobs)
            if not choices or race.proposals >= PROPOSALS or (race.arms and not race.over):
                continue
            race.proposals += 1
            self._core.decide(
                AskConfigs,
                workload=key,
                choices=choices,
                seen=tuple(
                    (arm.config, None if arm.infeasible else arm.mean)
                    for arm in race.arms
                    if arm.n or arm.infeasible
                ),
                index=race.proposals,
            )
            workload.sought += (cast(AskConfigs, self._core.out[-1]),)

    def on_configs_proposed(self, event: ConfigsProposed) -> None:
        workload = workloads_in(self._state).get(event.workload)
        remaining = (
            ()
            if workload is None
            else tuple(ask for ask in workload.sought if ask.id != event.cause)
        )
        if workload is None or remaining == workload.sought:
            raise Refused(f"no configurations were sought for workload {event.workload}")
        workload.sought = remaining
        workload.enter(event.configs)

    def probes_by_epoch(
        self, spec: StudySpec, trial: Trial, slot_class: SlotClass, width: int
    ) -> bool:
        """Return True if the trial's next epoch is measured as a whole.

        Sets ``trial.system`` to the configuration to try in that epoch, or to the default. One
        trial at a time measures, in all of its epochs, since these are compared with its own first
        epoch.
        """
        key, workload = self.workload(spec, trial, slot_class)
        if width > 1:
            return False
        if trial.epoch == trial.begin and not self.busy(workload):
            self.enter_configs(key, workload, spec, slot_class)
            workload.probing, workload.usual = "" if workload.over else trial.id, 0.0
        if workload.probing != trial.id or workload.over:
            return False
        remaining = [c for race in workload.races if not race.over for c in race.open()]
        trial.system = remaining[0] if workload.usual else ()
        return True

    def observe_epoch(
        self, spec: StudySpec, trial: Trial, workload: WorkloadTuning, seconds: float
    ) -> None:
        """Use the seconds of an epoch that was measured as a whole."""
        if not trial.system:
            workload.usual = seconds
            return
        race = workload.race_of(trial.system)
        race.observe(trial.system, seconds / workload.usual)
        race.judge()
        if workload.over:
            workload.probing = ""
            self.remember(spec, trial, workload)

    def remember(self, spec: StudySpec, trial: Trial, workload: WorkloadTuning) -> None:
        """Add the winner, or the fact that there is none, to the history, once.

        Studies that weigh energy add nothing, since the history covers only speed.
        """
        if spec.energy_weight or not workload.over or not workload.profile:
            return
        if workload.remembered == workload.chosen:
            return
        workload.remembered = workload.chosen
        arms = [arm for race in workload.races for arm in race.arms]
        speedup = prod(
            arm.speedup for race in workload.races for arm in race.arms if arm.config == race.chosen
        )
        key, _ = self.workload(spec, trial, self.slot_class(trial.members[0]))
        self._core.decide(
            Remember,
            study=spec.id,
            workload=key,
            machine=self.machine(trial),
            profile=workload.profile,
            config=workload.chosen,
            speedup=speedup,
            windows=sum(arm.n for arm in arms),
            infeasible=tuple(arm.config for arm in arms if arm.infeasible),
        )


def _kinds(spec: StudySpec) -> tuple[str, ...]:
    """Return the kinds of knobs that may be changed in the study."""
    by_epoch = PROBING[spec.probing].by_epoch
    if spec.system != "tune" or spec.system_fixed or (by_epoch and spec.exactness == "bitwise"):
        return ("exact",)
    return ("exact", "rounding", *(("numerics",) if spec.exactness == "statistical" else ()))
