"""A trial's life: its states, the literal table of legal transitions, and the record of one trial.

Theory of operation. A trial is one configuration. The strategy enters it in TrialGroups, each entry
naming an absolute epoch to reach (its *target*). Waiting for a slot it is WAITING, on a slot it is
RUNNING, at its target it is PAUSED until the strategy enters it again (promotion), or the study
ends or a forked trial takes its place (then it is STOPPED). It is COMPLETED when it reached the
strategy's last epoch or its objective returned, however early; an objective that prunes its trial
leaves it STOPPED. The docs' diagram is drawn from the table below.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ...profiling.base.errors import IllegalTransition
from ...profiling.knobs.knobs import SystemConfig
from .decisions import Member, Parent
from .study import Metrics, Params


class TrialState(StrEnum):
    """Optuna's word for each: WAITING, RUNNING, (paused: RUNNING), COMPLETE, PRUNED, FAIL, FAIL."""

    PROPOSED = "proposed"
    WAITING = "waiting"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Step(StrEnum):
    """What moves a trial from state to state."""

    ENTER = "enter"  # the strategy gives it a (higher) target
    HAND_OUT = "hand out"  # the user, who asked for it, trains it himself
    DISPATCH = "dispatch"  # a segment of it was sent to a slot
    YIELD = "yield"  # its segment closed before the target
    LOSE = "lose"  # the infrastructure lost its segment
    RETRY = "retry"  # its code failed and it is tried again
    REACH = "reach"  # it reached its target
    FINISH = "finish"  # it reached the last epoch, or its objective returned
    PRUNE = "prune"  # its objective raised TrialPruned
    STOP = "stop"  # the study ended without promoting it, or a forked trial took its place
    FAIL = "fail"  # its code failed for good
    CANCEL = "cancel"  # the user cancelled


_S, _T = TrialState, Step

TRANSITIONS: dict[tuple[TrialState, Step], TrialState] = {
    (_S.PROPOSED, _T.ENTER): _S.WAITING,
    (_S.PROPOSED, _T.HAND_OUT): _S.RUNNING,
    (_S.PROPOSED, _T.STOP): _S.STOPPED,
    (_S.PROPOSED, _T.CANCEL): _S.CANCELLED,
    (_S.WAITING, _T.DISPATCH): _S.RUNNING,
    (_S.WAITING, _T.CANCEL): _S.CANCELLED,
    (_S.RUNNING, _T.YIELD): _S.WAITING,
    (_S.RUNNING, _T.LOSE): _S.WAITING,
    (_S.RUNNING, _T.RETRY): _S.WAITING,
    (_S.RUNNING, _T.REACH): _S.PAUSED,
    (_S.RUNNING, _T.FINISH): _S.COMPLETED,
    (_S.RUNNING, _T.PRUNE): _S.STOPPED,
    (_S.RUNNING, _T.FAIL): _S.FAILED,
    (_S.RUNNING, _T.CANCEL): _S.CANCELLED,
    (_S.PAUSED, _T.ENTER): _S.WAITING,
    (_S.PAUSED, _T.STOP): _S.STOPPED,
    (_S.PAUSED, _T.CANCEL): _S.CANCELLED,
}

#: States that a trial never leaves, while its study lasts (``extending`` makes paused of stopped).
FINAL = frozenset({_S.COMPLETED, _S.STOPPED, _S.FAILED, _S.CANCELLED})


@dataclass(frozen=True, slots=True)
class AcceptedEpoch:
    """One accepted epoch: its result, its bits, and where and when it was computed.

    ``value`` is the study's metric; ``seconds`` training time; ``at`` the runner's clock;
    ``joules`` its part of what its devices drew, None where not measured.
    ``device`` and ``slot`` are the first member's; ``members`` are all of them. ``system`` is the
    system configuration that it was trained with.
    """

    trial: str
    epoch: int
    value: float
    metrics: Metrics
    state_hash: str
    signature: str
    seconds: float
    device: str
    slot: int
    fence: int
    at: float
    members: tuple[Member, ...] = ()
    joules: float | None = None
    system: SystemConfig = ()


@dataclass(frozen=True, slots=True)
class Failure:
    kind: str
    message: str
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class Origin:
    """What a forked trial goes on from: the state of ``trial`` after ``epoch``.

    It takes the place of the trial that it ``replaces``.
    """

    trial: str
    epoch: int
    replaces: str


@dataclass(slots=True)
class Trial:
    """The engine's record of a trial. ``epoch`` is the last accepted one; ``fence`` is 0 at rest.

    A forked trial begins after the epoch of its ``origin``, and the epochs up to there are not its
    own.

    ``members`` are where it runs or last ran; ``holder`` is the trainer that has its state after
    ``epoch`` in memory, as far as is known (``tasks.gangs.peers``). ``further`` are the newest
    values of the study's other objectives, ``constraints`` by how much each is violated (0 or less:
    it holds), ``notes`` what the sampler keeps with it (JSON). ``enqueued``: it is the user's.
    ``system`` is the system configuration that it runs with (``tuning``), ``trained_with`` that of
    its last epoch; ``suspect`` is what it failed with, and goes on without, and ``suspicion`` how.
    ``alone``: it ran out of
    memory beside others, and shares no device any more.
    """

    id: str
    study: str
    number: int
    params: Params
    created_at: float
    state: TrialState = TrialState.PROPOSED
    target: int = 0
    epoch: int = 0
    value: float | None = None
    state_hash: str = ""
    signature: str = ""
    fence: int = 0
    members: tuple[Member, ...] = ()
    holder: str = ""
    failures: int = 0
    losses: int = 0
    failure: Failure | None = None
    finished_at: float | None = None
    parents: tuple[Parent, ...] = ()
    values: dict[int, float] = field(default_factory=dict)
    hashes: dict[int, str] = field(default_factory=dict)
    since: float = 0.0
    dispatched_at: float | None = None
    origin: Origin | None = None
    story: list[str] = field(default_factory=list)
    enqueued: bool = False
    further: tuple[float, ...] = ()
    constraints: Metrics = ()
    notes: str = ""
    system: SystemConfig = ()
    trained_with: SystemConfig = ()
    suspect: SystemConfig = ()
    suspicion: str = ""
    alone: bool = False

    @property
    def feasible(self) -> bool:
        """Whether it violates no constraint."""
        return all(excess <= 0 for _, excess in self.constraints)

    @property
    def begin(self) -> int:
        """The epoch that it begins after."""
        return 0 if self.origin is None else self.origin.epoch

    @property
    def device(self) -> str:
        return self.members[0].device if self.members else ""

    @property
    def slot(self) -> int:
        return self.members[0].slot if self.members else 0

    def step(self, step: Step) -> None:
        """Move along the table, or raise ``IllegalTransition`` and change nothing."""
        after = TRANSITIONS.get((self.state, step))
        if after is None:
            story = "; ".join(self.story) or "none yet"
            raise IllegalTransition(
                f"trial {self.id} is {self.state} and cannot {step}. Its story: {story}"
            )
        self.state = after
