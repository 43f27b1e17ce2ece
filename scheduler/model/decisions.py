"""What to do: the only outputs of the engine. Carrying one out twice is harmless.

Every decision carries ``cause``, the sequence number of the event it follows from, and an ``id``
(``<event>.<index>``) that its answers name as their cause.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...profiling.costs.failure_rate import PRIOR
from ...profiling.knobs.knobs import Choices, SystemConfig
from .snapshot import Snapshot
from .study import Metrics, Params
from .trial_group import Fork


@dataclass(frozen=True, slots=True)
class Member:
    """One process of an attempt: rank is its place in ``Segment.members``."""

    device: str
    slot: int


@dataclass(frozen=True, slots=True)
class Segment:
    """Epochs ``first`` to ``first + n - 1`` (1-based) of a trial, run as one task a member."""

    trial: str
    first: int
    n: int
    fence: int
    members: tuple[Member, ...]

    @property
    def last(self) -> int:
        return self.first + self.n - 1


@dataclass(frozen=True, slots=True)
class Parent:
    """A durable state that a segment may start from."""

    epoch: int
    uri: str
    state_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    id: str
    cause: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch(Decision):
    """Send the segment to its members' queues.

    ``parents`` are durable states, newest first; ``expect`` is the accepted state hash at epoch
    ``segment.first - 1`` (empty at the start): the trainer replays from a parent, or from nothing,
    until it has it, or gets it from ``holder``. ``signature`` is the trial's so far, or the
    study's; empty before its first epoch. ``mtbf`` is how many seconds such an attempt lasts on
    average until it is lost: how often its state becomes durable follows from it.
    ``origin``: the epoch that a forked trial begins after, 0 where it is not one; the state there
    among ``parents`` is another trial's. ``durable``: the segment's last epoch counts only once its
    state is in the store. ``system`` is the system configuration that it runs with; ``probe`` are
    those that it tries, with at most what ``probe_epochs`` epochs take, and ``profile`` says that
    its first epoch is profiled (``tuning``).
    """

    study: str
    number: int
    params: Params
    segment: Segment
    shards: int
    parents: tuple[Parent, ...]
    expect: str
    holder: str
    final: bool
    signature: str = ""
    mtbf: float = PRIOR
    origin: int = 0
    durable: bool = False
    system: SystemConfig = ()
    probe: tuple[SystemConfig, ...] = ()
    probe_epochs: float = 0.0
    profile: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut(Decision):
    """Shorten the running segment to the epoch it is in."""

    trial: str
    fence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Revoke(Decision):
    """Fence the attempt off: whatever it still says is stale, and its trainers stop."""

    trial: str
    fence: int
    ranks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Release(Decision):
    """The trial will not run again: devices may drop its warm state."""

    trial: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Discard(Decision):
    """Nobody needs these durable states any more. A file that another state names must stay."""

    uris: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask(Decision):
    """Ask the sampler for ``n`` configurations; ``index`` counts asks (it seeds the sampler).

    ``enqueued`` are the user's own (partial) configurations, to be completed first, in order.
    ``fork``: the one configuration is to be an exploration of the source's.
    """

    study: str
    n: int
    index: int
    enqueued: tuple[Params, ...] = ()
    fork: Fork | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish(Decision):
    """The study is over with this ``status``: ``complete``, ``cancelled`` or ``failed``."""

    study: str
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Consult(Decision):
    """Ask the history what workloads with a like profile ran best with."""

    workload: str
    machine: str
    profile: Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class AskConfigs(Decision):
    """Ask a model for system configurations worth trying, by what is known of others.

    ``choices`` are the knobs and their values beside the default, ``seen`` the mean log ratios of
    seconds a step of those that were tried (None: it cannot be run). ``index`` counts the questions
    of this kind for the workload.
    """

    workload: str
    choices: Choices
    seen: tuple[tuple[SystemConfig, float | None], ...]
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Remember(Decision):
    """Write into the history what came out of a workload's race, or a profile of its default.

    ``speedup`` is steps an hour under ``config`` over those under the default, ``profile`` that of
    the default, ``machine`` the class of the device; ``infeasible`` are configurations that cannot
    be run.
    """

    study: str
    workload: str
    machine: str
    profile: Metrics
    config: SystemConfig
    speedup: float
    windows: int
    infeasible: tuple[SystemConfig, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AskPlan(Decision):
    """Ask a policy of the user's for plans: one for each snapshot, by study (empty: of all)."""

    policy: str
    snapshots: tuple[tuple[str, Snapshot], ...]
