"""The engine's whole state as plain values, so that a snapshot of it is one JSON text."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...profiling.costs.failure_rate import FaultTable
from ...profiling.costs.interference import SharingTable
from ...profiling.costs.outcomes import Tally
from ...profiling.costs.table import CostTable
from ...profiling.devices.device import Device
from ..model.decisions import Ask, AskPlan, Parent, Segment
from ..model.snapshot import Course
from ..model.study import Params, StudyRecord, StudySpec
from ..model.trial import AcceptedEpoch, Trial
from ..strategies.asha import Asha
from ..strategies.full import FullBudget
from ..strategies.halving import SuccessiveHalving
from ..strategies.hyperband import Hyperband
from ..strategies.pasha import Pasha
from ..strategies.pbt import Pbt
from ..strategies.stopping import Stopping
from .encoding import features_of
from .workloads import Tuned

#: Fences of an era. A ledger that was restored begins the era of its second (since 1970), so one
#: that is restored twice from one backup begins another one each time. Below 2**53, as Lua counts.
ERA = 1_000_000


@dataclass(slots=True)
class StudyState:
    """A study at work. ``active`` counts its trials that wait or run; ``asks`` are unanswered.

    ``refused`` are devices that cannot work for it, and why. ``signature`` is the machine's part of
    its numeric signature, empty before the first epoch; ``machines`` those of the devices that were
    seen to compute (``numerics``).
    ``best`` are its best completed trials, whose last states are kept; ``undurable`` says by trial
    why its last checkpoint could not be written. ``held_back`` trials are run by a strategy of
    their own when this one has no more to do (``extending``).
    Beside other studies at work ``share`` is how many slots it may have; ``due`` is the integral of
    that, and ``used`` what its closed attempts have had (slot-seconds; ``sharing``). ``rule`` and
    ``deadline`` are those of its own standing plan then.
    """

    spec: StudySpec
    strategy: FullBudget | SuccessiveHalving | Asha | Pasha | Hyperband | Stopping | Pbt
    created_at: float
    status: str = "running"
    finished_at: float | None = None
    message: str = ""
    trials: list[str] = field(default_factory=list)
    enqueued: list[Params] = field(default_factory=list)
    asks: dict[int, Ask] = field(default_factory=dict)
    next_ask: int = 0
    active: int = 0
    succeeded: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    signature: str = ""
    machines: dict[str, str] = field(default_factory=dict)
    best: list[str] = field(default_factory=list)
    undurable: dict[str, str] = field(default_factory=dict)
    held_back: int = 0
    share: float | None = None
    due: float = 0.0
    used: float = 0.0
    rule: str = ""
    deadline: float = 0.0

    @property
    def works(self) -> bool:
        """Whether segments of it may be sent."""
        return self.status == "running" and self.spec.contract != "ask"

    @property
    def record(self) -> StudyRecord:
        words = [self.message] if self.message else []
        if self.undurable:
            trials = "1 trial" if len(self.undurable) == 1 else f"{len(self.undurable)} trials"
            reason = next(reversed(self.undurable.values()))
            words.append(f"the newest checkpoint of {trials} could not be written: {reason}")
        return StudyRecord(
            self.spec, self.status, self.created_at, self.finished_at, "; ".join(words)
        )


@dataclass(slots=True)
class EndedTrial:
    """One of the best trials of a study that is over: its last epoch, and what is durable."""

    epoch: int
    state_hash: str
    parents: tuple[Parent, ...]


@dataclass(slots=True)
class DeviceState:
    """A joined device; ``fences`` holds, slot by slot, the fence at work there or 0.

    ``backoff_until`` is when it may be used again after losses in a row, 0 while it may.
    Of a device with several slots ``at_work`` are its trials, unchanged ``since`` (the runner's
    clock); of the ``cold`` ones no epoch was accepted there yet.
    """

    device: Device
    incarnation: str
    fences: list[int]
    draining: bool = False
    losses: int = 0
    backoff_until: float = 0.0
    at_work: list[str] = field(default_factory=list)
    since: float = 0.0
    cold: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DeviceRecord:
    """A device as readers see it, since ``at`` (seconds, the runner's clock).

    ``state`` is one of ``joined``; ``resting`` (after losses in a row); ``draining`` (what runs
    there ends its epoch) and ``drained`` (nothing does); ``left``; ``held`` (it left, and stays
    drained should it come back). ``reason`` says why it rests or left.
    """

    device: Device
    incarnation: str
    state: str
    at: float
    reason: str = ""

    @property
    def gone(self) -> bool:
        return self.state in ("left", "held")


@dataclass(slots=True)
class Hold:
    """The operator's drain of a device. It outlasts the device's worker, and its absence.

    ``deadline`` is when what still runs there is revoked, None: not at all. ``gone`` is the record
    of a device that left meanwhile.
    """

    deadline: float | None = None
    gone: DeviceRecord | None = None


@dataclass(slots=True)
class Attempt:
    """An open segment: dispatched under ``decision`` at ``dispatched_at``, not closed yet.

    ``began`` is when its present epoch did, as far as is known; ``resized``: on other devices than
    the segment before. ``cut``: it was asked to close at the end of its epoch. ``leaves``: its
    trial then makes room for those that it shares its device with.
    """

    decision: str
    study: str
    segment: Segment
    dispatched_at: float
    trained: float = 0.0
    began: float = 0.0
    resized: bool = False
    cut: bool = False
    leaves: bool = False


@dataclass(slots=True)
class EngineState:
    """Everything the engine knows.

    ``finished`` are the names of studies that are over; ``ended`` the best trials of the last
    few of them: what is needed to check a report of a durable state that comes late. ``held`` are
    the devices that the operator took out, joined or not. Of the standing plan: ``ready`` are
    waiting trials in its order, ``widths`` what it gives each trial (1 where nothing is said),
    ``shuffle``, ``patient``, ``courses``, ``rule`` and ``deadline`` as in ``Plan``. ``plan_error``
    says how the policy failed where it last did. ``tuned`` are the workloads whose system
    parameters are known. ``plan_asked`` is unanswered; until ``aside_until`` the policy is not
    asked. Shares were last worked out at ``shared_at``.
    """

    seq: int = 0
    fence: int = 0
    policy: str = "fifo"
    studies: dict[str, StudyState] = field(default_factory=dict)
    finished: dict[str, str] = field(default_factory=dict)
    ended: dict[str, dict[str, EndedTrial]] = field(default_factory=dict)
    trials: dict[str, Trial] = field(default_factory=dict)
    attempts: dict[int, Attempt] = field(default_factory=dict)
    devices: dict[str, DeviceState] = field(default_factory=dict)
    held: dict[str, Hold] = field(default_factory=dict)
    ready: list[str] = field(default_factory=list)
    widths: dict[str, int] = field(default_factory=dict)
    shuffle: bool = False
    patient: bool = False
    courses: dict[str, Course] = field(default_factory=dict)
    rule: str = ""
    deadline: float = 0.0
    plan_error: str = ""
    plan_asked: AskPlan | None = None
    aside_until: float = 0.0
    dirty: bool = False
    planned_at: float | None = None
    shared_at: float | None = None
    costs: CostTable = field(default_factory=CostTable)
    faults: FaultTable = field(default_factory=FaultTable)
    tally: Tally = field(default_factory=Tally)
    tuned: dict[str, Tuned] = field(default_factory=dict)
    sharing: SharingTable = field(default_factory=SharingTable)

    def features(self, trial: Trial) -> tuple[float, ...]:
        """What the cost table tells it apart by: once it has run, what is kept there."""
        own = self.costs.own(trial.study, trial.id)
        if own is not None:
            return own.features
        return features_of(self.studies[trial.study].spec, trial.params)

    def seconds_at(self, trial: Trial, width: int) -> float | None:
        """Expected seconds of an epoch of it on ``width`` devices; None: nothing was measured."""
        return self.costs.seconds_at(trial.study, trial.id, width, self.features(trial))

    def epoch_seconds(self, trial: Trial) -> float | None:
        """Expected seconds of an epoch of it where it last ran; None: nothing was measured.

        On one device where it has not run.
        """
        own = self.costs.own(trial.study, trial.id)
        if own is not None:
            return own.seconds
        return self.costs.expected(trial.study, trial.id, 1, self.features(trial)).level

    def epoch_ends(self, attempt: Attempt) -> float | None:
        """When its present epoch is expected to end (the runner's clock); None if not known."""
        trial = self.trials[attempt.segment.trial]
        seconds = self.seconds_at(trial, len(attempt.segment.members))
        if seconds is None:
            return None
        begun = attempt.began + seconds * self.stretch(attempt)
        just_resized = attempt.resized and attempt.began == attempt.dispatched_at
        return begun + self.costs.resize if just_resized else begun

    def attempts_on(self, device: str) -> list[Attempt]:
        """The attempts at work there, in the order of their dispatch."""
        return [self.attempts[f] for f in sorted({*self.devices[device].fences}) if f]

    def stretch(self, attempt: Attempt) -> float:
        """How many times as long its epochs take for those that share its device; 1: not known."""
        name = attempt.segment.members[0].device
        at_work = len(self.devices[name].at_work)
        if at_work < 2:
            return 1.0
        kind = self.devices[name].device.kind
        return self.sharing.of(attempt.study, kind).stretch(at_work)

    def closed(self, device: str) -> bool:
        """Whether a joined device takes no new segment: its worker drains, or the operator does."""
        return self.devices[device].draining or device in self.held

    def usable(self, device: str) -> bool:
        """Whether segments may be sent there now."""
        return not (self.closed(device) or self.devices[device].backoff_until)

    def is_free(self, device: str) -> bool:
        """Whether all its slots are."""
        return not any(self.devices[device].fences)

    def elastic(self) -> bool:
        """Whether any running study's trials may be wider than one device."""
        return any(study.spec.max_width > 1 for study in self.studies.values())

    def standing(self, device: str) -> str:
        """How a joined device stands: ``DeviceRecord.state``."""
        known = self.devices[device]
        if self.closed(device):
            return "draining" if known.draining or any(known.fences) else "drained"
        return "resting" if known.backoff_until else "joined"


@dataclass(slots=True)
class Changes:
    """What handling events changed since it was last taken: what the projections must follow.

    ``durables`` by (trial, epoch): the state and when it became durable, None where it is let go.
    """

    studies: dict[str, StudyRecord] = field(default_factory=dict)
    trials: dict[str, Trial] = field(default_factory=dict)
    epochs: list[AcceptedEpoch] = field(default_factory=list)
    durables: dict[tuple[str, int], tuple[Parent, float] | None] = field(default_factory=dict)
    devices: dict[str, DeviceRecord] = field(default_factory=dict)
