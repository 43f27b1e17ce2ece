"""What the runner needs from outside: a broker to talk through, and samplers to ask.

The live ones are ``transport.RedisTransport`` and ``samplers.SamplerHost``; the simulator brings a
transport of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from ...profiling.devices.device import Device
from ...scheduler.model.decisions import Cut, Dispatch, Release, Revoke
from ...scheduler.model.snapshot import Plan, Snapshot
from ...scheduler.model.study import Params, Scalar, StudySpec
from ...scheduler.model.trial import Trial
from ...tasks.process.messages import Forged


@dataclass(frozen=True, slots=True)
class Message:
    """One entry of ``stream`` (``reports`` or ``commands``); ``body`` has passed its seal."""

    id: str
    stream: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class OpenAttempt:
    """An attempt that the ledger holds open, and how many members it has."""

    trial: str
    fence: int
    ranks: int


@dataclass(frozen=True, slots=True)
class Seen:
    """A device whose worker answers."""

    device: Device
    incarnation: str
    draining: bool


@dataclass(frozen=True, slots=True)
class AttemptSeen:
    """An attempt as the broker has it: both None when it knows nothing of the trial.

    ``state`` is ``dispatched``, ``running`` (all ranks have claimed), ``done`` or ``revoked``;
    ``absent`` are the ranks without a lease.
    """

    fence: int | None
    state: str | None
    absent: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Survey:
    """What the broker shows at one instant. ``boot`` None: it has lost its data.

    ``stopped`` are the devices that are gone since the last one and had drained.
    """

    devices: dict[str, Seen]
    states: dict[str, AttemptSeen]
    boot: str | None
    stopped: frozenset[str] = frozenset()


@dataclass(slots=True)
class Orders:
    """What a turn decided, and what it is done with.

    ``answers`` are (where, JSON text), where without the prefix of our keys. ``revokes`` count
    before ``dispatches``, so a trial may be fenced off and sent out anew in one go.
    """

    dispatches: list[tuple[Dispatch, StudySpec]] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    revokes: list[Revoke] = field(default_factory=list)
    releases: list[Release] = field(default_factory=list)
    answers: list[tuple[str, str]] = field(default_factory=list)
    acks: Sequence[Message] = ()


class Transport(Protocol):
    """The broker as the runner sees it. Every call raises BackendError when it does not answer."""

    def open(self) -> None:
        """Make streams, group and installation hash where they are missing."""

    def receive(self, timeout: float) -> Sequence[Message]:
        """Messages that arrived, at once; or after at most ``timeout`` seconds, perhaps none."""

    def carry_out(self, orders: Orders) -> None:
        """All of ``orders``, in one round trip; repeating it harms nothing."""

    def drop(self, message: Message, why: Forged) -> None:
        """``message`` could not be used: have it said and counted. It is acknowledged as others."""

    def survey(self, attempts: Sequence[OpenAttempt]) -> Survey:
        """Devices that answer, and how each open attempt stands."""


class Answer(NamedTuple):
    """Configurations for new trials, and whether there are no more after them.

    ``notes``: what the sampler keeps with each of them (JSON); empty where it keeps nothing.
    """

    trials: tuple[Params, ...]
    exhausted: bool
    notes: tuple[str, ...] = ()


class Policies(Protocol):
    """Who asks policies of the user's."""

    def plan(self, policy: str, snapshots: Sequence[Snapshot]) -> tuple[Plan, ...]:
        """A plan for each snapshot, that may be. UsageError says what the policy did instead."""


class Samplers(Protocol):
    """Who proposes configurations. Its answers depend on the arguments alone."""

    def ask(
        self,
        spec: StudySpec,
        index: int,
        n: int,
        trials: Sequence[Trial],
        enqueued: Sequence[Params],
    ) -> Answer:
        """Up to ``n`` configurations, and whether there are no more."""

    def explore(self, spec: StudySpec, number: int, params: Params) -> Params:
        """The configuration of trial ``number``, which is forked from one with ``params``."""

    def suggest(
        self,
        spec: StudySpec,
        trial: Trial,
        name: str,
        distribution: str,
        trials: Sequence[Trial],
    ) -> Scalar:
        """One parameter of a define-by-run trial."""

    def forget(self, study: str) -> None:
        """The study is over."""
