"""Workloads: groups of trials that share a system configuration, and what is known of each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import log2
from typing import Literal

from ...profiling.devices.device import Device
from ...profiling.knobs.knobs import KnobValues, SlotClass, SystemConfig, merged, part
from ...profiling.similarity.history import machine_class
from ...scheduler.model.study import Metrics, StudySpec, batch_of, shards_of
from ...scheduler.model.trial import Trial
from ...scheduler.state.state import EngineState
from .asked.decisions import AskConfigs, Consult, Known, OfOthers, Recall
from .name import NAME
from .races.racing import PROBING, Race


@dataclass(slots=True)
class WorkloadTuning:
    """The state of one workload's tuning.

    Exact configurations race among themselves (``exact``). So do the ``others``, which apply to a
    trial's whole life. A trial runs with the winners of both races.
    """

    #: Of architectures of one size: the key of the workload of those whose size was not known. All
    #: sizes share the time that probes may take.
    family: str = ""
    #: The kinds of knobs that may be turned; exact ones always may.
    kinds: tuple[str, ...] = ("exact",)
    #: The knobs of these kinds that the study allows and the slots have, with their values.
    choices: KnobValues = ()
    #: The race of exact configurations.
    exact: Race = field(default_factory=Race)
    #: The race of all other configurations.
    others: Race = field(default_factory=Race)
    #: The trial that measures now; empty if none does.
    probing: str = ""
    #: Probes in a row without an answer.
    silent: int = 0
    #: Seconds that the last probe was allowed to take.
    granted: float = 0.0
    #: Training time of epochs (seconds).
    trained: float = 0.0
    #: Time of measured windows whose training was thrown away (seconds).
    spent: float = 0.0
    #: Trials that began since the winner was last measured.
    begun: int = 0
    #: The profile of the first profiled epoch, under the default configuration.
    profile: Metrics = ()
    #: Number of epochs that were profiled.
    profiled: int = 0
    #: The question to the history that is unanswered.
    asked: Consult | None = None
    #: Why the configuration that the history advised is tried.
    advice: str = ""
    #: Questions for configurations that are unanswered.
    sought: tuple[AskConfigs, ...] = ()
    #: Seconds of an epoch under the default, of the trial that measures whole epochs (``grid``); 0
    #: if not known.
    usual: float = 0.0
    #: The configuration that was last written into the history.
    remembered: SystemConfig | None = None

    @property
    def races(self) -> tuple[Race, Race]:
        return self.exact, self.others

    @property
    def chosen(self) -> SystemConfig:
        """The fastest configuration that is known."""
        return merged(self.exact.chosen, self.others.chosen)

    @property
    def over(self) -> bool:
        """True if nothing is left to try."""
        return all(race.over or not race.arms for race in self.races)

    def enter(self, configs: Iterable[SystemConfig]) -> None:
        """Enter configurations into the races, the exact part of each apart from the rest.

        Values that are not among the choices are left out, since a history may come from elsewhere.
        Where an epoch has one configuration as a whole, so do the races, if all kinds of knobs may
        be turned between two epochs.
        """
        allowed = dict(self.choices)
        for proposed in configs:
            config = tuple(pair for pair in proposed if pair[1] in allowed.get(pair[0], ()))
            if PROBING[self.others.probing].by_epoch and len(self.kinds) > 1:
                self.others.enter([part(config, *self.kinds)])
            else:
                self.exact.enter([part(config, "exact")])
                self.others.enter([part(config, *self.kinds[1:])])

    def race_of(self, config: SystemConfig) -> Race:
        return self.others if self.others.has(config) else self.exact


@dataclass(frozen=True, slots=True)
class Suspect:
    """A system configuration that a trial failed with, and how it failed."""

    config: SystemConfig
    why: str


@dataclass(slots=True)
class FixedStudy:
    """The choice of the one configuration of a study (``fixing``)."""

    #: The question to the history that is unanswered.
    asked: Recall | None = None
    #: Evidence of the history on its workload.
    known: tuple[Known, ...] = ()
    #: Evidence of the history on other workloads.
    others: tuple[OfOthers, ...] = ()
    #: Configurations that could not be run of late (``Recalled.failed``).
    known_to_fail: tuple[tuple[str, str, SystemConfig], ...] = ()
    #: Configurations that users have adopted for its code (``Recalled.adopted``).
    adopted: tuple[tuple[str, str, SystemConfig], ...] = ()
    #: The trial that rehearses, or is to; empty if there is none.
    rehearsing: str = ""
    #: The trials that wait for the choice.
    aside: list[str] = field(default_factory=list)
    #: The key of its workload and the class of the device where it began (``place_of``).
    place: tuple[str, str] = ("", "")
    #: The ratio of each window of the rehearsal that is not in the history yet.
    measured: tuple[tuple[SystemConfig, float], ...] = ()
    #: Configurations that cannot be run, with the reason, as far as the history lacks them.
    failed: list[tuple[SystemConfig, str]] = field(default_factory=list)


@dataclass(slots=True)
class TuningState:
    """State of the extension in ``EngineState.ext``."""

    #: Workloads by their keys; the least recently used is first.
    workloads: dict[str, WorkloadTuning] = field(default_factory=dict)
    #: The system configurations that trials failed with and now run without, by trial.
    suspects: dict[str, Suspect] = field(default_factory=dict)
    #: The sizes of trials' architectures, by which they are tuned with others alike, by trial. Of
    #: the others it was not known before their first segment.
    sizes: dict[str, str] = field(default_factory=dict)
    #: Studies that have one configuration for all trials, by their ids.
    studies: dict[str, FixedStudy] = field(default_factory=dict)
    #: The version of this state; it grows when an older state cannot be read any more.
    version: Literal[1] = 1


def tuning_in(state: EngineState) -> TuningState:
    """Return the extension's part of the engine's state; it is created if missing."""
    tuning_state: TuningState | None = state.ext.get(NAME)
    if tuning_state is None:
        tuning_state = state.ext[NAME] = TuningState()
    return tuning_state


def workloads_in(state: EngineState) -> dict[str, WorkloadTuning]:
    """Return the known workloads without changing the state."""
    tuning_state: TuningState | None = state.ext.get(NAME)
    return {} if tuning_state is None else tuning_state.workloads


def studies_in(state: EngineState) -> dict[str, FixedStudy]:
    """Return the studies with one configuration for all trials. Nothing is changed."""
    tuning_state: TuningState | None = state.ext.get(NAME)
    return {} if tuning_state is None else tuning_state.studies


def workload_of(spec: StudySpec, trial: Trial | None, architecture: str = "") -> str:
    """Return a digest (16 hex digits) of code, environment, batch bucket, shards and the knobs.

    A study whose trials all have one configuration is one workload: code and environment alone
    count. ``architecture`` is the size of the trial's (``EngineState.counted``), where that is
    known. It reveals nothing of a user's names or data.
    """
    code = (spec.code.target.rpartition(":")[2], spec.code.digest)
    if spec.system_fixed or trial is None:
        names = [*code, "one configuration"]
    else:
        batch = batch_of(spec, trial.params)
        bucket = round(log2(batch)) if batch > 0 else 0
        names = [
            *code,
            str(bucket),
            str(shards_of(spec, trial.params)),
            spec.system,
            ",".join(spec.knobs or ("usual",)),
            spec.probing,
            spec.exactness,
            # Left out where not given, so that a workload keeps the digest that histories know.
            *([f"energy {spec.energy_weight!r}"] if spec.energy_weight else []),
        ]
    names += [
        *([spec.environment] if spec.environment else []),
        *(["candidates of a super-net"] if spec.strategy.supernet else []),
        *([f"architectures of size {architecture}"] if architecture else []),
    ]
    return hashlib.sha256("\0".join(names).encode()).hexdigest()[:16]


def slot_class_of(device: Device) -> SlotClass:
    """Return the class of the device's slots. Residents of a lane take turns on all its cores."""
    cores = max(1, len(device.cores) // device.lanes)
    return SlotClass(device.kind, cores, device.slots == 1)


def slot_text(slot: SlotClass) -> str:
    """Return the kind of slot in the key of a workload."""
    return f"{slot.kind}{slot.cores}{'' if slot.alone else ' of more'}"


def place_of(spec: StudySpec, device: Device) -> tuple[str, str]:
    """Return by what the history knows a study with one configuration on a device.

    It is the key of the workload, and the class of the device.
    """
    return f"{workload_of(spec, None)}/{slot_text(slot_class_of(device))}", machine_class(device)
