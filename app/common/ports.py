"""Ports of the runner to the outside: a broker to talk through, and samplers to ask.

The real ones are ``app.broker.transport.RedisTransport`` and
``app.server.optuna_bridge.samplers.SamplerHost``. The simulator has a transport of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, Protocol

from annotated_types import Interval

from ...base.values import value_class
from ...profiling.devices.device import Device
from ...scheduler.model.decisions import Cut, Dispatch, Release, Revoke
from ...scheduler.model.snapshot import Plan, Snapshot
from ...scheduler.model.study import Params, Scalar, StudySpec
from ...scheduler.model.trial import Trial
from ...wire.messages import Forged

#: Seconds that a worker that was told to stop may take to end an epoch (then its agent ends it).
DRAIN_GRACE = 30.0


@value_class(frozen=True, slots=True)
class Message:
    """One entry of ``stream`` (``reports`` or ``commands``). The seal of ``body`` is verified."""

    id: str
    stream: str
    body: dict[str, Any]


class CodeFiles(Protocol):
    """Storage of code by value, each under its SHA-256 (hex). Both raise BackendError."""

    def keep(self, digest: str, content: bytes) -> None: ...

    def holds(self, digest: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class OpenAttempt:
    """An attempt that is open in the ledger, and its number of members (``ranks``)."""

    trial: str
    fence: int
    ranks: int


#: Seconds: no worker reports a longer round trip.
MAX_ROUND_TRIP = 60.0


@dataclass(frozen=True, slots=True)
class LiveDevice:
    """A device whose worker answers."""

    device: Device
    incarnation: str
    draining: bool
    #: Seconds that a round trip to the broker takes from there, as its worker measured it.
    round_trip: Annotated[float, Interval(ge=0, le=MAX_ROUND_TRIP)] = 0.0


@dataclass(frozen=True, slots=True)
class AttemptStatus:
    """An attempt as the broker has it."""

    #: None if the broker knows nothing of the trial.
    fence: int | None
    #: ``dispatched``, ``running`` (all ranks have claimed), ``done`` or ``revoked``; None as above.
    state: str | None
    #: The ranks without a lease.
    absent: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Survey:
    """State of the broker at one instant."""

    #: By name.
    devices: dict[str, LiveDevice]
    #: By trial.
    states: dict[str, AttemptStatus]
    #: None if the broker has lost its data.
    boot: str | None
    #: Devices that were drained and have gone since the last survey.
    stopped: frozenset[str] = frozenset()


@dataclass(slots=True)
class Effects:
    """Decisions of one turn of the runner, and the messages it has dealt with.

    ``revokes`` come before ``dispatches``, so a trial can be fenced off and dispatched again at
    once.
    """

    dispatches: list[tuple[Dispatch, StudySpec]] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    revokes: list[Revoke] = field(default_factory=list)
    releases: list[Release] = field(default_factory=list)
    #: (name, JSON text). The name is a key without our prefix.
    answers: list[tuple[str, str]] = field(default_factory=list)
    #: (study, JSON text): what has changed in studies of objectives, for their trainers.
    history: list[tuple[str, str]] = field(default_factory=list)
    #: Studies whose whole history is in ``history``: nothing that was sent before is needed.
    repeated: list[str] = field(default_factory=list)
    #: (study, trial): trials that have ended, whose script is to call its callbacks.
    unheard: list[tuple[str, str]] = field(default_factory=list)
    #: Studies that are over: no trainer needs their history, and somebody may wait for their end.
    ended: list[str] = field(default_factory=list)
    #: Messages to acknowledge.
    acks: Sequence[Message] = ()


class Transport(Protocol):
    """The broker as the runner sees it. Every call raises BackendError if it does not answer."""

    def open(self) -> None:
        """Make streams, group and installation hash where they are missing."""

    def receive(self, timeout: float) -> Sequence[Message]:
        """Messages, as soon as there are any; after ``timeout`` seconds perhaps none."""

    def carry_out(self, effects: Effects) -> None:
        """Carry out all of ``effects`` in one round trip. Repeating this is harmless."""

    def drop(self, message: Message, why: Forged) -> None:
        """Log and count ``message``, which could not be used. It is acknowledged as usual."""

    def survey(self, attempts: Sequence[OpenAttempt]) -> Survey:
        """Return the devices that answer, and the state of each open attempt."""

    def scripts(self, studies: Collection[str]) -> Collection[str]:
        """Return those of ``studies`` whose scripts live and call callbacks."""


class Answer(NamedTuple):
    """Configurations for new trials, and whether these are the last."""

    trials: tuple[Params, ...]
    #: No configurations follow these.
    exhausted: bool
    #: Notes that the sampler keeps with each of them (JSON); empty if it keeps none.
    notes: tuple[str, ...] = ()


class Policies(Protocol):
    """Asks the user's policies."""

    def plan(self, policy: str, snapshots: Sequence[Snapshot]) -> tuple[Plan, ...]:
        """Return a valid plan for each snapshot. UsageError says what the policy did instead."""


class Samplers(Protocol):
    """Proposes configurations. Its answers depend only on the arguments."""

    def ask(
        self,
        spec: StudySpec,
        index: int,
        n: int,
        trials: Sequence[Trial],
        enqueued: Sequence[Params],
        *,
        resampled: Sequence[int],
    ) -> Answer:
        """Up to ``n`` configurations, and whether there are no more.

        They are for the trials of the numbers ``resampled``, which ``trials`` are without; for new
        ones where that is empty.
        """

    def explore(self, spec: StudySpec, number: int, params: Params) -> Params:
        """Return the configuration of trial ``number``, forked from one with ``params``."""

    def suggest(
        self,
        spec: StudySpec,
        trial: Trial,
        name: str,
        distribution: str,
        trials: Sequence[Trial],
    ) -> Scalar:
        """Return a value for one parameter of a define-by-run trial."""

    def forget(self, study: str) -> None:
        """Forget a study that is over."""
