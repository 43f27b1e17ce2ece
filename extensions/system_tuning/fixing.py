"""Chooses one system configuration for all trials of a study, before any epoch is accepted.

Theory of operation. Knobs that change bits must not differ between trials whose results are
compared, and within a bitwise study not between its epochs. So such a study (``system_fixed``) has
one configuration, which is part of its numeric signature. When the study starts, the history is
asked for results on its workload (``Recall``). If these leave nothing worth measuring, the best
known configuration is taken. Otherwise the first trial *rehearses*: its trainer measures windows on
copies of the fresh model, chooses a configuration, and reports it (``Rehearsed``) before the first
epoch. The other trials wait meanwhile, outside the queue. Their wait takes seconds at most, and is
counted as part of the cost.

If the first trial fails under the configuration before its first epoch ends, the configuration is
withdrawn: the default is taken, and the failure is written to the history. Once an epoch is
accepted, the configuration does not change any more.

Exact knobs change no bits. They are tuned within epochs, as ``tuning`` describes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import astuple
from math import exp, log
from statistics import fmean, stdev
from typing import Any, cast

from ...profiling.knobs.knobs import SystemConfig, config_text, merged, part, system_configs
from ...scheduler.engine.engine import Parts
from ...scheduler.model.decisions import Decision, Member
from ...scheduler.model.events import AttemptFailed, StudySubmitted
from ...scheduler.model.study import Metrics, StudySpec
from ...scheduler.model.trial import Step, Trial, TrialState
from ...scheduler.planning.snapshots import remaining_epochs
from ...scheduler.resources.slots import free_slots
from ...scheduler.state.core import Refused
from ...scheduler.state.extensions import Begins
from ...scheduler.state.state import StudyState
from .asked.decisions import Recall, Recalled, Remember
from .probing import Probing
from .races.measured import Rehearsed
from .races.worth import Belief, Beliefs, unknown
from .workloads import FixedStudy, place_of, studies_in, tuning_in, workload_of

#: Expected epochs of later studies for each epoch of a study whose workload is new; and the most
#: for each epoch of a study whose workload was seen before.
RETURNS_OF_NEW, MOST_RETURNS = 0.5, 4.0

#: The configuration with which a trial computes in bfloat16.
BF16: SystemConfig = (("autocast", "bfloat16"),)


class Fixing:
    """Chooses the configuration of each study whose trials all have the same one."""

    def __init__(self, parts: Parts, *, probing: Probing) -> None:
        self._core = parts.core
        self._state = parts.core.state
        self._parts = parts
        self._probing = probing

    def on_begun(self, study: StudyState, event: Begins) -> None:
        """Ask the history about a new study. A continued study keeps its configuration."""
        spec = study.spec
        if study.system is not None or self._of(spec.id) is not None:
            return
        past = None if isinstance(event, StudySubmitted) else event.past
        for trial in () if past is None else past.trials:
            if trial.signature:
                study.system = part(trial.trained_with, "rounding", "numerics")
                return
        own = tuning_in(self._state).studies[spec.id] = FixedStudy()
        if spec.system == "off":
            study.system = _base(spec)
            return
        self._core.decide(Recall, study=spec.id, workload=workload_of(spec, None))
        own.asked = cast(Recall, self._core.out[-1])

    def on_recalled(self, event: Recalled) -> None:
        """Keep the history's answer, and let the first trial start."""
        own = self._of(event.study)
        if own is None or own.asked is None or own.asked.id != event.cause:
            raise Refused(f"nothing was asked of the history for study {event.study}")
        own.asked, own.known, own.others = None, event.known, event.others
        own.adopted = event.adopted
        own.known_to_fail = event.failed
        self.release(self._state.studies[event.study])

    def questions(self) -> Iterator[Decision]:
        """Yield the open questions to the history."""
        for own in studies_in(self._state).values():
            if own.asked is not None:
                yield own.asked

    def keeps(self, study: StudyState, trial: Trial, after: object) -> bool:
        """Let a trial wait until the configuration is chosen, unless this trial rehearses.

        Returns True if the trial waits.
        """
        own = self._of(study.spec.id)
        if own is None or study.system is not None or after is not None:
            return False
        if own.asked is None and not self._another_rehearses(study, own, trial):
            own.rehearsing = trial.id
        if own.rehearsing == trial.id:
            return False
        trial.since = self._core.at
        own.aside.append(trial.id)
        return True

    def _another_rehearses(self, study: StudyState, own: FixedStudy, trial: Trial) -> bool:
        """Return True if another trial is to rehearse, and still can."""
        other = self._state.trials.get(own.rehearsing)
        at_work = other is not None and other.state in (TrialState.WAITING, TrialState.RUNNING)
        if not at_work or own.rehearsing in study.withheld:
            own.rehearsing = ""
        return own.rehearsing not in ("", trial.id)

    def aside(self, study: StudyState) -> Iterator[tuple[str, str]]:
        """Yield the trials that wait for the choice, each with the reason."""
        own = self._of(study.spec.id)
        for name in () if own is None else self._waiting(own):
            why = f"{own.rehearsing} measures" if own and own.rehearsing else "the history is asked"
            yield name, f"{why} which system configuration the study's trials are to have"

    def has_enough(self, study: StudyState) -> bool:
        """Return True if the study has a waiting or rehearsing trial for each slot."""
        own = self._of(study.spec.id)
        if own is None or study.system is not None:
            return False
        slots = sum(each.device.slots for each in self._state.devices.values())
        return len(self._waiting(own)) + bool(own.rehearsing) >= max(1, slots)

    def _waiting(self, own: FixedStudy) -> list[str]:
        """Return the trials that wait for the choice, without those stopped meanwhile."""
        trials = self._state.trials
        return [name for name in own.aside if trials[name].state is TrialState.WAITING]

    def release(self, study: StudyState) -> None:
        """Let the waiting trials enter the queue, unless the study's choice is still open."""
        own = self._of(study.spec.id)
        if own is None or own.asked is not None or not own.aside:
            return
        first = self._state.trials[own.aside[0]]
        if study.system is None and self._another_rehearses(study, own, first):
            return
        names, own.aside = own.aside, []
        for name in names:
            trial = self._state.trials[name]
            if trial.state is TrialState.WAITING:
                self._parts.proposals.enter_queue(study, trial)
        self._core.offer_slots()

    def segment(
        self, study: StudyState, trial: Trial, members: tuple[Member, ...]
    ) -> Mapping[str, Any] | None:
        """Choose the configuration if needed; return a request if the trial must rehearse.

        Returns None if the trial need not rehearse, since the configuration is chosen.
        """
        own = self._of(study.spec.id)
        if own is None or study.system is not None:
            return None
        spec, base = study.spec, _base(study.spec)
        own.place = place_of(spec, self._state.devices[members[0].device].device)
        adopted = [each for *place, each in own.adopted if (*place,) == own.place]
        if adopted and spec.system == "reuse" and not base:
            study.system = _allowed(spec, adopted[0])
            return None
        evidence = [each for each in own.known if (each.workload, each.machine) == own.place]
        configs = self._candidates(spec, own, members[0])
        beliefs = Beliefs({config: unknown(config) for config in configs})
        if not base:  # otherwise windows are measured on top of it: the history has no such ones
            priors = {**_of_others(own), **{e.config: Belief(e.mean, e.error) for e in evidence}}
            beliefs.priors |= {config: priors[config] for config in configs if config in priors}
        able = own.rehearsing == trial.id and len(members) == 1
        if not able or beliefs.settled:
            study.system, own.others = merged(base, beliefs.best), ()
            return None
        studies = max((each.studies for each in evidence), default=0)
        returns = min(MOST_RETURNS, RETURNS_OF_NEW + studies)
        free = len(free_slots(self._state, self._core.extensions))
        return {
            "known": [(config, *astuple(beliefs.priors[config])) for config in configs],
            "base": base,
            "epochs": remaining_epochs(self._core, study) * (1 + returns),
            "held": max(1, free),
        }

    def on_rehearsed(self, event: Rehearsed) -> None:
        """Take the configuration that the first trial has found as the study's."""
        trial = self._core.trial(event.trial)
        self._core.check_training(trial, event.fence)
        study = self._state.studies[trial.study]
        own = self._of(study.spec.id)
        if own is None or study.system is not None or own.rehearsing != trial.id:
            raise Refused(f"{trial.id} was not to rehearse")
        base, candidates = _base(study.spec), self._candidates(study.spec, own, trial.members[0])
        if event.chosen not in [merged(base, each) for each in ((), *candidates)]:
            raise Refused(f"{config_text(event.chosen)} is not to be chosen for {study.spec.id}")
        self._state.attempts[event.fence].undivided = False
        if not base:
            own.measured = tuple((window.config, window.ratio) for window in event.windows)
        own.failed += [*event.failed]
        study.system, own.others = event.chosen, ()
        trial.system = merged(part(trial.system, "exact"), event.chosen)
        self.release(study)

    def on_trained(self, study: StudyState, trial: Trial, profile: Metrics) -> None:
        """Note that an epoch was accepted.

        The configuration with which it was trained is now the study's.
        """
        if study.system is None:
            study.system = part(trial.trained_with, "rounding", "numerics")
        self.remember(study, profile)

    def remember(self, study: StudyState, profile: Metrics) -> None:
        """Write the windows of the rehearsal to the history, once, whatever the choice was."""
        own = self._of(study.spec.id)
        if own is None or not (own.measured or own.failed):
            return
        ratios = defaultdict[SystemConfig, list[float]](list)
        for config, ratio in own.measured:
            ratios[config].append(log(ratio))
        measured = [(config, values, False) for config, values in ratios.items()]
        failed = [(config, [0.0], True) for config, _ in own.failed]
        for config, values, infeasible in (*measured, *failed):
            self._core.decide(
                Remember,
                study=study.spec.id,
                workload=own.place[0],
                machine=own.place[1],
                profile=profile,
                config=() if infeasible else config,
                speedup=exp(-fmean(values)),
                windows=len(values),
                spread=stdev(values) if len(values) > 1 else None,
                infeasible=(config,) if infeasible else (),
            )
        own.measured, own.failed = (), []

    def excuses(self, study: StudyState, trial: Trial, event: AttemptFailed, why: str) -> bool:
        """Withdraw the configuration with which a trial failed before any accepted epoch.

        Returns True if the trial is sent again.
        """
        own = self._of(study.spec.id)
        if own is None or study.signature or trial.signature:
            return False
        if study.system is None and event.trying:
            own.failed.append((event.trying, why))
            return True
        base = _base(study.spec)
        if study.system in (None, base) or event.trying:
            return False
        own.failed.append((tuple(p for p in study.system or () if p not in base), why))
        study.system = base
        for name in study.trials:
            other = self._state.trials[name]
            if other is not trial and other.state is TrialState.RUNNING:
                self._core.revoke(other)
                self._core.move(study, other, Step.LOSE)
                self._parts.proposals.wait(other, first=True)
        return True

    def forget(self, study: str) -> None:
        """Drop the state of a study that has ended."""
        studies_in(self._state).pop(study, None)

    def _of(self, study: str) -> FixedStudy | None:
        return studies_in(self._state).get(study)

    def _candidates(self, spec: StudySpec, own: FixedStudy, member: Member) -> list[SystemConfig]:
        """Return the configurations from which the study may choose, without the default."""
        kinds = ("rounding",) if spec.exactness == "bitwise" else ("rounding", "numerics")
        configs: tuple[SystemConfig, ...] = ()
        if spec.system == "tune":
            configs = system_configs(self._probing.slot_class(member), kinds, spec.knobs)
        if spec.precision == "auto":
            configs = (BF16, *configs, *(merged(each, BF16) for each in configs))
        failed = [config for config, _ in own.failed]
        failed += [config for *place, config in own.known_to_fail if (*place,) == own.place]
        return [each for each in configs if not any(set(bad) <= set(each) for bad in failed)]


def _of_others(own: FixedStudy) -> dict[SystemConfig, Belief]:
    """Return estimates from other workloads at the study's place, by configuration."""
    slot = own.place[0].partition("/")[2]
    return {
        each.config: Belief(each.mean, each.error, guessed=True)
        for each in own.others
        if (each.slot, each.machine) == (slot, own.place[1])
    }


def _base(spec: StudySpec) -> SystemConfig:
    """Return the part of the configuration that the user requires."""
    return BF16 if spec.precision == "bf16" else ()


def _allowed(spec: StudySpec, config: SystemConfig) -> SystemConfig:
    """Return the part of an adopted configuration that the study's settings allow."""
    return tuple(
        pair
        for pair in config
        if (pair not in BF16 or spec.precision == "auto")
        and (spec.knobs is None or pair[0] in spec.knobs)
    )
