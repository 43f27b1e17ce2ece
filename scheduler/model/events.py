"""What happened: the only inputs of the engine. The ledger keeps them, and they are the truth.

Every event carries ``at`` (seconds, the runner's clock) and ``cause``: the id of the decision it
answers, empty for what comes from outside. Events are frozen; a wrong one is refused when handled.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...profiling.devices.device import Device
from ...profiling.knobs.knobs import SystemConfig
from .finished import Past, PastTrial
from .snapshot import Plan
from .study import Metrics, Params, Scalar, StudyRecord, StudySpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    at: float
    cause: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChosen(Event):
    """The operator's policy from here on; an event, so that a replay plans as it was planned."""

    policy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRestored(Event):
    """The ledger is an older one again: what was sent since is not known any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned(Event):
    """What a policy of the user's answered to ``AskPlan``: a plan for each snapshot, in order."""

    plans: tuple[Plan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFailed(Event):
    """``policy``, the user's, raised, took too long or gave what is no plan: ``reason`` says it."""

    reason: str
    policy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySubmitted(Event):
    """A study begins; ``enqueued`` configurations of the user are tried before the sampler's."""

    study: StudySpec
    enqueued: tuple[Params, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyCancelled(Event):
    study: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPaused(Event):
    """The study takes no new segment; running ones are cut at the next epoch."""

    study: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyResumed(Event):
    study: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyWeighed(Event):
    """The user has the study share devices by this ``weight`` and ``priority`` from now on."""

    study: str
    weight: float
    priority: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyExtended(Event):
    """The study goes on to more trials: ``study`` is what it is from now on.

    ``past`` is what the engine has forgotten of a study that was over, None for one that is not.
    """

    study: StudySpec
    past: Past | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyFailed(Event):
    """The study cannot go on at all: its sampler raised. ``reason`` is for its user."""

    study: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyImported(Event):
    """A study that is over came here from an export. Nothing of it runs, now or later."""

    record: StudyRecord
    trials: tuple[PastTrial, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEnqueued(Event):
    """The user wants this configuration tried next; missing names are left to the sampler."""

    study: str
    params: Params


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialAsked(Event):
    """The user wants a configuration to train himself: it becomes trial ``number``."""

    study: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialTold(Event):
    """What a trial that was asked for came to; ``value`` None: it failed, ``reason`` says why."""

    trial: str
    value: float | None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyClosed(Event):
    """The user asks for no more trials; those that he was given and told nothing of are over."""

    study: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed(Event):
    """The sampler's answer to ``Ask``: configurations in order; fewer than asked when exhausted.

    ``notes``: what the sampler keeps with each of them (JSON); empty where it keeps nothing.
    """

    study: str
    index: int
    trials: tuple[Params, ...]
    exhausted: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggested(Event):
    """One parameter of a define-by-run trial, drawn while its objective runs."""

    trial: str
    name: str
    value: Scalar
    distribution: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceJoined(Event):
    """A worker serves ``device``; a new ``incarnation`` means a new process, with nothing warm."""

    device: Device
    incarnation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceDraining(Event):
    """The device takes no new segment; running ones are cut at the next epoch."""

    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLeft(Event):
    device: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicesTakenOut(Event):
    """The operator drains devices: they take no new segment until they are given back.

    Running segments are cut at the next epoch. What still runs at ``deadline`` (seconds, the
    runner's clock) is revoked; None: it may end its epoch however long that takes.
    """

    devices: tuple[str, ...]
    deadline: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicesGivenBack(Event):
    """The operator lets devices be used again."""

    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochReported(Event):
    """Epoch ``epoch`` (1-based) ended with these bits. ``closes``: the segment ends with it.

    ``seconds`` is training time of the epoch; ``state_hash`` covers model, optimiser, schedule and
    random state; ``signature`` is the numeric signature it was computed under; ``holder`` the
    trainer that has this state in memory. ``uri``: the state is in the store already, under it.
    ``claimed``: seconds from the claim to this report, by the worker's clock; 0 where not known.
    ``memory``: the most that its trainer has used up to now (bytes), 0 where not known.
    ``joules`` are its part of what its devices drew in that time, None where not measured.
    """

    trial: str
    fence: int
    epoch: int
    metrics: Metrics
    state_hash: str
    signature: str
    seconds: float
    closes: bool
    holder: str = ""
    uri: str = ""
    claimed: float = 0.0
    memory: int = 0
    joules: float | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """Some training steps under ``config`` between others under the default.

    ``ratio`` is seconds a step over the default's there, ``joules`` joules a step likewise (None:
    not measured); ``wasted`` are the seconds that the window and its share of the default's took
    beyond the training itself.
    """

    config: SystemConfig
    ratio: float
    wasted: float
    joules: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowsMeasured(Event):
    """An attempt measured system configurations; ``failed`` are those it could not run, and why."""

    trial: str
    fence: int
    windows: tuple[Window, ...]
    failed: tuple[tuple[SystemConfig, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled(Event):
    """What was counted in an epoch of the trial: rates and ratios (docs/profiling.md).

    What could not be measured is not among them.
    """

    trial: str
    fence: int
    epoch: int
    values: Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Advised(Event):
    """What the history says of a workload: a configuration to try, and why; () where none is."""

    workload: str
    config: SystemConfig
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigsProposed(Event):
    """The answer to ``AskConfigs``: what to try next; none where nothing is left."""

    workload: str
    configs: tuple[SystemConfig, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Durable(Event):
    """The state after ``epoch`` is in the store under ``uri``, whole and synced."""

    trial: str
    epoch: int
    state_hash: str
    uri: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Undurable(Event):
    """A state of the trial could not be written to the store; ``reason`` is for the user."""

    trial: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed(Event):
    """An attempt computes accepted epochs ``first`` to ``last`` again; ``reason``: why so many.

    It changes nothing but counts: the ledger keeps it for the trial's story.
    """

    trial: str
    fence: int
    first: int
    last: int
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialReturned(Event):
    """The objective returned ``value``: the trial has no further epochs.

    ``further`` are the values of the study's other objectives, ``constraints`` what it said of its
    own (above 0: violated). ``pruned``: it raised TrialPruned, and ``value`` is the last that it
    reported. ``unasked``: parameters that its user enqueued and it never asked for. ``left``: how
    many processes that it had started still ran.
    """

    trial: str
    fence: int
    value: float | None
    further: tuple[float, ...] = ()
    constraints: Metrics = ()
    pruned: bool = False
    unasked: tuple[str, ...] = ()
    left: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFailed(Event):
    """The user's code failed. ``kind`` is one of ``scheduler.model.retry.KINDS``.

    ``trying`` is the configuration that was tried in that very step, () where none was.
    """

    trial: str
    fence: int
    kind: str
    message: str
    traceback: str = ""
    trying: SystemConfig = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLost(Event):
    """The infrastructure lost the attempt (lease over, worker gone, message lost).

    ``refused``: the node cannot run this study at all (its copy of the code or its store differs).
    ``ranks`` are the members that it was lost with; empty where that is not known. ``signature``:
    the member computes under it, and the attempt is to be computed under ``expected``.
    """

    trial: str
    fence: int
    reason: str
    refused: bool = False
    ranks: tuple[int, ...] = ()
    signature: str = ""
    expected: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick(Event):
    """Time passed; only sent while something waits for it (``Engine.wake_at``)."""
