"""The engine's whole state as plain values, so that its snapshot is one JSON text."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from ...profiling.costs.failure_rate import FaultTable
from ...profiling.costs.interference import SharingTable
from ...profiling.costs.outcomes import Tally
from ...profiling.costs.segment_costs import PreemptionTable, SegmentStart
from ...profiling.costs.table import CostTable
from ...profiling.devices.device import Device
from ...profiling.knobs.knobs import SystemConfig
from ..model.decisions import Ask, AskPlan, Member, Parent, Segment
from ..model.segment_length import SegmentLength
from ..model.snapshot import WidthPlan, WindowPlan
from ..model.study import NOTHING_SPENT, Params, Spent, StudyRecord, StudySpec
from ..model.trial import AcceptedEpoch, Trial
from ..strategies.full import FullBudget
from ..strategies.registry import AnyStrategy
from .counted import Counted
from .encoding import features_of

#: Number of fences in an era. A restored ledger starts a new era, numbered by the current second
#: since 1970, so two restores from one backup start different eras. Fences stay below 2**53, up to
#: which Lua's numbers are exact.
ERA = 1_000_000


@dataclass(slots=True)
class StudyState:
    """A study that is known to the engine: one that has not ended, or that was reopened."""

    #: The study's current specification.
    spec: StudySpec
    #: Its strategy, with all of the strategy's state.
    strategy: AnyStrategy
    #: Time at which it was submitted (seconds, the runner's clock).
    created_at: float
    #: ``running``, ``paused`` or one of ``OVER``.
    status: str = "running"
    #: When it ended (the runner's clock); None if it has not.
    finished_at: float | None = None
    #: When it last got more trials, continued after its end, or was resumed after early failures
    #: (the runner's clock); 0 before. Trials that ended earlier do not count as early failures.
    extended_at: float = 0.0
    #: Message for its user; empty if there is none.
    message: str = ""
    #: Its trials' ids, by number.
    trials: list[str] = field(default_factory=list)
    #: Configurations from the user that were not sent to the sampler yet.
    enqueued: list[Params] = field(default_factory=list)
    #: Unanswered ``Ask`` decisions, by index.
    asks: dict[int, Ask] = field(default_factory=dict)
    #: The index of the next ``Ask``.
    next_ask: int = 0
    #: The number of its trials that are proposed, waiting or running.
    active: int = 0
    #: The number of times that a trial reached its target, completed or was pruned.
    succeeded: int = 0
    #: Devices that cannot work for it, each with the reason.
    refused: dict[str, str] = field(default_factory=dict)
    #: The machine's part of its numeric signature; empty before the first epoch.
    signature: str = ""
    #: The system configuration that all its trials have, except for knobs that do not change bits
    #: (``StudySpec.system_fixed``); None if it is not chosen yet.
    system: SystemConfig | None = None
    #: The machines' parts of the signatures of devices that computed for it or were refused, by
    #: device (``scheduler.engine.signatures``).
    machines: dict[str, str] = field(default_factory=dict)
    #: Its best completed trials, whose last states are kept.
    best: list[str] = field(default_factory=list)
    #: Trials whose newest state could not be written to the store, each with the reason.
    undurable: dict[str, str] = field(default_factory=dict)
    #: Number of trials that were added when the study was extended, and that wait for a strategy of
    #: their own, which begins when the present one is done (``scheduler.engine.lifecycle``).
    held_back: int = 0
    #: The number of slots that it may use among other studies (``scheduler.resources.fair_share``);
    #: None if no shares apply to it.
    share: float | None = None
    #: The slot-seconds due to it: the integral of ``share`` over time, less its part of the time in
    #: which slots were idle.
    due: float = 0.0
    #: Slot time of its closed attempts (slot-seconds).
    used: float = 0.0
    #: Trials that users enqueued, which run next (``scheduler.engine.user_trials``).
    waiting: list[str] = field(default_factory=list)
    #: Trials that users train by themselves (``scheduler.engine.user_trials``).
    handed_out: list[str] = field(default_factory=list)
    #: The trial that each call of an objective has added, by the call's id (``TrialAdded.call``).
    calls: dict[str, str] = field(default_factory=dict)
    #: Device time, energy and money that it has used (``scheduler.state.spending``).
    spent: Spent = NOTHING_SPENT
    #: The ended trials whose callbacks were not called yet. Callbacks may stop the study. None if
    #: no script calls callbacks for the study's trials.
    unheard: list[str] | None = None
    #: The one trial that may still train to its target after the study has reached a limit at which
    #: it ends; empty if there is none. None if no such limit was reached.
    finishes: str | None = None
    #: The extensions that the study has needed since it began.
    needs: list[str] = field(default_factory=list)
    #: Needed extensions that are missing or broken, each with the reason in words. They are not
    #: called for the study.
    lacks: dict[str, str] = field(default_factory=dict)
    #: Trials that an extension keeps out of the queue, each with the reason in words.
    withheld: dict[str, str] = field(default_factory=dict)

    @property
    def at_work(self) -> int:
        """The number of the strategy's trials that are proposed, waiting or running.

        Trials that users enqueued (``waiting``) or train by themselves (``handed_out``) are left
        out.
        """
        return self.active - len(self.waiting) - len(self.handed_out)

    @property
    def to_come(self) -> int:
        """The number of new trials for which its sampler was asked and has not answered yet."""
        return sum(ask.n for ask in self.asks.values() if not ask.resampled)

    @property
    def heard(self) -> bool:
        """True if a script calls callbacks for its trials."""
        return self.unheard is not None

    @property
    def ending(self) -> bool:
        """True if the study has reached a limit at which it ends."""
        return self.finishes is not None

    def count_trials(self, n: int) -> None:
        """Count ``n`` more trials of the study that do not come from its strategy."""
        assert isinstance(self.strategy, FullBudget)
        self.strategy.asked += n
        self.strategy.n_trials += n
        self.spec = replace(self.spec, n_trials=self.strategy.n_trials)

    def ends(self, trial: Trial) -> bool:
        """Return True if the trial may not be trained any more, as its study reached a limit."""
        return self.finishes is not None and trial.id != self.finishes

    @property
    def runnable(self) -> bool:
        """True if segments of the study may be sent."""
        return self.status == "running" and self.spec.contract != "ask" and not self.lacks

    @property
    def record(self) -> StudyRecord:
        messages = [self.message] if self.message else []
        messages += dict.fromkeys(self.lacks.values())
        if self.undurable:
            trials = "1 trial" if len(self.undurable) == 1 else f"{len(self.undurable)} trials"
            reason = next(reversed(self.undurable.values()))
            messages.append(f"the newest checkpoint of {trials} could not be written: {reason}")
        return StudyRecord(
            self.spec,
            "paused" if self.lacks and self.status == "running" else self.status,
            self.created_at,
            self.finished_at,
            "; ".join(messages),
            self.spent,
        )


@dataclass(slots=True)
class EndedTrial:
    """One of the best trials of a study that has ended: its last epoch, and its durable states."""

    epoch: int
    state_hash: str
    parents: tuple[Parent, ...]


@dataclass(slots=True)
class DeviceState:
    """A device that has joined."""

    #: The device as its worker announced it.
    device: Device
    #: The id of the worker process that serves the device.
    incarnation: str
    #: The fence of the attempt in each slot; 0 if the slot is free.
    fences: list[int]
    #: True if its worker takes no new segment.
    draining: bool = False
    #: The machine's part of the signature under which the device last computed in the worker's own
    #: environment; empty before its first epoch there.
    machine: str = ""
    #: Number of attempts lost on it since the last accepted epoch.
    losses: int = 0
    #: Time until which the device may not be used, after losses in a row (the runner's clock); 0 if
    #: it may be used.
    backoff_until: float = 0.0
    #: The trials at work on the device, if it has several slots.
    at_work: list[str] = field(default_factory=list)
    #: Time of the last change of ``at_work`` (the runner's clock), or of ``in_use`` if lanes have
    #: several seats.
    since: float = 0.0
    #: Trials in ``at_work`` that have no accepted epoch on this device yet.
    cold: list[str] = field(default_factory=list)
    #: The lanes with residents, if lanes have several seats.
    in_use: list[int] = field(default_factory=list)

    def lanes_in_use(self) -> list[int]:
        """Return the numbers of the lanes with residents. A lane with one seat is a slot."""
        if self.device.seats == 1:
            return [slot for slot, fence in enumerate(self.fences) if fence]
        lane = self.device.lane
        return sorted({lane(slot) for slot, fence in enumerate(self.fences) if fence})

    def seats_of(self, lane: int) -> range:
        """Return the slots that are the seats of ``lane``."""
        return range(lane * self.device.seats, (lane + 1) * self.device.seats)


@dataclass(frozen=True, slots=True)
class DeviceRecord:
    """A device as readers of the ledger see it, since ``at`` (seconds, the runner's clock).

    ``state`` is one of:

    - ``joined``: it may be used;
    - ``resting``: it may not be used for a while, after losses in a row;
    - ``draining``: it takes no new segment, and running segments end their epoch;
    - ``drained``: the same, and nothing runs on it any more;
    - ``left``: its worker serves it no more;
    - ``held``: it left while an operator drained it, and is drained if it comes back.

    ``reason`` says why it rests or left.
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
class Drain:
    """An operator's drain of a device. It stays in force if the device leaves and comes back.

    Attempts that still run on the device at ``deadline`` (the runner's clock) are revoked; if it is
    None, none is. ``gone`` is the record of the device if it has left since.
    """

    deadline: float | None = None
    gone: DeviceRecord | None = None


@dataclass(slots=True)
class Attempt:
    """One dispatch of a segment, until it is closed."""

    #: The id of the decision that dispatched it.
    decision: str
    #: The id of its study.
    study: str
    #: The epochs to train, and the members that train them.
    segment: Segment
    #: Time at which it was dispatched (the runner's clock).
    dispatched_at: float
    #: Training time of its accepted epochs (seconds).
    trained: float = 0.0
    #: When the last epoch was accepted, or else when it was dispatched (the runner's clock). Its
    #: current epoch is assumed to have begun then.
    began: float = 0.0
    #: True if the trial's previous segment had another number of devices.
    resized: bool = False
    #: True if it was told to close at the end of its current epoch.
    cut: bool = False
    #: True if it measures widths and continues even if other trials wait for its devices.
    lasts: bool = False
    #: True if the trial leaves its slot at the end of its current epoch, because too many trials
    #: share the device or another device is empty.
    leaves: bool = False
    #: True if it has all turns of its lane for now (``SegmentValues.undivided``).
    undivided: bool = False
    #: Kind of its start.
    start: SegmentStart = SegmentStart.NEW
    #: Seconds between its first and its last accepted epoch that were not training.
    between: float = 0.0
    #: The number of epochs chosen for it, and the reason; None if it measures widths.
    length: SegmentLength | None = None
    #: Seconds of its slot time that are already in its study's ``spent``.
    charged: float = 0.0
    #: The part of its slot's or lane's time that it has now, from 0 to 1, by estimate
    #: (``scheduler.state.slot_time``).
    part: float = 1.0
    #: The slot time that it has had until ``counted_at`` (seconds), by estimate.
    in_turn: float = 0.0
    #: Time until which ``in_turn`` is counted (the runner's clock); None if it does not share a
    #: lane, so that it has all of its slot's time.
    counted_at: float | None = None
    #: The value of ``in_turn`` when its current epoch began.
    epoch_from: float = 0.0
    #: True if it has ever shared its lane with another trial.
    accompanied: bool = False
    #: The number of the last message with its objective's writings (``TrialWritten.number``).
    writings: int = 0


@dataclass(slots=True)
class Waits:
    """The waiting time and device time of a trial.

    They are counted only while the policy orders the trials of all studies.
    """

    #: Time at which it joined the queue (the runner's clock); None if it is not in the queue.
    queued_at: float | None = None
    #: Seconds that it waited before ``queued_at``, since it last got a target.
    waited: float = 0.0
    #: The device time of its accepted epochs (device-seconds).
    service: float = 0.0


@dataclass(slots=True)
class PastWindows:
    """The width windows that a study has had."""

    #: The number of windows in a row that found no gain or were lost. If the code fails in a
    #: window, it is set so high that the study gets no further windows.
    vain: int = 0
    #: The widest width of the last window that is not counted in ``cut``, by trial.
    widest: dict[str, int] = field(default_factory=dict)
    #: The number of windows that were cut before they had measured two widths, by trial.
    cut: dict[str, int] = field(default_factory=dict)


_NO_WAITS, _NO_WINDOWS = Waits(), PastWindows()


@dataclass(slots=True)
class EngineState:
    """The engine's whole state."""

    #: The number of events that were handled.
    seq: int = 0
    #: The highest fence given out.
    fence: int = 0
    #: The name of the policy.
    policy: str = "fifo"
    #: True if the policy orders the trials of all studies, so that no shares apply.
    cross_study: bool = False
    #: True once an event has set ``PolicyChosen.fill_at_end``.
    fill_at_end: bool = False
    #: True once an event has set ``PolicyChosen.keep_failed``.
    keep_failed: bool = False
    #: True once an event has set ``PolicyChosen.keep_widths``.
    keep_widths: bool = False
    #: Studies that have not ended or were reopened, by id.
    studies: dict[str, StudyState] = field(default_factory=dict)
    #: Names of all other studies, which have ended, by id; ``DELETED`` for a deleted study.
    finished: dict[str, str] = field(default_factory=dict)
    #: The best trials of the studies that ended last, by study and trial. Late reports of durable
    #: states are checked against them.
    ended: dict[str, dict[str, EndedTrial]] = field(default_factory=dict)
    #: Trials of the studies in ``studies``, by id.
    trials: dict[str, Trial] = field(default_factory=dict)
    #: Open attempts, by fence.
    attempts: dict[int, Attempt] = field(default_factory=dict)
    #: Devices that have joined, by name.
    devices: dict[str, DeviceState] = field(default_factory=dict)
    #: The operator's drains, by the device's name. A drained device may have left.
    held: dict[str, Drain] = field(default_factory=dict)
    #: The queue: waiting trials in the order of the standing plan.
    ready: list[str] = field(default_factory=list)
    #: The width that the standing plan gives each trial; 1 for a trial that is absent.
    widths: dict[str, int] = field(default_factory=dict)
    #: ``Plan.patient`` of the standing plan.
    patient: bool = False
    #: The width plans of the standing plan, by trial (``Plan.courses``).
    courses: dict[str, WidthPlan] = field(default_factory=dict)
    #: The width windows of the standing plan, by trial (``Plan.windows``).
    windows: dict[str, WindowPlan] = field(default_factory=dict)
    #: The past width windows, by study. Studies without any are left out.
    past_windows: dict[str, PastWindows] = field(default_factory=dict)
    #: Waiting times, by trial. They are counted only under a policy that orders all studies'
    #: trials.
    waits: dict[str, Waits] = field(default_factory=dict)
    #: The number of times that a later trial got a slot of a shared device while a trial found no
    #: room, by the trial that waits for room.
    passed: dict[str, int] = field(default_factory=dict)
    #: ``Plan.rule`` of the standing plan.
    rule: str = ""
    #: ``Plan.deadline`` of the standing plan (the runner's clock).
    deadline: float = 0.0
    #: (``Plan.rule``, ``Plan.deadline``) of the standing plan of each study with a share, by study.
    own_rules: dict[str, tuple[str, float]] = field(default_factory=dict)
    #: ``Plan.hold`` of the standing plan.
    hold: list[str] = field(default_factory=list)
    #: ``Plan.packed`` of the standing plan.
    packed: bool = False
    #: ``Plan.until`` of the standing plan (the runner's clock).
    plan_until: float = math.inf
    #: The reason why the policy's last plan is not used; empty if it is used.
    plan_error: str = ""
    #: The unanswered question to a user's policy; None if there is none.
    plan_asked: AskPlan | None = None
    #: Time until which a user's policy that failed is not asked (the runner's clock).
    aside_until: float = 0.0
    #: True if the input of the standing plan has changed since the plan was made.
    dirty: bool = False
    #: When the last plan was made (the runner's clock); None if the next plan is due at once.
    planned_at: float | None = None
    #: Time at which shares were last computed (the runner's clock); None if fewer than two studies
    #: are at work.
    shared_at: float | None = None
    #: Costs of epochs, by study, trial and width.
    costs: CostTable = field(default_factory=CostTable)
    #: Rates at which attempts are lost.
    faults: FaultTable = field(default_factory=FaultTable)
    #: Rate at which slots are preempted.
    preemptions: PreemptionTable = field(default_factory=PreemptionTable)
    #: Counts of epochs by outcome, and times of training and of starts.
    tally: Tally = field(default_factory=Tally)
    #: Slowdowns of trials that share a device.
    sharing: SharingTable = field(default_factory=SharingTable)
    #: The price of a device-hour, by kind of device.
    prices: dict[str, float] = field(default_factory=dict)
    #: State of extensions, by their names (``scheduler.state.extensions``).
    ext: dict[str, Any] = field(default_factory=dict)

    def features(self, trial: Trial) -> tuple[float, ...]:
        """Return the numbers that describe the trial to the cost table.

        For a trial that has been measured, these are the numbers that the table already has.
        """
        own = self.costs.own(trial.study, trial.id)
        if own is not None:
            return own.features
        return self.features_of(trial)

    def features_of(self, trial: Trial) -> tuple[float, ...]:
        """Return the numbers that distinguish the trial from other trials of its study.

        They come from its parameters (``encoding.features_of``) and, if an extension has given the
        cost table better numbers in place of some parameters, from those.
        """
        study, better = self.studies[trial.study], self.costs.features.get(trial.study)
        if better is None:
            return features_of(study.spec, trial.params)
        own = features_of(study.spec, trial.params, better.instead_of)
        return (*better.trials.get(trial.id, better.mean), *own)

    def counted(self, trial: Trial) -> Counted | None:
        """Return the counts of the trial's model before training; None if no extension has them."""
        for extension_state in self.ext.values():
            if (count := getattr(extension_state, "counted", None)) is not None:
                counts: Counted | None = count(self.studies[trial.study].spec, trial)
                return counts
        return None

    def waits_of(self, trial: str) -> Waits:
        """Return the waits of a trial. Do not change the result."""
        return self.waits.get(trial, _NO_WAITS)

    def windows_of(self, study: str) -> PastWindows:
        """Return the width windows that a study has had. Do not change the result."""
        return self.past_windows.get(study, _NO_WINDOWS)

    def seconds_at(self, trial: Trial, width: int) -> float | None:
        """Return the expected seconds of an epoch of the trial on ``width`` devices, or None.

        None means that no epoch of the study was measured.
        """
        return self.costs.seconds_at(trial.study, trial.id, width, self.features(trial))

    def epoch_seconds(self, trial: Trial) -> float | None:
        """Return the expected seconds of an epoch of the trial at its last width.

        For a trial that was not measured, return the seconds on one device; None if no epoch of its
        study was measured.
        """
        own = self.costs.own(trial.study, trial.id)
        if own is not None:
            return own.seconds
        return self.costs.expected(trial.study, trial.id, 1, self.features(trial)).level

    def attempts_on(self, device: str) -> list[Attempt]:
        """Return the open attempts on a device, in the order of their dispatch."""
        return [self.attempts[f] for f in sorted({*self.devices[device].fences}) if f]

    def residents(self, device: DeviceState, lane: int) -> list[Attempt]:
        """Return the open attempts in the seats of a lane, in the order of their dispatch."""
        fences = {device.fences[slot] for slot in device.seats_of(lane)}
        return [self.attempts[fence] for fence in sorted(fences) if fence]

    def is_beside(self, slot: Member) -> bool:
        """Return True if a slot is a seat in a lane that has residents."""
        device = self.devices[slot.device]
        return device.device.seats > 1 and any(
            device.fences[each] for each in device.seats_of(device.device.lane(slot.slot))
        )

    def slowdown(self, attempt: Attempt) -> float:
        """Return the factor by which other trials on its device slow the attempt's steps down.

        It is 1 if the attempt is a gang or alone. Trials in the same lane take turns, so they do
        not count.
        """
        name = attempt.segment.members[0].device
        device = self.devices[name]
        shared = device.device.seats > 1
        at_work = len(device.lanes_in_use() if shared else device.at_work)
        if at_work < 2 or len(attempt.segment.members) > 1:
            return 1.0
        kind = self.devices[name].device.kind
        return self.sharing.of(attempt.study, kind).slowdown(at_work)

    def cordoned(self, device: str) -> bool:
        """Return True if a joined device is drained, by its worker or by the operator."""
        return self.devices[device].draining or device in self.held

    def usable(self, device: str) -> bool:
        """Return True if segments may be sent to a joined device now."""
        return not (self.cordoned(device) or self.devices[device].backoff_until)

    def is_free(self, device: str) -> bool:
        """Return True if all slots of a joined device are free."""
        return not any(self.devices[device].fences)

    def elastic(self) -> bool:
        """Return True if any study in ``studies`` allows trials wider than one device."""
        return any(study.spec.max_width > 1 for study in self.studies.values())

    def device_status(self, device: str) -> str:
        """Return the state of a joined device, as in ``DeviceRecord.state``."""
        state = self.devices[device]
        if self.cordoned(device):
            return "draining" if state.draining or any(state.fences) else "drained"
        return "resting" if state.backoff_until else "joined"


@dataclass(slots=True)
class Changes:
    """Changes since the last ``Core.take_changes``, which the ledger writes to its readers' tables.

    ``durables`` has, by (trial, epoch), the durable state and the time when it became durable; None
    if the state was discarded.
    """

    studies: dict[str, StudyRecord] = field(default_factory=dict)
    trials: dict[str, Trial] = field(default_factory=dict)
    epochs: list[AcceptedEpoch] = field(default_factory=list)
    durables: dict[tuple[str, int], tuple[Parent, float] | None] = field(default_factory=dict)
    devices: dict[str, DeviceRecord] = field(default_factory=dict)
