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
    """The slot of one process of an attempt. Its rank is its position in ``Segment.members``."""

    device: str
    slot: int


@value_class(frozen=True, slots=True)
class Segment:
    """Epochs ``first`` to ``first + n - 1`` of a trial, run as one Celery task per member.

    Epochs are numbered from 1. If ``widths`` is given, no epoch is run: the members measure steps
    of the trial at these widths, in this order (``profiling.costs.width_window``).
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
    from the trainer ``holder``, or computes the state by replaying epochs from one of ``parents``
    or from the start.
    """

    #: The id of the trial's study.
    study: str
    #: The trial's number in its study, from 0.
    number: int
    #: The trial's configuration.
    params: Params
    #: The epochs to train, and the members that train them.
    segment: Segment
    #: Number of shards that each batch is cut into.
    shards: int
    #: Durable states of the trial, newest first.
    parents: tuple[Parent, ...]
    #: The accepted hash of the state after epoch ``segment.first - 1``; empty at the start.
    expect: str
    #: The identity of the trainer that has this state in memory; empty if none is known.
    holder: str
    #: True if the segment ends at the trial's target.
    final: bool
    #: The numeric signature of the trial's last accepted epoch. Before that epoch it is the study's
    #: signature, which is empty until the study has its first epoch.
    signature: str = ""
    #: Mean seconds until an attempt with this number of members is lost. The trainer makes the
    #: state durable more often if this is short.
    mtbf: float = PRIOR
    #: The epoch after which a forked trial begins; 0 for any other trial. The state after that
    #: epoch, among ``parents``, is that of another trial.
    origin: int = 0
    #: The number of the trial whose random numbers this trial draws; None if it draws its own. The
    #: keys of random numbers hold this number.
    keys: int | None = None
    #: True if the segment's last epoch counts only once its state is in the store.
    durable: bool = False
    #: The system configuration that the segment runs with.
    system: SystemConfig = ()
    #: The longest time for measuring widths, as a number of the trial's epochs.
    width_epochs: float = 0.0
    #: Epochs after which the trainer keeps a copy of the state in memory, for trials that begin
    #: with that state.
    copies: tuple[int, ...] = ()
    #: Time (the runner's clock) from which on the segment closes with the next epoch that ends;
    #: None if no limit of the study is near.
    until: float | None = None
    #: Accepted draws of a sampler that runs in the objective's process. A new attempt gets these
    #: values instead of drawing again.
    suggestions: tuple[Suggestion, ...] = ()
    #: Values that extensions send to their parts in the trainer, by extension name
    #: (``SegmentValues``).
    ext: Mapping[str, Any] = field(default_factory=dict)


@value_class(frozen=True, slots=True, kw_only=True)
class Cut(Decision):
    """Shorten the running segment to the epoch it is in."""

    trial: str
    fence: int


@value_class(frozen=True, slots=True, kw_only=True)
class Revoke(Decision):
    """Fence the attempt off: its later reports are refused, and its trainers stop.

    ``ranks`` is the number of its members.
    """

    trial: str
    fence: int
    ranks: int


@value_class(frozen=True, slots=True, kw_only=True)
class Release(Decision):
    """Let devices drop the trial's state from memory, because the trial will not run again.

    If ``study`` is given, that study has ended, and devices may drop their copies of the states of
    all its trials.
    """

    trial: str
    study: str = ""


@value_class(frozen=True, slots=True, kw_only=True)
class Discard(Decision):
    """Delete durable states that are not needed any more. Files that other states use are kept."""

    uris: tuple[str, ...]


@value_class(frozen=True, slots=True, kw_only=True)
class Ask(Decision):
    """Ask the sampler for the configurations of ``n`` new trials.

    ``index`` counts the asks of the study and seeds the sampler. ``enqueued`` are configurations
    from the user, which may lack parameters; the sampler completes them first, in order. If
    ``fork`` is set, the one configuration is made by changing the configuration of the fork's
    source, as PBT explores. If ``resampled`` is set, no trial is new: it names the first trial of
    each configuration whose replicates all get new parameters.
    """

    study: str
    n: int
    index: int
    enqueued: tuple[Params, ...] = ()
    fork: Fork | None = None
    resampled: tuple[str, ...] = ()


@value_class(frozen=True, slots=True, kw_only=True)
class Finish(Decision):
    """End the study with this ``status``: ``complete``, ``cancelled`` or ``failed``."""

    study: str
    status: str


@value_class(frozen=True, slots=True, kw_only=True)
class AskPlan(Decision):
    """Ask a user's policy for plans, one for each snapshot.

    Each snapshot comes with the id of its study. An empty id means that the snapshot has the trials
    of all studies.
    """

    policy: str
    snapshots: tuple[tuple[str, Snapshot], ...]
