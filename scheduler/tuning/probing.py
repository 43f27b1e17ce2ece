"""Probing: which system configurations are tried for a workload, and by which trial.

Theory of operation. The study's probing strategy decides. ``race`` and ``bandit`` enter all
configurations at once and measure them in windows; they differ in how they judge
(``profiling.knobs.racing``). ``bayesian`` races a few at a time. When these are decided, a model of
the results is asked for the next ones. Like a sampler, the model is not part of the engine: it is
asked (``AskConfigs``), and its answer is an event.

``grid`` is PipeTune as published (Middleware 2020, sections 5.2 and 5.6). It runs each
configuration for one whole epoch, after a first epoch under the default; the shortest epoch wins.
The cost of this has no bound. Knobs that must not change after a trial's first epoch cannot be
tried this way, so in a bitwise study only exact knobs are tried.
"""

from __future__ import annotations

from math import prod
from typing import cast

from ...profiling.knobs.knobs import Spot, arms, choices
from ...profiling.knobs.racing import PROBING, Race
from ...profiling.similarity.history import machine_class
from ..model.decisions import AskConfigs, Member, Remember
from ..model.events import ConfigsProposed
from ..model.study import StudySpec
from ..model.trial import Trial, TrialState
from ..state.core import Core, Refused
from ..state.workloads import Tuned, workload_of

#: How many times a model is asked for configurations, for each race of a workload.
PROPOSALS = 3

#: How many workloads are kept; the least recently used one is forgotten.
WORKLOADS_KEPT = 256


class Probing:
    """Keeps the workloads, and enters what is to be tried into their races."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._state = core.state

    def tuned(self, spec: StudySpec, trial: Trial, spot: Spot) -> tuple[str, Tuned]:
        slot = f"{spot.kind}{spot.cores}{'' if spot.alone else ' of more'}"
        key = f"{workload_of(spec, trial)}/{slot}"
        known = self._state.tuned
        found = known.pop(key, None)
        kinds = _kinds(spec)
        tuned = found or Tuned(
            kinds, choices(spot, kinds, spec.knobs), Race(spec.probing), Race(spec.probing)
        )
        known[key] = tuned
        if len(known) > WORKLOADS_KEPT:
            known.pop(next(iter(known)))
        return key, tuned

    def spot(self, member: Member) -> Spot:
        device = self._state.devices[member.device].device
        cores = max(1, len(device.cores) // device.slots)
        return Spot(device.kind, cores, device.slots == 1)

    def machine(self, trial: Trial) -> str:
        return machine_class(self._state.devices[trial.members[0].device].device)

    def busy(self, tuned: Tuned) -> bool:
        """Whether a trial is measuring for this workload now."""
        trial = self._state.trials.get(tuned.probing)
        if trial is None or trial.state is not TrialState.RUNNING:
            tuned.probing = ""
        return bool(tuned.probing)

    def enter_arms(self, key: str, tuned: Tuned, spec: StudySpec, spot: Spot) -> None:
        """Enter what the study tries by itself: nothing if it only reuses earlier results."""
        if spec.system != "tune":
            return
        strategy = PROBING[spec.probing]
        if strategy.asks:
            self._seek(key, tuned, spec, spot)
        elif not (tuned.exact.arms or tuned.others.arms):
            if strategy.by_epoch:
                tuned.enter(arms(spot, tuned.kinds, spec.knobs))
                return
            tuned.exact.enter(arms(spot, ("exact",), spec.knobs))
            tuned.others.enter(arms(spot, tuned.kinds[1:], spec.knobs))

    def _seek(self, key: str, tuned: Tuned, spec: StudySpec, spot: Spot) -> None:
        """Ask for more configurations for the races that are decided."""
        if tuned.sought:
            return
        for race, kinds in zip(tuned.races, (("exact",), tuned.kinds[1:]), strict=True):
            known = choices(spot, kinds, spec.knobs)
            if not known or race.proposals >= PROPOSALS or (race.arms and not race.over):
                continue
            race.proposals += 1
            self._core.decide(
                AskConfigs,
                workload=key,
                choices=known,
                seen=tuple(
                    (arm.config, None if arm.infeasible else arm.mean)
                    for arm in race.arms
                    if arm.n or arm.infeasible
                ),
                index=race.proposals,
            )
            tuned.sought += (cast(AskConfigs, self._core.out[-1]),)

    def on_configs_proposed(self, event: ConfigsProposed) -> None:
        tuned = self._state.tuned.get(event.workload)
        left = () if tuned is None else tuple(ask for ask in tuned.sought if ask.id != event.cause)
        if tuned is None or left == tuned.sought:
            raise Refused(f"no configurations were sought for workload {event.workload}")
        tuned.sought = left
        tuned.enter(event.configs)

    def by_epoch(self, spec: StudySpec, trial: Trial, spot: Spot, width: int) -> bool:
        """Whether its next epoch is measured as a whole. If so, ``trial.system`` is set to what is
        tried.

        One trial at a time measures, for its whole life, since it is compared with its own first
        epoch.
        """
        key, tuned = self.tuned(spec, trial, spot)
        if width > 1:
            return False
        if trial.epoch == trial.begin and not self.busy(tuned):
            self.enter_arms(key, tuned, spec, spot)
            tuned.probing, tuned.usual = "" if tuned.over else trial.id, 0.0
        if tuned.probing != trial.id or tuned.over:
            return False
        left = [c for race in tuned.races if not race.over for c in race.open()]
        trial.system = left[0] if tuned.usual else ()
        return True

    def saw_epoch(self, spec: StudySpec, trial: Trial, tuned: Tuned, seconds: float) -> None:
        """Take in an epoch that was measured as a whole."""
        if not trial.system:
            tuned.usual = seconds
            return
        race = tuned.race_of(trial.system)
        race.saw(trial.system, seconds / tuned.usual)
        race.judge()
        if tuned.over:
            tuned.probing = ""
            self.tell(spec, trial, tuned)

    def tell(self, spec: StudySpec, trial: Trial, tuned: Tuned) -> None:
        """Write a winner into the history, or that there is none, once. The history covers speed
        only.
        """
        if spec.energy_weight or not tuned.over or not tuned.profile:
            return
        if tuned.remembered == tuned.chosen:
            return
        tuned.remembered = tuned.chosen
        everyone = [arm for race in tuned.races for arm in race.arms]
        speedup = prod(
            arm.speedup for race in tuned.races for arm in race.arms if arm.config == race.chosen
        )
        key, _ = self.tuned(spec, trial, self.spot(trial.members[0]))
        self._core.decide(
            Remember,
            study=spec.id,
            workload=key,
            machine=self.machine(trial),
            profile=tuned.profile,
            config=tuned.chosen,
            speedup=speedup,
            windows=sum(arm.n for arm in everyone),
            infeasible=tuple(arm.config for arm in everyone if arm.infeasible),
        )


def _kinds(spec: StudySpec) -> tuple[str, ...]:
    """The kinds of knobs that may be turned for the study."""
    by_epoch = PROBING[spec.probing].by_epoch
    if spec.system != "tune" or (by_epoch and spec.exactness == "bitwise"):
        return ("exact",)
    return ("exact", "rounding", *(("numerics",) if spec.exactness == "statistical" else ()))
