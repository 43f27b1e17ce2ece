"""Events: records of what happened. They are the engine's only inputs, and the ledger keeps them.

Every event carries ``at`` (seconds, the runner's clock) and ``cause``: the id of the decision that
the event answers, or empty if the event comes from outside. Events never change: all kinds,
including those of extensions, are made by ``value_class``. The engine refuses an event that does
not fit its state when it handles the event.
"""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge

from ...base.values import Amount, Natural, Positive, Whole, value_class
from ...profiling.devices.device import Device
from ...profiling.knobs.knobs import SystemConfig
from .finished import EarlierTrial, FinishedStudy, FinishedTrial
from .snapshot import Plan
from .study import Metrics, Params, Scalar, StudyRecord, StudySpec
from .writing import NOTHING, Attributes, Writing

#: The size of a group of trials, at least 2.
Several = Annotated[int, Ge(2)]


@value_class(frozen=True, slots=True, kw_only=True)
class Event:
    at: float
    cause: str = ""


@value_class(frozen=True, slots=True, kw_only=True)
class PolicyChosen(Event):
    """The operator chose the policy that applies from now on.

    This is an event so that a replay makes the same plans. Events of older versions lack the last
    three fields; once one of them is True, it stays so.
    """

    #: The name of the policy.
    policy: str
    #: True if the policy orders the trials of all studies, so that no shares apply.
    cross_study: bool = False
    #: True if free slots are given to trials once, at the end of each event. If False, a slot is
    #: given to a trial as soon as it becomes free, as in ledgers of 0.2.
    fill_at_end: bool = False
    #: True if the newest state of a failed trial is kept until its study ends, since the user may
    #: have the trial tried again.
    keep_failed: bool = False
    #: True if a trial whose width window measured no second width keeps its planned width.
    keep_widths: bool = False


@value_class(frozen=True, slots=True, kw_only=True)
class PricesChosen(Event):
    """The operator set the prices of a device-hour that apply from now on, by kind of device.

    This is an event so that a replay computes the same amounts of money.
    """

    prices: tuple[tuple[str, float], ...]


@value_class(frozen=True, slots=True, kw_only=True)
class LedgerRestored(Event):
    """The ledger was restored from an older copy. Events after that copy are lost."""


@value_class(frozen=True, slots=True, kw_only=True)
class Planned(Event):
    """A user's policy answered ``AskPlan``: one plan for each snapshot, in order."""

    plans: tuple[Plan, ...]


@value_class(frozen=True, slots=True, kw_only=True)
class PolicyFailed(Event):
    """The user's policy ``policy`` failed to give plans.

    ``reason`` says whether it raised, took too long or returned no valid plan.
    """

    reason: str
    policy: str = ""


@value_class(frozen=True, slots=True, kw_only=True)
class StudySubmitted(Event):
    """A study begins. Its ``enqueued`` configurations are tried before those of the sampler.

    ``earlier`` are trials of studies that have ended. Trials of the new study may take over their
    epochs.
    """

    study: StudySpec
    enqueued: tuple[Params, ...] = ()
    earlier: tuple[EarlierTrial, ...] = ()


@value_class(frozen=True, slots=True, kw_only=True)
class StudyCancelled(Event):
    study: str


@value_class(frozen=True, slots=True, kw_only=True)
class StudyPaused(Event):
    """The study sends no new segment. Its running segments are cut at the end of their epoch.

    If ``lacks`` names extensions, the study pauses because they are missing or broken. They are not
    called for the study any more, and ``why`` is the reason, for users. Such a pause is independent
    of a pause by the user.
    """

    study: str
    why: str = ""
    lacks: tuple[str, ...] = ()


@value_class(frozen=True, slots=True, kw_only=True)
class StudyResumed(Event):
    """The user resumed the study; or, if ``found`` has names, it lacks these extensions no more."""

    study: str
    found: tuple[str, ...] = ()


@value_class(frozen=True, slots=True, kw_only=True)
class Unread(Event):
    """An event of an extension that is not loaded; the ledger keeps the event for that extension.

    ``kind`` is the kind of the event, and ``study`` the study that it is about, if any.
    """

    kind: str
    extension: str
    study: str | None = None


@value_class(frozen=True, slots=True, kw_only=True)
class StudyWeighed(Event):
    """The user changed the ``weight`` and ``priority`` by which the study shares devices."""

    study: str
    weight: float
    priority: int


@value_class(frozen=True, slots=True, kw_only=True)
class StudyExtended(Event):
    """The study gets more trials. ``study`` is its specification from now on.

    The engine has forgotten a study that has ended: then ``past`` holds the study as the ledger
    knows it, and ``earlier`` and ``enqueued`` are as in ``StudySubmitted``. For any other study
    ``past`` is None.
    """

    study: StudySpec
    past: FinishedStudy | None = None
    earlier: tuple[EarlierTrial, ...] = ()
    enqueued: tuple[Params, ...] = ()


@value_class(frozen=True, slots=True, kw_only=True)
class StudyStopped(Event):
    """The study starts no more trials.

    Waiting trials that have not begun are cancelled. The other trials run to their end.
    """

    study: str


@value_class(frozen=True, slots=True, kw_only=True)
class CallbacksCalled(Event):
    """A script has called its callbacks for the ended trials ``trials``.

    From the first such event on, each ended trial keeps one new trial from starting until the
    callbacks for the ended trial were called, so that a callback can stop the study in time. If
    ``over`` is True, the script calls no more callbacks, and the study continues without them.
    """

    study: str
    trials: tuple[str, ...] = ()
    over: bool = False


@value_class(frozen=True, slots=True, kw_only=True)
class StudyReopened(Event):
    """A study that has ended is reopened, so that its user can change single trials.

    ``past`` is as in ``StudyExtended``. If ``status`` is one of ``OVER``, the study remains ended,
    and the engine forgets it again after the next event about it.
    """

    study: StudySpec
    past: FinishedStudy
    #: The study's status. It is ``running`` if the study continues, as every reopened study did in
    #: ledgers of format 11.
    status: str = "running"
    #: When the study ended (seconds, the runner's clock).
    finished_at: float | None = None
    #: The study's message.
    message: str = ""


@value_class(frozen=True, slots=True, kw_only=True)
class StudyDeleted(Event):
    """The user deleted the study. ``record`` is the study's last record, for readers."""

    record: StudyRecord


@value_class(frozen=True, slots=True, kw_only=True)
class StudyWritten(Event):
    """Attributes were added to the study, which may have ended."""

    study: str
    user_attrs: Attributes = ()
    system_attrs: Attributes = ()


@value_class(frozen=True, slots=True, kw_only=True)
class StudyFailed(Event):
    """The study failed because its sampler raised. ``reason`` is for the user."""

    study: str
    reason: str


@value_class(frozen=True, slots=True, kw_only=True)
class StudyImported(Event):
    """A study that has ended was imported from an export. Its trials never run here."""

    record: StudyRecord
    trials: tuple[FinishedTrial, ...]
    #: The study's attributes.
    user_attrs: Attributes = ()
    system_attrs: Attributes = ()


@value_class(frozen=True, slots=True, kw_only=True)
class TrialEnqueued(Event):
    """The user enqueued a configuration to try next. The sampler fills in missing parameters."""

    study: str
    params: Params


@value_class(frozen=True, slots=True, kw_only=True)
class TrialAsked(Event):
    """The user asked for a configuration to train: trial ``number``. Only older ledgers have it."""

    study: str
    number: int


@value_class(frozen=True, slots=True, kw_only=True)
class TrialTold(Event):
    """The user told the result of a trial that they had asked for. Only older ledgers have it.

    If ``value`` is None, the trial failed, and ``reason`` says why.
    """

    trial: str
    value: float | None
    reason: str = ""


@value_class(frozen=True, slots=True, kw_only=True)
class TrialAdded(Event):
    """A trial was added that no strategy asked for.

    Its user trains the trial (``running``), wants it to run next (``waiting``), or adds a trial
    that has ended, with its result (any other state).
    """

    #: The id of the new trial, which has the next number of its study.
    trial: str
    #: One of ``scheduler.model.writing.STATES``.
    state: str
    #: The values of the trial; empty if it has no result.
    values: tuple[float, ...] = ()
    writing: Writing = NOTHING
    #: When the trial began and when it ended (seconds); None if that did not happen.
    started: float | None = None
    ended: float | None = None
    #: The objective's call that added the trial. A repeated call adds nothing.
    call: str = ""


@value_class(frozen=True, slots=True, kw_only=True)
class TrialWritten(Event):
    """The trial's objective, or its user, wrote parameters, values or attributes to a trial.

    If ``state`` is given, the user also changes the trial's state: ``running`` means that the user
    takes a waiting trial, and the other states end the trial.
    """

    trial: str
    #: The fence of the attempt whose objective writes; 0 if the user writes.
    fence: Natural = 0
    writing: Writing = NOTHING
    #: The message's number among the attempt's messages of this kind, from 1; 0 if not known.
    number: Natural = 0
    #: One of ``scheduler.model.writing.STATES``; empty if the state does not change.
    state: str = ""
    #: The values at the end; empty if there is no result.
    values: tuple[float, ...] = ()
    #: Reason why the trial failed, for its user.
    reason: str = ""
    #: The digest of the trial's draws after this event (``base.draws``), if its sampler runs in the
    #: objective's process. If empty, the digest is not known, and the event is refused only if a
    #: draw differs from an accepted draw. If None, draws are not checked, as in ledgers of 0.2 and
    #: for trials that users train.
    draws_digest: str | None = None


@value_class(frozen=True, slots=True, kw_only=True)
class StudyClosed(Event):
    """The user wants no more trials. Trials without a result are cancelled."""

    study: str


@value_class(frozen=True, slots=True, kw_only=True)
class Proposed(Event):
    """The sampler answered ``Ask`` with configurations, in order.

    If ``exhausted``, the sampler has no further configurations, and there may be fewer than asked
    for. ``notes`` holds the sampler's own data for each configuration (JSON); it is empty if the
    sampler keeps none.
    """

    study: str
    index: int
    trials: tuple[Params, ...]
    exhausted: bool = False
    notes: tuple[str, ...] = ()


@value_class(frozen=True, slots=True, kw_only=True)
class Suggested(Event):
    """One parameter of a define-by-run trial was drawn while its objective runs."""

    trial: str
    name: str
    value: Scalar
    distribution: str


@value_class(frozen=True, slots=True, kw_only=True)
class DeviceJoined(Event):
    """A worker serves ``device``. A new ``incarnation`` is a new process without any state."""

    device: Device
    incarnation: str


@value_class(frozen=True, slots=True, kw_only=True)
class DeviceDraining(Event):
    """The device takes no new segment. Its running segments are cut at the end of their epoch."""

    device: str


@value_class(frozen=True, slots=True, kw_only=True)
class DeviceLeft(Event):
    device: str
    reason: str


@value_class(frozen=True, slots=True, kw_only=True)
class DevicesTakenOut(Event):
    """The operator drains devices. They take no new segment until they are given back.

    Running segments are cut at the end of their epoch. A segment that still runs at ``deadline``
    (seconds, the runner's clock) is revoked. If ``deadline`` is None, no segment is revoked.
    """

    devices: tuple[str, ...]
    deadline: float | None = None


@value_class(frozen=True, slots=True, kw_only=True)
class DevicesGivenBack(Event):
    """The operator lets devices be used again."""

    devices: tuple[str, ...]


@value_class(frozen=True, slots=True, kw_only=True)
class EpochReported(Event):
    """One epoch of an attempt ended."""

    #: The trial's id.
    trial: str
    #: The fence of the attempt that reports.
    fence: Whole
    #: The number of the epoch, from 1.
    epoch: Whole
    #: The metrics that the training code reported.
    metrics: Metrics
    #: The hash of the state after the epoch: model, optimiser and schedule.
    state_hash: str
    #: The numeric signature under which the epoch was computed.
    signature: str
    #: Training time of the epoch (seconds).
    seconds: Amount
    #: True if the segment ends with this epoch.
    closes: bool
    #: The identity of the trainer that has this state in memory; empty if none has.
    holder: str = ""
    #: The state's address in the store; empty if the state is not there yet.
    uri: str = ""
    #: Seconds between the claim of the task and this report, by the worker's clock; 0 if unknown.
    claimed: Amount = 0.0
    #: The most memory that the trainer has used so far (bytes); 0 if unknown.
    memory: Natural = 0
    #: The trial's part of the energy that its devices used for the epoch; None if not measured.
    joules: Amount | None = None
    #: Size of the fused group that trained the epoch, 1 for the trial alone; 0 if the trial cannot
    #: be fused with other trials.
    together: Natural = 1
    #: Number of trials that shared the epoch's batches, each of which was read once for all. If
    #: ``together`` is 0, the number counts the trials of the lane, this trial included, and is 0 if
    #: sharing would gain nothing. Else it is 2 if another trainer of the node has read some of the
    #: batches, and 0 if not.
    readers: Natural = 0
    #: Seconds that the epoch would have taken if the trial had been alone in its lane; 0 if that is
    #: ``seconds``.
    alone: Amount = 0.0
    #: Speeds that the trainer expects of fused groups: (size of the group, seconds of an epoch in
    #: the group divided by its seconds alone). Empty if the trainer expects nothing.
    company: tuple[tuple[Several, Positive], ...] = ()
    #: The digest of the objective's draws when it reported the epoch (``base.draws``). None if its
    #: sampler runs in another process, or if an older worker does not report it.
    draws_digest: str | None = None


@value_class(frozen=True, slots=True, kw_only=True)
class WidthsMeasured(Event):
    """An attempt measured steps of its trial at several widths. It ends with this event."""

    trial: str
    fence: Whole
    #: (width, seconds per step), in the order of measuring.
    seconds: tuple[tuple[Whole, Positive], ...]
    #: The number of steps in an epoch.
    steps: Whole
    #: Seconds that the members waited to meet; 0 if they had not started to wait.
    meeting: Amount = 0.0
    #: True if the members met.
    met: bool = False


@value_class(frozen=True, slots=True, kw_only=True)
class Durable(Event):
    """The state after ``epoch`` is in the store at ``uri``, complete and synced to disk."""

    trial: str
    epoch: Natural
    state_hash: str
    uri: str


@value_class(frozen=True, slots=True, kw_only=True)
class Undurable(Event):
    """A state of the trial could not be written to the store. ``reason`` is for the user."""

    trial: str
    reason: str


@value_class(frozen=True, slots=True, kw_only=True)
class Replayed(Event):
    """An attempt computes the accepted epochs ``first`` to ``last`` again, for ``reason``.

    The engine only counts these epochs. Readers show the event in the trial's story.
    """

    trial: str
    fence: Whole
    first: Whole
    last: Whole
    reason: str = ""


@value_class(frozen=True, slots=True, kw_only=True)
class Remarked(Event):
    """An attempt told its user something that may be unexpected; ``text`` has the words.

    The engine changes nothing. Readers show the event in the trial's story.
    """

    trial: str
    fence: Whole
    text: str


@value_class(frozen=True, slots=True, kw_only=True)
class TrialReturned(Event):
    """The objective returned, so the trial has no further epochs."""

    #: The trial's id.
    trial: str
    #: The fence of the attempt that reports.
    fence: Whole
    #: The value that the objective returned; if the trial was pruned, its last reported value.
    value: float | None
    #: Values of the study's other objectives.
    further: tuple[float, ...] = ()
    #: The trial's constraint values; a value above 0 is a violation.
    constraints: Metrics = ()
    #: True if the objective raised ``TrialPruned``.
    pruned: bool = False
    #: Parameters that the user enqueued and the objective never asked for.
    unasked: tuple[str, ...] = ()
    #: Number of processes started by the objective that were still running after it returned.
    left: Natural = 0
    #: The digest of the trial's draws; see ``EpochReported.draws_digest``.
    draws_digest: str | None = None
    #: Number of epochs that the objective has reported in all, so that a lost report is noticed; 0
    #: if not known.
    reported: Natural = 0
    #: Number of messages with writings that the attempt has sent (``TrialWritten.number``); 0 if
    #: not known.
    writings: Natural = 0


@value_class(frozen=True, slots=True, kw_only=True)
class AttemptFailed(Event):
    """The attempt ended because the user's code failed."""

    #: The trial's id.
    trial: str
    #: The fence of the attempt that reports.
    fence: Whole
    #: Kind of the failure: one of ``scheduler.model.retry.KINDS``.
    kind: str
    #: Explanation of the failure, for the user.
    message: str
    #: The traceback of the user's code; empty if there is none.
    traceback: str = ""
    #: The system configuration that was being measured; empty if none was.
    trying: SystemConfig = ()


@value_class(frozen=True, slots=True, kw_only=True)
class AttemptLost(Event):
    """The infrastructure lost the attempt (its lease ran out, a worker or a message was lost)."""

    #: The trial's id.
    trial: str
    #: The fence of the attempt that was lost.
    fence: Whole
    #: Explanation of the loss, for the user.
    reason: str
    #: True if the node cannot run this study at all: its copy of the code, or its store, differs.
    refused: bool = False
    #: Ranks of the members that caused the loss; empty if not known.
    ranks: tuple[Natural, ...] = ()
    #: The numeric signature of a member that may not compute for the study; empty if all may.
    signature: str = ""
    #: The numeric signature under which the attempt should have been computed.
    expected: str = ""


@value_class(frozen=True, slots=True, kw_only=True)
class Tick(Event):
    """Time passed. The event is sent only when the engine asked for it (``Engine.wake_at``)."""
