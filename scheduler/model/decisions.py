"""Decisions: actions that the engine wants carried out. They are its only outputs.

Carrying a decision out twice is harmless. Every decision carries ``cause``, the sequence number of
the event from which the decision follows, and an ``id`` (``<event>.<index>``). An event that
answers a decision names this id as its cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from ...base.values import value_class
from ...profiling.costs.failure_rate import PRIOR
from ...profiling.knobs.knobs import SystemConfig
from .snapshot import Snapshot
from .study import Params
from .trial_group import Fork
from .writing import Suggestion


@value_class(frozen=True, slots=True)
class Member:
    """One process of an attempt. Its rank is its position in ``Segment.members``."""

    device: str
    slot: int


@value_class(frozen=True, slots=True)
class Segment:
    """Epochs ``first`` to ``first + n - 1`` (1-based) of a trial, run as one task per member.

    If ``widths`` is given, no epoch is run: steps of the trial are measured at these widths, in
    this order (``profiling.costs.width_window``).
    """

    trial: str
    first: int
    n: int
    fence: int
    members: tuple[Member, ...]
    widths: tuple[int, ...] = ()

    @property
    def last(self) -> int:
        return self.first + self.n - 1


@value_class(frozen=True, slots=True)
class Parent:
    """A durable state that a segment may start from."""

    epoch: int
    uri: str
    state_hash: str


@value_class(frozen=True, slots=True, kw_only=True)
class Decision:
    id: str
    cause: int


@value_class(frozen=True, slots=True, kw_only=True)
class Dispatch(Decision):
    """Send the segment to the queues of its members.

    Before a trainer trains, it must have the state whose hash is ``expect``. It takes that state
    from the trainer ``holder``, or computes it by replaying epochs from one of ``parents`` or from
    the start.
    """

    #: The id of the trial's study.
    study: str
    #: The trial's number in its study, from 0.
    number: int
    #: The trial's configuration.
    params: Params
    #: The epochs to train, and the members that train them.
    segment: Segment
    #: Number of shards each batch is cut into.
    shards: int
    #: Durable states of the trial, newest first.
    parents: tuple[Parent, ...]
    #: The accepted state hash at epoch ``segment.first - 1``; empty at the start.
    expect: str
    #: The identity of the trainer that has this state in memory; empty if none is known.
    holder: str
    #: True if the segment ends at the trial's target.
    final: bool
    #: The numeric signature of the trial so far, or else of the study; empty before the study's
    #: first epoch.
    signature: str = ""
    #: Mean seconds until an attempt like this one is lost. This sets how often the state is made
    #: durable.
    mtbf: float = PRIOR
    #: The epoch after which a forked trial begins, else 0. The state at that epoch, among
    #: ``parents``, is another trial's.
    origin: int = 0
    #: The number of another trial, if the keys of the trial's random numbers hold it; None if they
    #: hold the trial's own.
    keys: int | None = None
    #: True if the segment's last epoch counts only once its state is in the store.
    durable: bool = False
    #: The system configuration that the segment runs with.
    system: SystemConfig = ()
    #: The longest time for measuring widths, in epochs of the trial.
    width_epochs: float = 0.0
    #: Epochs after which a copy of the state is kept in memory, for trials that begin there.
    copies: tuple[int, ...] = ()
    #: Time from which on the first epoch that ends closes the segment (the runner's clock); None if
    #: no limit of the study is near.
    until: float | None = None
    #: Accepted draws of a sampler that runs in the objective's process. No attempt draws them
    #: again.
    suggestions: tuple[Suggestion, ...] = ()
    #: Values from extensions to their parts in the trainer, by extension name (``SegmentValues``).
    ext: Mapping[str, Any] = field(default_factory=dict)


@value_class(frozen=True, slots=True, kw_only=True)
class Cut(Decision):
    """Shorten the running segment to the epoch it is in."""

    trial: str
    fence: int


@value_class(frozen=True, slots=True, kw_only=True)
class Revoke(Decision):
    """Fence the attempt off: its later reports are stale, and its trainers stop."""

    trial: str
    fence: int
    ranks: int


@value_class(frozen=True, slots=True, kw_only=True)
class Release(Decision):
    """Tell devices that the trial will not run again, so that they may drop its state from memory.

    If ``study`` is given, that study has ended, and devices may drop copies of states of all its
    trials.
    """

    trial: str
    study: str = ""


@value_class(frozen=True, slots=True, kw_only=True)
class Discard(Decision):
    """Delete durable states that are not needed any more. Keep files that other states name."""

    uris: tuple[str, ...]


@value_class(frozen=True, slots=True, kw_only=True)
class Ask(Decision):
    """Ask the sampler for the configurations of ``n`` new trials.

    ``index`` counts the asks of the study and seeds the sampler. ``enqueued`` are (partial)
    configurations from the user; the sampler completes them first, in order. If ``fork`` is set,
    the one configuration is an exploration of the configuration of the fork's source. If
    ``resampled`` is set, no trial is new: each of these trials is the first of a configuration, and
    all replicates of that configuration get other parameters.
    """

    study: str
    n: int
    index: int
    enqueued: tuple[Params, ...] = ()
    fork: Fork | None = None
    resampled: tuple[str, ...] = ()


@value_class(frozen=True, slots=True, kw_only=True)
class Finish(Decision):
    """The study has ended with this ``status``: ``complete``, ``cancelled`` or ``failed``."""

    study: str
    status: str


@value_class(frozen=True, slots=True, kw_only=True)
class AskPlan(Decision):
    """Ask a user's policy for plans, one for each snapshot.

    Each snapshot comes with the id of its study; an empty id stands for all studies together.
    """

    policy: str
    snapshots: tuple[tuple[str, Snapshot], ...]
