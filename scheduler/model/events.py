"""Events: what happened. They are the engine's only inputs, and the ledger keeps them as the truth.

Every event carries ``at`` (seconds, the runner's clock) and ``cause``: the id of the decision that
it answers, or empty if the event comes from outside. Events never change: all kinds, those of
extensions too, are made by ``value_class``. A wrong event is refused when it is handled.
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

    It is an event so that a replay makes the same plans. With ``cross_study``, the policy orders
    the trials of all studies, so that no shares apply. With the other flags, which are never taken
    back, from now on

    - ``fill_at_end``: free slots are given to trials once, at the end of an event. Without it, a
      slot is given to a trial as soon as it becomes free, as in ledgers of version 0.2.
    - ``keep_failed``: the newest state of a failed trial is kept until its study ends, since its
      user may let the trial be tried again.
    - ``keep_widths``: a trial whose window measured no second width keeps the width that the plan
      has for it.
    """

    policy: str
    cross_study: bool = False
    fill_at_end: bool = False
    keep_failed: bool = False
    keep_widths: bool = False


@value_class(frozen=True, slots=True, kw_only=True)
class PricesChosen(Event):
    """The operator's prices of a device-hour, by kind of device, apply from now on.

    They are an event so that a replay computes the same amounts of money.
    """

    prices: tuple[tuple[str, float], ...]


@value_class(frozen=True, slots=True, kw_only=True)
class LedgerRestored(Event):
    """The ledger was restored from an older copy. Messages sent after that copy are unknown."""


@value_class(frozen=True, slots=True, kw_only=True)
class Planned(Event):
    """A user's policy answered ``AskPlan``: one plan for each snapshot, in order."""

    plans: tuple[Plan, ...]


@value_class(frozen=True, slots=True, kw_only=True)
class PolicyFailed(Event):
    """The user's policy ``policy`` failed: it raised, took too long or returned no valid plan.

    ``reason`` says which of these.
    """

    reason: str
    policy: str = ""


@value_class(frozen=True, slots=True, kw_only=True)
class StudySubmitted(Event):
    """A study begins. Its ``enqueued`` configurations are tried before those of the sampler.

    ``earlier`` are trials of other, ended studies, whose epochs the new trials may take over.
    """

    study: StudySpec
    enqueued: tuple[Params, ...] = ()
    earlier: tuple[EarlierTrial, ...] = ()


@value_class(frozen=True, slots=True, kw_only=True)
class StudyCancelled(Event):
    study: str


@value_class(frozen=True, slots=True, kw_only=True)
class StudyPaused(Event):
    """The study takes no new segment. Running ones are cut at the end of their epoch.

    If ``lacks`` names extensions, the study pauses because they are missing. They are not called
    for the study any more, and ``why`` explains this to people. Such a pause is separate from a
    pause by the user.
    """

    study: str
    why: str = ""
    lacks: tuple[str, ...] = ()


@value_class(frozen=True, slots=True, kw_only=True)
class StudyResumed(Event):
    """The study continues after a pause, or no longer lacks the extensions that were ``found``."""

    study: str
    found: tuple[str, ...] = ()


@value_class(frozen=True, slots=True, kw_only=True)
class Unread(Event):
    """An event of an extension that is not loaded. It is kept until the extension is loaded."""

    kind: str
    extension: str
    study: str | None = None


@value_class(frozen=True, slots=True, kw_only=True)
class StudyWeighed(Event):
    """The user changed the study's ``weight`` and ``priority`` in sharing devices."""

    study: str
    weight: float
    priority: int


@value_class(frozen=True, slots=True, kw_only=True)
class StudyExtended(Event):
    """The study gets more trials. ``study`` is its specification from now on.

    For an ended study, ``past`` holds its record, since the engine has forgotten it, and
    ``earlier`` and ``enqueued`` are as in ``StudySubmitted``. For any other study ``past`` is None.
    """

    study: StudySpec
    past: FinishedStudy | None = None
    earlier: tuple[EarlierTrial, ...] = ()
    enqueued: tuple[Params, ...] = ()


@value_class(frozen=True, slots=True, kw_only=True)
class StudyStopped(Event):
    """The study starts no more trials. Trials at work run to their end."""

    study: str


@value_class(frozen=True, slots=True, kw_only=True)
class CallbacksCalled(Event):
    """A script has called its callbacks for the ended trials ``trials``.

    From the first such event on, a slot that a trial frees is given to a new trial only after the
    callbacks for the ended trial were called, so a callback that stops the study is in time. With
    ``over``, the script calls no callbacks any more, and the study continues without them.
    """

    study: str
    trials: tuple[str, ...] = ()
    over: bool = False


@value_class(frozen=True, slots=True, kw_only=True)
class StudyReopened(Event):
    """An ended study is open again for its user. ``past`` is as in ``StudyExtended``.

    If ``status`` says that the study stays ended, the engine forgets it again after the next event
    about it.
    """

    study: StudySpec
    past: FinishedStudy
    #: The study's status; ``running`` if it continues, as all did in ledgers of format 11.
    status: str = "running"
    #: Time at which the study ended (seconds), and its message.
    finished_at: float | None = None
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
    """The study cannot continue because its sampler raised. ``reason`` is for the user."""

    study: str
    reason: str


@value_class(frozen=True, slots=True, kw_only=True)
class StudyImported(Event):
    """A finished study was imported from an export. None of its trials runs, now or later."""

    record: StudyRecord
    trials: tuple[FinishedTrial, ...]
    #: The study's attributes.
    user_attrs: Attributes = ()
    system_attrs: Attributes = ()


@value_class(frozen=True, slots=True, kw_only=True)
class TrialEnqueued(Event):
    """The user wants this configuration tried next. The sampler fills in missing parameters."""

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

    Its user trains it (``running``), wants it to be run next (``waiting``), or adds its result.
    """

    #: The id that the trial gets: it has the next number of its study.
    trial: str
    #: One of ``scheduler.model.writing.STATES``.
    state: str
    #: The values of the trial; empty if it has no result.
    values: tuple[float, ...] = ()
    writing: Writing = NOTHING
    #: Time at which the trial began, and time at which it ended (seconds); None if it did not.
    started: float | None = None
    ended: float | None = None
    #: The objective's call that added the trial. A repeated call adds nothing.
    call: str = ""


@value_class(frozen=True, slots=True, kw_only=True)
class TrialWritten(Event):
    """The trial's objective, or its user, wrote something to a trial.

    If ``state`` is given, the user moves the trial: ``running`` takes a waiting trial, the other
    states end the trial.
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
    #: objective's process. Empty if the digest is not known; then no draw may differ from an
    #: accepted one. None if nothing is checked, as in ledgers of version 0.2, and for trials that
    #: users train.
    draws_digest: str | None = None


@value_class(frozen=True, slots=True, kw_only=True)
class StudyClosed(Event):
    """The user asks for no more trials. Trials without a result are cancelled."""

    study: str


@value_class(frozen=True, slots=True, kw_only=True)
class Proposed(Event):
    """The sampler's answer to ``Ask``: configurations in order, fewer than asked when exhausted.

    ``notes`` holds the sampler's own data for each configuration (JSON); it is empty if the sampler
    keeps none.
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
    """A worker serves ``device``. A new ``incarnation`` is a new process, without any states."""

    device: Device
    incarnation: str


@value_class(frozen=True, slots=True, kw_only=True)
class DeviceDraining(Event):
    """The device takes no new segment. Running ones are cut at the end of their epoch."""

    device: str


@value_class(frozen=True, slots=True, kw_only=True)
class DeviceLeft(Event):
    device: str
    reason: str


@value_class(frozen=True, slots=True, kw_only=True)
class DevicesTakenOut(Event):
    """The operator drains devices. They take no new segment until they are given back.

    Running segments are cut at the end of their epoch. A segment that still runs at ``deadline``
    (seconds, the runner's clock) is revoked. If ``deadline`` is None, an epoch may take any time.
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
    #: A hash of model, optimiser and schedule.
    state_hash: str
    #: The numeric signature under which the epoch was computed.
    signature: str
    #: Training time of the epoch (seconds).
    seconds: Amount
    #: True if the segment ends with this epoch.
    closes: bool
    #: The identity of the trainer that has this state in memory.
    holder: str = ""
    #: Address of the state in the store; empty if it is not there yet.
    uri: str = ""
    #: Seconds between the claim of the task and this report, by the worker's clock; 0 if unknown.
    claimed: Amount = 0.0
    #: The most memory that the trainer has used so far (bytes); 0 if unknown.
    memory: Natural = 0
    #: The trial's part of the energy that its devices used for the epoch; None if not measured.
    joules: Amount | None = None
    #: Number of trials trained in the same steps, this one included; 0 if it cannot be trained with
    #: others.
    together: Natural = 1
    #: Number of readers that shared the epoch's batches. If ``together`` is 0: the number of trials
    #: of the lane for which the batches were read once, this one included, or 0 if each trial reads
    #: for itself or sharing gains nothing. Otherwise 2 if other trainers of the node have read some
    #: of the batches.
    readers: Natural = 0
    #: Seconds that the epoch would have taken alone, if it included work for other trials; 0 stands
    #: for ``seconds``.
    alone: Amount = 0.0
    #: Pairs (size of a fused group, seconds of an epoch in the group divided by seconds alone), as
    #: the trainer expects them; empty if it expects nothing.
    company: tuple[tuple[Several, Positive], ...] = ()
    #: The digest of the draws under which an objective reports (``base.draws``); None if its
    #: sampler runs in another process, or if an older worker does not report it.
    draws_digest: str | None = None


@value_class(frozen=True, slots=True, kw_only=True)
class WidthsMeasured(Event):
    """An attempt measured steps of its trial at several widths. The attempt ends with this event.

    ``seconds`` are pairs (width, seconds per step) in the order of measuring, and ``steps`` is the
    number of steps in an epoch. ``meeting`` is the time (seconds) that the members took to meet; if
    ``met`` is False, they waited that long in vain (0: they had not started to wait).
    """

    trial: str
    fence: Whole
    seconds: tuple[tuple[Whole, Positive], ...]
    steps: Whole
    meeting: Amount = 0.0
    met: bool = False


@value_class(frozen=True, slots=True, kw_only=True)
class Durable(Event):
    """The state after ``epoch`` is in the store under ``uri``, complete and synced."""

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

    The event changes nothing but counts; the ledger keeps it for the trial's story.
    """

    trial: str
    fence: Whole
    first: Whole
    last: Whole
    reason: str = ""


@value_class(frozen=True, slots=True, kw_only=True)
class Remarked(Event):
    """An attempt lacks something that its user expects it to have; ``text`` describes it.

    The event changes nothing; the ledger keeps it for the trial's story.
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
    #: Number of processes that the objective had started and that still ran after it returned.
    left: Natural = 0
    #: The digest of the trial's draws; see ``EpochReported.draws_digest``.
    draws_digest: str | None = None
    #: Number of epochs that the objective has reported in all; 0 if not known. The value comes
    #: after them.
    reported: Natural = 0
    #: Number of the attempt's messages with writings (``TrialWritten.number``); 0 if not known.
    writings: Natural = 0


@value_class(frozen=True, slots=True, kw_only=True)
class AttemptFailed(Event):
    """The user's code failed. ``kind`` is one of ``scheduler.model.retry.KINDS``."""

    #: The trial's id.
    trial: str
    #: The fence of the attempt that reports.
    fence: Whole
    #: Kind of the failure.
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
    #: The numeric signature of a member whose signature differs; empty if none does.
    signature: str = ""
    #: The numeric signature under which the attempt should be computed.
    expected: str = ""


@value_class(frozen=True, slots=True, kw_only=True)
class Tick(Event):
    """Time passed. The event is sent only while something waits for it (``Engine.wake_at``)."""
