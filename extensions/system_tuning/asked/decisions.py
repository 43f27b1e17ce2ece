"""Decisions by which the scheduler's end asks questions and keeps results, and their answers.

The questions go to the history and to a model. The answers are events.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....base.values import Finite, Natural, Positive, Whole, value_class
from ....profiling.knobs.knobs import KnobValues, SystemConfig
from ....scheduler.model.decisions import Decision
from ....scheduler.model.events import Event
from ....scheduler.model.study import Metrics


@value_class(frozen=True, slots=True, kw_only=True)
class Consult(Decision):
    """Ask the history for the fastest configuration of workloads with a similar profile."""

    workload: str
    machine: str
    profile: Metrics


@value_class(frozen=True, slots=True, kw_only=True)
class Recall(Decision):
    """Ask the history for its results on the workload of a study that starts.

    ``workload`` is the workload's digest without the kind of slot.
    """

    study: str
    workload: str


@dataclass(frozen=True, slots=True)
class Known:
    """The log of a configuration's seconds per step over the default's, from earlier studies.

    ``mean`` is negative if the configuration is faster, and ``error`` is its standard error.
    ``workload`` is the key of the workload with the kind of slot, and ``machine`` the class of the
    device.
    """

    workload: str
    machine: str
    config: SystemConfig
    mean: Finite
    error: Positive
    windows: Whole
    studies: Whole


@dataclass(frozen=True, slots=True)
class OfOthers:
    """The same log ratio as in ``Known``, from other workloads on a kind of slot and of device.

    ``error`` is the standard error of a prediction for a new workload. ``workloads`` is the number
    of workloads that measured it, and in ``agreeing`` of them the ratio has the sign of ``mean``.
    """

    slot: str
    machine: str
    config: SystemConfig
    mean: Finite
    error: Positive
    workloads: Whole
    agreeing: Natural


@value_class(frozen=True, slots=True, kw_only=True)
class Recalled(Event):
    """The history's answer to ``Recall``.

    ``known`` are measurements of the workload, and ``others`` those of all other workloads.
    ``failed`` are configurations that recently could not be run, and ``adopted`` are those that a
    user has chosen for this code. Each of these comes after the key of the workload and the class
    of the device.
    """

    study: str
    known: tuple[Known, ...] = ()
    others: tuple[OfOthers, ...] = ()
    failed: tuple[tuple[str, str, SystemConfig], ...] = ()
    adopted: tuple[tuple[str, str, SystemConfig], ...] = ()


@value_class(frozen=True, slots=True, kw_only=True)
class AskConfigs(Decision):
    """Ask a model which system configurations to try next, given the results so far.

    ``choices`` are the knobs and their values other than the default. ``seen`` has, for each tried
    configuration, the mean log ratio of its seconds per step to the default's (None if it cannot be
    run). ``index`` counts the questions of this kind for the workload.
    """

    workload: str
    choices: KnobValues
    seen: tuple[tuple[SystemConfig, float | None], ...]
    index: int


@value_class(frozen=True, slots=True, kw_only=True)
class Remember(Decision):
    """Add the result of a workload's race, or a profile of its default, to the history."""

    #: The id of the study that took the measurements.
    study: str
    #: The key of the workload.
    workload: str
    #: The class of the device.
    machine: str
    #: The workload's profile under the default configuration.
    profile: Metrics
    #: The fastest configuration; empty for the default.
    config: SystemConfig
    #: Steps per hour under ``config``, divided by those under the default.
    speedup: float
    #: Number of windows that were measured.
    windows: int
    #: The standard deviation of a window's log ratio; None if not known.
    spread: float | None = None
    #: Configurations that cannot be run.
    infeasible: tuple[SystemConfig, ...] = ()


@value_class(frozen=True, slots=True, kw_only=True)
class Advised(Event):
    """The history's answer to ``Consult``: a configuration to try, and the reason.

    The configuration is empty if the history has none to advise.
    """

    workload: str
    config: SystemConfig
    why: str


@value_class(frozen=True, slots=True, kw_only=True)
class ConfigsProposed(Event):
    """The answer to ``AskConfigs``: configurations to try next, or none if none is left."""

    workload: str
    configs: tuple[SystemConfig, ...]
