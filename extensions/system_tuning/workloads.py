"""Workloads: groups of trials that share a system configuration, with the results for each."""

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

    Exact configurations race among themselves (``exact``). So do the ``others``, which a trial
    keeps in all of its epochs. A trial runs with the winners of both races.
    """

    #: For architectures of one size, the key of the same code's workload without a known size. All
    #: sizes share the time that probes may take.
    family: str = ""
    #: The kinds of knobs that may be changed. Exact ones always may.
    kinds: tuple[str, ...] = ("exact",)
    #: The knobs of these kinds that the study allows and the slots have, with their values.
    choices: KnobValues = ()
    #: The race of exact configurations.
    exact: Race = field(default_factory=Race)
    #: The race of all other configurations.
    others: Race = field(default_factory=Race)
    #: The trial that measures now; empty if there is none.
    probing: str = ""
    #: Number of consecutive probes without an answer.
    silent: int = 0
    #: Seconds that the last probe was allowed to take.
    granted: float = 0.0
    #: Seconds of training in epochs.
    trained: float = 0.0
    #: Seconds of windows that were measured on copies that were thrown away.
    spent: float = 0.0
    #: Number of trials that have started since the winner was last measured.
    begun: int = 0
    #: The profile of the first profiled epoch, under the default configuration.
    profile: Metrics = ()
    #: Number of epochs that were profiled.
    profiled: int = 0
    #: The open question to the history, if there is one.
    asked: Consult | None = None
    #: The history's reason for the configuration that it advised.
    advice: str = ""
    #: Open questions to a model for configurations.
    sought: tuple[AskConfigs, ...] = ()
    #: Seconds of an epoch under the default, for the trial that measures whole epochs (``grid``); 0
    #: if not known.
    usual: float = 0.0
    #: The configuration that was last written to the history.
    remembered: SystemConfig | None = None

    @property
    def races(self) -> tuple[Race, Race]:
        return self.exact, self.others

    @property
    def chosen(self) -> SystemConfig:
        """The fastest configuration found so far."""
        return merged(self.exact.chosen, self.others.chosen)

    @property
    def over(self) -> bool:
        """True if no race has anything left to try."""
        return all(race.over or not race.arms for race in self.races)

    def enter(self, configs: Iterable[SystemConfig]) -> None:
        """Enter configurations into the races, each split into its exact part and the rest.

        Values that are not among the choices are left out, since a history may come from another
        machine. If whole epochs are measured, and all kinds of knobs may change between two epochs,
        configurations are not split.
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
    """A system configuration under which a trial failed, and the failure."""

    config: SystemConfig
    why: str


@dataclass(slots=True)
class FixedStudy:
    """The state of a study's choice of one configuration for all trials (``fixing``)."""

    #: The open question to the history, if there is one.
    asked: Recall | None = None
    #: The history's results on the study's workload.
    known: tuple[Known, ...] = ()
    #: The history's results on other workloads.
    others: tuple[OfOthers, ...] = ()
    #: Configurations that recently could not be run (``Recalled.failed``).
    known_to_fail: tuple[tuple[str, str, SystemConfig], ...] = ()
    #: Configurations that users have adopted for the study's code (``Recalled.adopted``).
    adopted: tuple[tuple[str, str, SystemConfig], ...] = ()
    #: The trial that rehearses or is to rehearse; empty if there is none.
    rehearsing: str = ""
    #: The trials that wait for the choice.
    aside: list[str] = field(default_factory=list)
    #: The key of the study's workload and the class of its first device (``place_of``).
    place: tuple[str, str] = ("", "")
    #: The ratio of each window of the rehearsal, until they are written to the history.
    measured: tuple[tuple[SystemConfig, float], ...] = ()
    #: Configurations that cannot be run, with the reasons, until they are written to the history.
    failed: list[tuple[SystemConfig, str]] = field(default_factory=list)


@dataclass(slots=True)
class TuningState:
    """State of the extension in ``EngineState.ext``."""

    #: Workloads by their keys, the least recently used first.
    workloads: dict[str, WorkloadTuning] = field(default_factory=dict)
    #: The configurations with which trials failed, and without which they now run, by trial.
    suspects: dict[str, Suspect] = field(default_factory=dict)
    #: The sizes of trials' architectures by trial. A trial is tuned with others of its size. Trials
    #: whose size was not known before their first segment are left out.
    sizes: dict[str, str] = field(default_factory=dict)
    #: The studies with one configuration for all trials, by id.
    studies: dict[str, FixedStudy] = field(default_factory=dict)
    #: The version of this state. It is increased when older states can no longer be read.
    version: Literal[1] = 1


def tuning_in(state: EngineState) -> TuningState:
    """Return the extension's part of the engine's state; it is created if missing."""
    tuning_state: TuningState | None = state.ext.get(NAME)
    if tuning_state is None:
        tuning_state = state.ext[NAME] = TuningState()
    return tuning_state


def workloads_in(state: EngineState) -> dict[str, WorkloadTuning]:
    """Return the workloads by their keys, without changing the state."""
    tuning_state: TuningState | None = state.ext.get(NAME)
    return {} if tuning_state is None else tuning_state.workloads


def studies_in(state: EngineState) -> dict[str, FixedStudy]:
    """Return the state of each study with one configuration for all its trials, by study id."""
    tuning_state: TuningState | None = state.ext.get(NAME)
    return {} if tuning_state is None else tuning_state.studies


def workload_of(spec: StudySpec, trial: Trial | None, architecture: str = "") -> str:
    """Return a digest (16 hex digits) of code, environment, batch bucket, shards and knobs.

    A study whose trials all have one configuration is one workload, and its digest covers only code
    and environment. ``architecture`` is the size of the trial's architecture
    (``EngineState.counted``), if it is known. The digest reveals nothing of a user's names or data.
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
    """Return the kind of slot as text, for the key of a workload."""
    return f"{slot.kind}{slot.cores}{'' if slot.alone else ' of more'}"


def place_of(spec: StudySpec, device: Device) -> tuple[str, str]:
    """Return the key under which the history knows a study with one configuration on a device.

    It consists of the key of the workload and the class of the device.
    """
    return f"{workload_of(spec, None)}/{slot_text(slot_class_of(device))}", machine_class(device)
