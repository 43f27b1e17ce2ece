"""What the runner needs from outside: a broker to talk through, and samplers to ask.

The live ones are ``transport.RedisTransport`` and ``samplers.SamplerHost``; the simulator brings a
transport of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ..scheduler.decisions import Cut, Dispatch, Release, Revoke
from ..scheduler.snapshot import Plan, Snapshot
from ..scheduler.study import Params, Scalar, StudySpec
from ..scheduler.trial import Trial
from ..tasks.messages import Forged

if TYPE_CHECKING:
    from .transport import Message, OpenAttempt, Survey


class Transport(Protocol):
    """The broker as the runner sees it. Every call raises BackendError when it does not answer."""

    def open(self) -> None:
        """Make streams, group and installation hash where they are missing."""

    def receive(self, timeout: float) -> Sequence[Message]:
        """Messages that arrived, at once; or after at most ``timeout`` seconds, perhaps none."""

    def carry_out(
        self,
        *,
        dispatches: Sequence[tuple[Dispatch, StudySpec]] = (),
        cuts: Sequence[Cut] = (),
        revokes: Sequence[Revoke] = (),
        releases: Sequence[Release] = (),
        answers: Sequence[tuple[str, str]] = (),
        acks: Sequence[Message] = (),
    ) -> None:
        """Everything that a turn decided, in one round trip."""

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
