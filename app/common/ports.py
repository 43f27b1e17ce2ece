"""The runner's interfaces to the outside: a broker's transport, policies, and samplers.

The real transport and samplers are ``app.broker.transport.RedisTransport`` and
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

#: Seconds that a worker has for finishing its epochs after it was told to stop. After that the
#: agent ends the worker.
DRAIN_GRACE = 30.0


@value_class(frozen=True, slots=True)
class Message:
    """One entry of ``stream`` (``reports`` or ``commands``). The seal of ``body`` is verified."""

    id: str
    stream: str
    body: dict[str, Any]


class CodeFiles(Protocol):
    """Storage of code that is sent by value, under the SHA-256 (hex) of the code.

    Both methods raise BackendError.
    """

    def keep(self, digest: str, content: bytes) -> None: ...

    def holds(self, digest: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class OpenAttempt:
    """An attempt that is open in the ledger, and its number of members (``ranks``)."""

    trial: str
    fence: int
    ranks: int


#: The longest round trip (seconds) that a worker reports.
MAX_ROUND_TRIP = 60.0


@dataclass(frozen=True, slots=True)
class LiveDevice:
    """A device with a worker that answers."""

    device: Device
    incarnation: str
    draining: bool
    #: Seconds of a round trip from the device's worker to the broker, as the worker measured it.
    round_trip: Annotated[float, Interval(ge=0, le=MAX_ROUND_TRIP)] = 0.0


@dataclass(frozen=True, slots=True)
class AttemptStatus:
    """The state of an attempt on the broker."""

    #: The attempt's fence; None if the broker has no record of the trial.
    fence: int | None
    #: ``dispatched``, ``running`` (all ranks have claimed), ``done`` or ``revoked``; None without a
    #: record.
    state: str | None
    #: The ranks without a lease.
    absent: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Survey:
    """State of the broker at one instant."""

    #: Devices by name.
    devices: dict[str, LiveDevice]
    #: Attempts by trial.
    states: dict[str, AttemptStatus]
    #: The id of the broker's data, made when it was opened; None if the broker has lost its data.
    boot: str | None
    #: Devices that were drained and have gone since the last survey.
    stopped: frozenset[str] = frozenset()


@dataclass(slots=True)
class Effects:
    """Decisions of one turn of the runner, and the messages that it has handled.

    ``revokes`` come before ``dispatches``, so a trial can be fenced off and dispatched again at
    once.
    """

    dispatches: list[tuple[Dispatch, StudySpec]] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    revokes: list[Revoke] = field(default_factory=list)
    releases: list[Release] = field(default_factory=list)
    #: (name, JSON text) of answers. The name is a key without the protocol's prefix.
    answers: list[tuple[str, str]] = field(default_factory=list)
    #: (study, JSON text): changes in studies of objectives, for their trainers.
    history: list[tuple[str, str]] = field(default_factory=list)
    #: Studies whose complete history is in ``history``, so that texts sent before can be deleted.
    repeated: list[str] = field(default_factory=list)
    #: Pairs (study, trial) of ended trials for which a user's script still has to call callbacks.
    unheard: list[tuple[str, str]] = field(default_factory=list)
    #: Studies that are over. Trainers need no history of them, and a process may wait for the end.
    ended: list[str] = field(default_factory=list)
    #: Messages to acknowledge.
    acks: Sequence[Message] = ()


class Transport(Protocol):
    """The runner's interface to the broker. Every call may raise BackendError."""

    def open(self) -> None:
        """Create streams, group and installation hash if they are missing."""

    def receive(self, timeout: float) -> Sequence[Message]:
        """Return messages as soon as there are any, or none after ``timeout`` seconds."""

    def carry_out(self, effects: Effects) -> None:
        """Carry out all of ``effects`` in one round trip. Repeating this is harmless."""

    def drop(self, message: Message, why: Forged) -> None:
        """Log and count ``message``, which was unusable. It is acknowledged as usual."""

    def survey(self, attempts: Sequence[OpenAttempt]) -> Survey:
        """Return the devices that answer, and the state of each open attempt."""

    def scripts(self, studies: Collection[str]) -> Collection[str]:
        """Return the studies among ``studies`` that have a live script which calls callbacks."""


class Answer(NamedTuple):
    """A sampler's configurations for new trials, and a flag that says if they are the last."""

    trials: tuple[Params, ...]
    #: True if no configurations follow these.
    exhausted: bool
    #: The sampler's note (JSON) on each configuration; empty if it keeps none.
    notes: tuple[str, ...] = ()


class Policies(Protocol):
    """The runner's interface to users' policies."""

    def plan(self, policy: str, snapshots: Sequence[Snapshot]) -> tuple[Plan, ...]:
        """Return a plan for each snapshot. Raises UsageError if the policy gives no valid plan."""


class Samplers(Protocol):
    """Proposes configurations for trials. The answers depend only on the arguments."""

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
        """Return up to ``n`` configurations for trials.

        They are for the trials with the numbers in ``resampled``, which ``trials`` does not have,
        or for new trials if ``resampled`` is empty.
        """

    def explore(self, spec: StudySpec, number: int, params: Params) -> Params:
        """Return a configuration for trial ``number``, a fork of a trial with ``params``."""

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
