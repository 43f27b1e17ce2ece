"""The life of a trial: its states, the table of legal transitions, and the record of one trial.

Theory of operation. A trial is one configuration. The strategy enters it in TrialGroups; each entry
names the epoch that the trial is to reach, counted from its start (its *target*). A trial is
WAITING while it waits for a slot, RUNNING while it has one, and PAUSED at its target. A paused
trial is entered again (promotion), or it is STOPPED when the study ends or a forked trial takes its
place. A waiting trial is STOPPED if its study ends at a limit. A trial is COMPLETED when it reaches
the strategy's last epoch or its objective returns, however early. A trial is also STOPPED when its
objective prunes it or its user stops it. A trial in one of these final states continues if its user
revives it. The diagram in the docs is drawn from the table below.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ...base.errors import IllegalTransition
from ...base.values import value_class
from ...profiling.knobs.knobs import SystemConfig
from .decisions import Member, Parent
from .segment_length import SegmentLength
from .study import Metrics, Params
from .writing import Suggestion


class TrialState(StrEnum):
    """The state of a trial.

    The states' names in Optuna are, in this order: WAITING, WAITING, RUNNING, RUNNING, COMPLETE,
    PRUNED, FAIL, FAIL.
    """

    PROPOSED = "proposed"
    WAITING = "waiting"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Step(StrEnum):
    """A step that moves a trial from one state to another."""

    ENTER = "enter"  # the strategy gives the trial a target, or a higher one
    HAND_OUT = "hand out"  # a user takes the trial, to train it outside the system
    DISPATCH = "dispatch"  # a segment of the trial was sent to its slots
    YIELD = "yield"  # its segment closed before the target
    LOSE = "lose"  # the infrastructure lost its attempt
    RETRY = "retry"  # its code failed, and the trial is tried again
    REACH = "reach"  # it reached its target, by training or by epochs that it took over
    FINISH = "finish"  # it reached the last epoch, or its objective returned
    PRUNE = "prune"  # its objective raised TrialPruned, or its user stopped the trial
    STOP = "stop"  # the study ended before its target, or a forked trial took its place
    FAIL = "fail"  # its code failed, and the trial is not tried again
    CANCEL = "cancel"  # the user cancelled its study or the trial
    REVIVE = "revive"  # it had ended, and its user has it continue


_S, _T = TrialState, Step

TRANSITIONS: dict[tuple[TrialState, Step], TrialState] = {
    (_S.PROPOSED, _T.ENTER): _S.WAITING,
    (_S.PROPOSED, _T.HAND_OUT): _S.RUNNING,
    (_S.PROPOSED, _T.STOP): _S.STOPPED,
    (_S.PROPOSED, _T.CANCEL): _S.CANCELLED,
    (_S.WAITING, _T.DISPATCH): _S.RUNNING,
    (_S.WAITING, _T.REACH): _S.PAUSED,
    (_S.WAITING, _T.FINISH): _S.COMPLETED,
    (_S.WAITING, _T.PRUNE): _S.STOPPED,
    (_S.WAITING, _T.STOP): _S.STOPPED,
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
    (_S.PAUSED, _T.PRUNE): _S.STOPPED,
    (_S.PAUSED, _T.STOP): _S.STOPPED,
    (_S.PAUSED, _T.CANCEL): _S.CANCELLED,
    (_S.COMPLETED, _T.REVIVE): _S.WAITING,
    (_S.STOPPED, _T.REVIVE): _S.WAITING,
    (_S.FAILED, _T.REVIVE): _S.WAITING,
}

#: States of a trial that has ended. A trial leaves them only if its user revives it, or if its
#: study gets more trials and a stopped trial becomes paused again (``scheduler.engine.lifecycle``).
FINAL = frozenset({_S.COMPLETED, _S.STOPPED, _S.FAILED, _S.CANCELLED})


@value_class(frozen=True, slots=True)
class AcceptedEpoch:
    """One accepted epoch: its result, its state hash, and where and when it was computed."""

    #: The trial's id.
    trial: str
    #: The number of the epoch, from 1.
    epoch: int
    #: The value of the study's metric.
    value: float
    #: All metrics that were reported.
    metrics: Metrics
    #: The hash of the state after the epoch.
    state_hash: str
    #: The numeric signature under which it was computed.
    signature: str
    #: Training time (seconds).
    seconds: float
    #: The device of the first member.
    device: str
    #: The slot of the first member.
    slot: int
    #: The fence of the attempt that computed it.
    fence: int
    #: Time at which it was accepted (the runner's clock).
    at: float
    #: All members.
    members: tuple[Member, ...] = ()
    #: The trial's part of the energy that its devices used (joules); None if not measured.
    joules: float | None = None
    #: The system configuration that it was trained with.
    system: SystemConfig = ()
    #: For the first epoch of a segment: the segment's planned length, and the reason for it.
    length: SegmentLength | None = None
    #: When the epoch began (the runner's clock), if the trial shared a lane: ``seconds`` then count
    #: only its turns. None if the trial had all of the time.
    began: float | None = None
    #: The trial that trained the epoch, if the epoch was taken over; else empty.
    taken_from: str = ""

    @property
    def begin(self) -> float:
        """Time at which it began (the runner's clock)."""
        return self.at - self.seconds if self.began is None else self.began


#: The kind of failure of a trial whose user told that it failed, and the message of a trial that
#: had already failed when its user added it.
TOLD, ADDED = "told", "it was added so"


@dataclass(frozen=True, slots=True)
class Failure:
    kind: str
    message: str
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class Origin:
    """The state from which a forked trial continues: that of ``trial`` after ``epoch``."""

    trial: str
    epoch: int
    #: The trial whose place the forked trial takes in its population (``pbt``); empty for a branch,
    #: which a user made.
    replaces: str = ""
    #: The number of the trial whose random numbers the forked trial draws; None if it draws its
    #: own.
    keys: int | None = None


@dataclass(slots=True)
class Trial:
    """The engine's record of a trial.

    A forked trial starts after the epoch of its ``origin``. Earlier epochs belong to the trial that
    its origin names.
    """

    #: The trial's id, made of its study's id and its number (``study.trial_id``).
    id: str
    #: The id of its study.
    study: str
    #: Its number in the study, from 0.
    number: int
    #: Its configuration.
    params: Params
    #: Time at which it was proposed (the runner's clock).
    created_at: float
    #: Its state.
    state: TrialState = TrialState.PROPOSED
    #: The epoch that it is to reach.
    target: int = 0
    #: The last accepted epoch; before the first one, the epoch of its origin, or 0.
    epoch: int = 0
    #: The study's metric at the last accepted epoch, or the value that its objective returned; None
    #: if it has neither.
    value: float | None = None
    #: The numeric signature of the last accepted epoch; empty before the first one.
    signature: str = ""
    #: The fence of its open attempt; 0 if it has none.
    fence: int = 0
    #: Members of its current or last segment.
    members: tuple[Member, ...] = ()
    #: The identity of the trainer that has the trial's state after ``epoch`` in memory
    #: (``tasks.gangs.peers``); empty if none is known.
    holder: str = ""
    #: Number of failures of its code since the last accepted epoch.
    failures: int = 0
    #: Number of losses of its attempts since the last accepted epoch.
    losses: int = 0
    #: The failure that ended the trial; None if it has not failed.
    failure: Failure | None = None
    #: When it reached a final state (the runner's clock); None if it has not.
    finished_at: float | None = None
    #: Its durable states, newest first.
    parents: tuple[Parent, ...] = ()
    #: The study's metric by epoch.
    values: dict[int, float] = field(default_factory=dict)
    #: The accepted state hash by epoch.
    hashes: dict[int, str] = field(default_factory=dict)
    #: Time at which it last began to wait (the runner's clock).
    since: float = 0.0
    #: Time at which its last segment was dispatched (the runner's clock); None before the first.
    dispatched_at: float | None = None
    #: The state from which a forked trial continues; None for any other trial.
    origin: Origin | None = None
    #: Its last steps in words, for error messages.
    story: list[str] = field(default_factory=list)
    #: True if the user enqueued its configuration.
    enqueued: bool = False
    #: The latest values of the study's other objectives.
    further: tuple[float, ...] = ()
    #: The amount by which the trial violates each constraint; 0 or less if the constraint holds.
    constraints: Metrics = ()
    #: The sampler's own data about the trial (JSON).
    notes: str = ""
    #: Its accepted draws, if its sampler runs in the objective's process. Empty once the trial has
    #: ended, except for a trial that failed before any trial succeeded (``early_failure``).
    suggestions: tuple[Suggestion, ...] = ()
    #: The system configuration that it runs with.
    system: SystemConfig = ()
    #: The system configuration of its last accepted epoch.
    trained_with: SystemConfig = ()

    @property
    def feasible(self) -> bool:
        """True if the trial violates no constraint."""
        return all(excess <= 0 for _, excess in self.constraints)

    @property
    def state_hash(self) -> str:
        """The state hash after the last accepted epoch; empty before the first own epoch."""
        return self.hashes.get(self.epoch, "")

    @property
    def begin(self) -> int:
        """The epoch after which the trial starts: 0, or the epoch of its origin."""
        return 0 if self.origin is None else self.origin.epoch

    @property
    def branched(self) -> bool:
        """True if a user made this trial from another trial, so its strategy does not know it."""
        return self.origin is not None and not self.origin.replaces

    @property
    def begun(self) -> bool:
        """True if a segment of the trial was dispatched, or if it took over any epoch."""
        return self.dispatched_at is not None or self.epoch > self.begin

    @property
    def device(self) -> str:
        return self.members[0].device if self.members else ""

    @property
    def slot(self) -> int:
        return self.members[0].slot if self.members else 0

    def step(self, step: Step) -> None:
        """Move the trial to the state that ``TRANSITIONS`` gives for this step.

        Raises ``IllegalTransition``, and changes nothing, if the table has no such step from the
        trial's state.
        """
        try:
            self.state = TRANSITIONS[self.state, step]
        except KeyError:
            story = "; ".join(self.story) or "none yet"
            raise IllegalTransition(
                f"trial {self.id} is {self.state} and cannot {step}. Its story: {story}"
            ) from None
