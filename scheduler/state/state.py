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

#: Number of fences in an era. A restored ledger starts the era numbered by the current second
#: (since 1970), so two restores from one backup start different eras. Fences stay below 2**53, as
#: Lua counts.
ERA = 1_000_000


@dataclass(slots=True)
class StudyState:
    """A study that has not ended."""

    #: The study's current specification.
    spec: StudySpec
    #: Its strategy, with all of the strategy's state.
    strategy: AnyStrategy
    #: Time at which it was submitted (seconds, the runner's clock).
    created_at: float
    #: ``running``, ``paused`` or one of ``OVER``.
    status: str = "running"
    #: Time at which it ended (the runner's clock); None before.
    finished_at: float | None = None
    #: Time at which it was last given more trials (the runner's clock); 0 if it was not.
    extended_at: float = 0.0
    #: Message for its user; empty if there is none.
    message: str = ""
    #: Its trials' ids, by number.
    trials: list[str] = field(default_factory=list)
    #: Configurations from the user for which the sampler was not asked yet.
    enqueued: list[Params] = field(default_factory=list)
    #: Unanswered asks, by index.
    asks: dict[int, Ask] = field(default_factory=dict)
    #: The index of the next ask.
    next_ask: int = 0
    #: The number of its trials that are proposed, waiting or running.
    active: int = 0
    #: The number of times a trial reached its target or ended well.
    succeeded: int = 0
    #: Devices that cannot work for it, each with the reason.
    refused: dict[str, str] = field(default_factory=dict)
    #: The machine's part of its numeric signature; empty before the first epoch.
    signature: str = ""
    #: The system configuration that all trials have in common, except for exact knobs
    #: (``StudySpec.system_fixed``); None if it is not chosen yet.
    system: SystemConfig | None = None
    #: The signatures of devices that computed for it or were refused
    #: (``scheduler.engine.signatures``).
    machines: dict[str, str] = field(default_factory=dict)
    #: Its best completed trials, whose last states are kept.
    best: list[str] = field(default_factory=list)
    #: Reason why the last checkpoint of a trial could not be written, by trial.
    undurable: dict[str, str] = field(default_factory=dict)
    #: Number of trials that were added when the study was extended, and that a separate strategy
    #: runs when the present one is done (``scheduler.engine.lifecycle``).
    held_back: int = 0
    #: The number of slots it may have while other studies share the devices
    #: (``scheduler.resources.fair_share``); None if it is alone.
    share: float | None = None
    #: The integral of ``share`` over time (slot-seconds).
    due: float = 0.0
    #: Slot time of its closed attempts (slot-seconds).
    used: float = 0.0
    #: Trials that users enqueued, which run next (``scheduler.engine.user_trials``).
    waiting: list[str] = field(default_factory=list)
    #: Trials that users train by themselves (``scheduler.engine.user_trials``).
    handed_out: list[str] = field(default_factory=list)
    #: The trial that each call of an objective has added, by call (``TrialAdded.call``).
    calls: dict[str, str] = field(default_factory=dict)
    #: Device time, energy and money that it has used (``scheduler.state.spending``).
    spent: Spent = NOTHING_SPENT
    #: The ended trials whose callbacks were not called yet. Callbacks may stop the study. None: no
    #: script calls callbacks for the study's trials.
    unheard: list[str] | None = None
    #: After the study has reached a limit at which it ends: the one trial that still continues to
    #: its target, or empty if none does. None if no such limit was reached.
    finishes: str | None = None
    #: The extensions that the study has needed since it began.
    needs: list[str] = field(default_factory=list)
    #: Needed extensions that are missing or broken, each with the reason in words. They are not
    #: called.
    lacks: dict[str, str] = field(default_factory=dict)
    #: Trials that stay out of the queue until an extension lets them in, each with the reason in
    #: words.
    withheld: dict[str, str] = field(default_factory=dict)

    @property
    def at_work(self) -> int:
        """The number of trials that are proposed, waiting or running, without those of users.

        Trials that users enqueued (``waiting``) or train (``handed_out``) are left out.
        """
        return self.active - len(self.waiting) - len(self.handed_out)

    @property
    def to_come(self) -> int:
        """The number of trials that its sampler was asked for and that do not exist yet."""
        return sum(ask.n for ask in self.asks.values() if not ask.resampled)

    @property
    def heard(self) -> bool:
        """True if a script calls callbacks for its trials."""
        return self.unheard is not None

    @property
    def ending(self) -> bool:
        """True once the study has reached a limit at which it ends."""
        return self.finishes is not None

    def count_trials(self, n: int) -> None:
        """Count ``n`` more trials that the strategy is not asked for."""
        assert isinstance(self.strategy, FullBudget)
        self.strategy.asked += n
        self.strategy.n_trials += n
        self.spec = replace(self.spec, n_trials=self.strategy.n_trials)

    def ends(self, trial: Trial) -> bool:
        """Return True if the trial is trained no more because its study has reached a limit."""
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
    """One of the best trials of an ended study: its last epoch, and its durable states."""

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
    #: The fence at work in each slot; 0 if there is none.
    fences: list[int]
    #: True if its worker takes no new segment.
    draining: bool = False
    #: The machine's part of the signature that the device last computed under, in the worker's
    #: environment; empty before its first epoch.
    machine: str = ""
    #: Losses of attempts in a row.
    losses: int = 0
    #: Time before which the device may not be used, after losses in a row (the runner's clock); 0
    #: if it may be used.
    backoff_until: float = 0.0
    #: The trials at work on the device, if it has several slots.
    at_work: list[str] = field(default_factory=list)
    #: Time of the last change of ``at_work`` (the runner's clock). If lanes have several seats:
    #: time of the last change of ``in_use``.
    since: float = 0.0
    #: Trials in ``at_work`` without an accepted epoch on this device.
    cold: list[str] = field(default_factory=list)
    #: The lanes in use, if lanes have several seats.
    in_use: list[int] = field(default_factory=list)

    def lanes_in_use(self) -> list[int]:
        """Return the lanes with a resident. If lanes have one seat, a slot is a lane."""
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

    ``state`` is one of ``joined``; ``resting`` (after losses in a row); ``draining`` (running
    segments end their epoch) and ``drained`` (nothing runs on it); ``left``; ``held`` (it left, and
    stays drained if it comes back). ``reason`` says why it rests or left.
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
    """The operator's drain of a device. It outlasts the device's worker and the device's absence.

    At ``deadline`` (the runner's clock), attempts still running on the device are revoked; None for
    never. ``gone`` is the record of the device if it has left since.
    """

    deadline: float | None = None
    gone: DeviceRecord | None = None


@dataclass(slots=True)
class Attempt:
    """A segment that was dispatched and is not closed yet."""

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
    #: Time at which its current epoch began, as far as known (the runner's clock).
    began: float = 0.0
    #: True if the trial's previous segment had another number of devices.
    resized: bool = False
    #: True if it was asked to close at the end of its epoch.
    cut: bool = False
    #: True if it measures widths even if other trials wait for its devices.
    lasts: bool = False
    #: True if the trial leaves the device at the end of its epoch
    #: (``scheduler.resources.packing``).
    leaves: bool = False
    #: True if it has all turns of its lane for now (``SegmentValues.undivided``).
    undivided: bool = False
    #: Kind of its start.
    start: SegmentStart = SegmentStart.NEW
    #: Seconds since the acceptance of its first epoch that were not training.
    between: float = 0.0
    #: The number of epochs chosen for it, and the reason; None if it measures widths.
    length: SegmentLength | None = None
    #: The part of its slot or lane time that is already in its study's ``spent`` (seconds).
    charged: float = 0.0
    #: The part of its slot's time that it is assumed to have (``scheduler.state.slot_time``).
    part: float = 1.0
    #: The slot time that it is assumed to have had until ``counted_at`` (seconds).
    in_turn: float = 0.0
    #: Time until which ``in_turn`` is counted (the runner's clock); None if it has all of its
    #: slot's time.
    counted_at: float | None = None
    #: The value of ``in_turn`` when its current epoch began.
    epoch_from: float = 0.0
    #: True if another trial has shared its lane with it.
    accompanied: bool = False
    #: The number of the last message with its objective's writings (``TrialWritten.number``).
    writings: int = 0


@dataclass(slots=True)
class Waits:
    """The time that a trial waits, while a policy orders the trials of all studies."""

    #: Time at which it joined the queue (the runner's clock); None if it is not in the queue.
    queued_at: float | None = None
    #: Its time in the queue before ``queued_at`` (seconds).
    waited: float = 0.0
    #: The device time of its accepted epochs (device-seconds).
    service: float = 0.0


@dataclass(slots=True)
class PastWindows:
    """The width windows that a study has had."""

    #: The number of windows in a row that found no gain, or were lost.
    vain: int = 0
    #: The widest width of the last window, by trial.
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
    #: True from the first ``PolicyChosen.fill_at_end`` on.
    fill_at_end: bool = False
    #: True from the first ``PolicyChosen.keep_failed`` on.
    keep_failed: bool = False
    #: True from the first ``PolicyChosen.keep_widths`` on.
    keep_widths: bool = False
    #: Studies that have not ended, by id.
    studies: dict[str, StudyState] = field(default_factory=dict)
    #: Names of ended studies, by id.
    finished: dict[str, str] = field(default_factory=dict)
    #: The best trials of the studies that ended last, by study and trial. Late reports of durable
    #: states are checked against them.
    ended: dict[str, dict[str, EndedTrial]] = field(default_factory=dict)
    #: Trials of the studies that have not ended, by id.
    trials: dict[str, Trial] = field(default_factory=dict)
    #: Open attempts, by fence.
    attempts: dict[int, Attempt] = field(default_factory=dict)
    #: Devices that have joined, by name.
    devices: dict[str, DeviceState] = field(default_factory=dict)
    #: The operator's drains by device, joined or not.
    held: dict[str, Drain] = field(default_factory=dict)
    #: Waiting trials, in the order of the standing plan.
    ready: list[str] = field(default_factory=list)
    #: The width that the standing plan gives each trial; 1 if absent.
    widths: dict[str, int] = field(default_factory=dict)
    #: ``Plan.patient`` of the standing plan.
    patient: bool = False
    #: The standing plan's width plans, by trial.
    courses: dict[str, WidthPlan] = field(default_factory=dict)
    #: The width windows of the standing plan, by trial (``Plan.windows``).
    windows: dict[str, WindowPlan] = field(default_factory=dict)
    #: The past width windows, by study. Studies without any are left out.
    past_windows: dict[str, PastWindows] = field(default_factory=dict)
    #: The waits of trials, by trial, while the policy has ordered the trials of all studies.
    waits: dict[str, Waits] = field(default_factory=dict)
    #: The number of later trials that went to shared devices while a trial waited for room, by the
    #: waiting trial.
    passed: dict[str, int] = field(default_factory=dict)
    #: ``Plan.rule`` of the standing plan.
    rule: str = ""
    #: ``Plan.deadline`` of the standing plan (the runner's clock).
    deadline: float = 0.0
    #: (``Plan.rule``, ``Plan.deadline``) of the standing plan of each study that has a share, by
    #: study.
    own_rules: dict[str, tuple[str, float]] = field(default_factory=dict)
    #: ``Plan.hold`` of the standing plan.
    hold: list[str] = field(default_factory=list)
    #: ``Plan.packed`` of the standing plan.
    packed: bool = False
    #: ``Plan.until`` of the standing plan (the runner's clock).
    plan_until: float = math.inf
    #: The policy's last failure; empty once a later plan was good.
    plan_error: str = ""
    #: The unanswered question to a user's policy; None if there is none.
    plan_asked: AskPlan | None = None
    #: Time until which a user's policy is not asked (the runner's clock).
    aside_until: float = 0.0
    #: True if the plan's input has changed since the plan was made.
    dirty: bool = False
    #: Time at which the plan was made (the runner's clock); None if it must be made at once.
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
    #: Counts of outcomes, and the uses of time.
    tally: Tally = field(default_factory=Tally)
    #: Slowdowns of trials that share a device.
    sharing: SharingTable = field(default_factory=SharingTable)
    #: The price of a device-hour, by kind of device.
    prices: dict[str, float] = field(default_factory=dict)
    #: State of extensions, by their names (``scheduler.state.extensions``).
    ext: dict[str, Any] = field(default_factory=dict)

    def features(self, trial: Trial) -> tuple[float, ...]:
        """Return the numbers that describe the trial to the cost table.

        Once the trial has run, these are the numbers that the table keeps.
        """
        own = self.costs.own(trial.study, trial.id)
        if own is not None:
            return own.features
        return self.features_of(trial)

    def features_of(self, trial: Trial) -> tuple[float, ...]:
        """Return the numbers that distinguish the trial from others of its study."""
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
        """Return the seconds expected of an epoch on ``width`` devices; None if not measured."""
        return self.costs.seconds_at(trial.study, trial.id, width, self.features(trial))

    def epoch_seconds(self, trial: Trial) -> float | None:
        """Return the expected seconds of an epoch of the trial at its last width.

        For a trial that has not run, the result is for one device. It is None if nothing was
        measured.
        """
        own = self.costs.own(trial.study, trial.id)
        if own is not None:
            return own.seconds
        return self.costs.expected(trial.study, trial.id, 1, self.features(trial)).level

    def attempts_on(self, device: str) -> list[Attempt]:
        """Return the attempts at work on a device, in the order of their dispatch."""
        return [self.attempts[f] for f in sorted({*self.devices[device].fences}) if f]

    def residents(self, device: DeviceState, lane: int) -> list[Attempt]:
        """Return the attempts in the seats of a lane, in the order of their dispatch."""
        fences = {device.fences[slot] for slot in device.seats_of(lane)}
        return [self.attempts[fence] for fence in sorted(fences) if fence]

    def is_beside(self, slot: Member) -> bool:
        """Return True if a slot is a seat in a lane that has residents."""
        device = self.devices[slot.device]
        return device.device.seats > 1 and any(
            device.fences[each] for each in device.seats_of(device.device.lane(slot.slot))
        )

    def slowdown(self, attempt: Attempt) -> float:
        """Return the factor by which sharing its device slows the attempt down; 1 if not known."""
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
        """Return True if any study that has not ended allows trials wider than one device."""
        return any(study.spec.max_width > 1 for study in self.studies.values())

    def device_status(self, device: str) -> str:
        """Return the state of a joined device, as in ``DeviceRecord.state``."""
        state = self.devices[device]
        if self.cordoned(device):
            return "draining" if state.draining or any(state.fences) else "drained"
        return "resting" if state.backoff_until else "joined"


@dataclass(slots=True)
class Changes:
    """Changes since the last ``take_changes``. The readers' tables in the ledger follow them.

    ``durables`` is by (trial, epoch): the state and the time when it became durable, or None if the
    state was discarded.
    """

    studies: dict[str, StudyRecord] = field(default_factory=dict)
    trials: dict[str, Trial] = field(default_factory=dict)
    epochs: list[AcceptedEpoch] = field(default_factory=list)
    durables: dict[tuple[str, int], tuple[Parent, float] | None] = field(default_factory=dict)
    devices: dict[str, DeviceRecord] = field(default_factory=dict)
