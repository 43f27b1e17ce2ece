"""Decisions of the scheduler's end, and the events that answer them.

They are questions to the history and to a model, and what is kept.
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
    """Ask the history which configuration ran best for workloads with a similar profile."""

    workload: str
    machine: str
    profile: Metrics


@value_class(frozen=True, slots=True, kw_only=True)
class Recall(Decision):
    """Ask the history what is known of the workload of a study that begins.

    ``workload`` is its digest without the kind of slot.
    """

    study: str
    workload: str


@dataclass(frozen=True, slots=True)
class Known:
    """The log ratio of a configuration's seconds a step to the default's, as earlier studies say.

    ``mean`` is negative where it is faster, ``error`` its standard error. ``workload`` is the key
    of the workload with the kind of slot, ``machine`` the class of the device.
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
    """The same as other workloads say, on a kind of slot and a class of device.

    ``error`` is that of a prediction for one more workload. ``workloads`` have measured it, of
    which ``agreeing`` have the sign of ``mean``.
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

    ``known`` are measurements of the workload, ``others`` those of all others. ``failed`` are
    configurations that could not be run of late, and ``adopted`` those that a user has chosen for
    this code, each after the key of the workload and the class of the device.
    """

    study: str
    known: tuple[Known, ...] = ()
    others: tuple[OfOthers, ...] = ()
    failed: tuple[tuple[str, str, SystemConfig], ...] = ()
    adopted: tuple[tuple[str, str, SystemConfig], ...] = ()


@value_class(frozen=True, slots=True, kw_only=True)
class AskConfigs(Decision):
    """Ask a model which system configurations to try next, given the results so far.

    ``choices`` are the knobs and their values other than the default. ``seen`` holds, for each
    configuration that was tried, the mean log ratio of its seconds a step to the default's (None:
    it cannot be run). ``index`` counts the questions of this kind for the workload.
    """

    workload: str
    choices: KnobValues
    seen: tuple[tuple[SystemConfig, float | None], ...]
    index: int


@value_class(frozen=True, slots=True, kw_only=True)
class Remember(Decision):
    """Write into the history the result of a workload's race, or a profile of its default."""

    #: The id of the study that measured.
    study: str
    #: The key of the workload.
    workload: str
    #: The class of the device.
    machine: str
    #: The workload's profile under the default configuration.
    profile: Metrics
    #: The fastest configuration; empty for the default.
    config: SystemConfig
    #: Steps an hour under ``config``, divided by those under the default.
    speedup: float
    #: Number of windows that were measured.
    windows: int
    #: The standard deviation of a window's log ratio; None: not known.
    spread: float | None = None
    #: Configurations that cannot be run.
    infeasible: tuple[SystemConfig, ...] = ()


@value_class(frozen=True, slots=True, kw_only=True)
class Advised(Event):
    """The history's answer to ``Consult``: a configuration to try, and why.

    The configuration is empty if the history knows of none.
    """

    workload: str
    config: SystemConfig
    why: str


@value_class(frozen=True, slots=True, kw_only=True)
class ConfigsProposed(Event):
    """The answer to ``AskConfigs``: configurations to try next, none if nothing is left."""

    workload: str
    configs: tuple[SystemConfig, ...]
