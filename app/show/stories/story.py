"""Tell the story of a trial: its events in order, with their causes, as sentences.

An attempt is sent because of a decision, and the scheduler makes a decision when it handles an
event. An event that the attempt reports names that earlier event by its number in the ledger. Here
the numbers become words: *epoch 3 ended … · sent when trial 7 ended epoch 1*.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ....base.errors import UsageError
from ....profiling.costs.segment_costs import SegmentStart
from ....profiling.devices.device import with_several_slots
from ....scheduler.model import events as happened
from ....scheduler.model.segment_length import LengthReason, SegmentLength
from ....scheduler.model.snapshot import POLICY_BACKOFF
from ....scheduler.model.study import number_of, study_of_trial
from ....scheduler.model.trial import TrialState
from ....scheduler.policies.segments import MAX_DELAY, MAX_OVERHEAD
from ....scheduler.strategies.base import RULES, STRATEGIES
from ...common.text import count, duration, number
from ...extensions import of_ends
from ...ledger.codec import spec_from_json
from ...ledger.summary import sign
from ..views.progress import final_metrics, origins
from .expectations import expectations
from .sentences import fence_of, kind_of, planless, sentence

if TYPE_CHECKING:
    from ....scheduler.model.events import Event
    from ....scheduler.model.study import StudySpec
    from ...ledger.reader import Reader
    from ...ledger.rows import EpochRow, StudyRow, TrialRow


@dataclass(frozen=True, slots=True)
class Line:
    """An event of a trial, or epochs that the trial took over from another trial."""

    #: The number of seconds from the proposal of the trial to the event.
    after: float
    #: The number of the event in the ledger. It is None for epochs that were taken over from
    #: another trial, since their events belong to the other trial.
    seq: int | None
    #: The event in words. ``cause`` contains the event's cause in words, and may be empty.
    what: str
    cause: str
    #: The number of the attempt that reported the event, from 1. Only the trial's attempts that
    #: reported anything are counted. ``fence`` is the attempt's number among the attempts of all
    #: trials. Both are None if no attempt reported the event.
    attempt: int | None = None
    fence: int | None = None
    #: The traceback of a failure. It is empty for any other event.
    traceback: str = ""
    #: The planned number of epochs of the attempt, with the reason for this number. If the strategy
    #: predicts values, the expected value of the trial follows. The text is empty if nothing is
    #: known about the attempt.
    length: str = ""


@dataclass(frozen=True, slots=True)
class Story:
    """A trial, its study, its events in order, and all metrics of its last accepted epoch.

    ``origins`` contains sentences of extensions about the trial. Further sentences are about the
    trial that this trial continues, about trials that continue this trial, and about the trial for
    which this trial waits as a companion. If the trial is paused or was stopped, the last sentence
    gives the trial's rank.
    """

    study: StudyRow
    trial: TrialRow
    lines: tuple[Line, ...]
    metrics: dict[str, float]
    origins: tuple[str, ...] = ()


def trial_story(reader: Reader, study: StudyRow, trial: TrialRow) -> Story:
    """Return the story of ``trial``, read from the ledger."""
    study, spec = reader.with_names(study), spec_from_json(study.spec_json)
    events = reader.events(trial.id)
    causes = {cause for _, event in events if (cause := _taken_at(event)) is not None}
    reasons = reader.events_at(sorted(causes))
    epochs = reader.epochs(study.id)
    own = [row for row in epochs if row.trial == trial.id]
    accepted = {(row.epoch, row.fence): row for row in own}
    fences = sorted({fence for _, event in events if (fence := fence_of(event)) is not None})
    attempts = {fence: number for number, fence in enumerate(fences, 1)}
    names = reader.study_names()
    lengths = {row.fence: length_words(row.length) for row in accepted.values() if row.length}
    for fence, words in expectations(spec, trial.id, epochs).items():
        lengths[fence] = "; ".join(filter(None, (lengths.get(fence), words)))
    several = with_several_slots(record.device for record in reader.devices())
    lines = tuple(
        Line(
            event.at - trial.created_at,
            seq,
            sentence(
                event, study.shown_metric, accepted, attempts, several, bounds=spec.constraints
            ),
            cause_words(event, trial.id, reasons, names),
            None if (fence := fence_of(event)) is None else attempts[fence],
            fence,
            event.traceback if isinstance(event, happened.AttemptFailed) else "",
            "" if fence is None else lengths.get(fence, ""),
        )
        for seq, event in events
    )
    if not lines and (imported := reader.imported(study.id)) is not None:
        seq, past = imported
        text = "it was imported: its story is in the ledger that it was exported from"
        lines = (Line(past.at - trial.created_at, seq, text, ""),)
    until = trial.finished_at or math.inf
    lines += tuple(
        Line(event.at - trial.created_at, seq, planless(event), "")
        for seq, event in reader.policy_failures()
        if max(study.created_at, trial.created_at - POLICY_BACKOFF) <= event.at <= until
    )
    lines = tuple(sorted(lines, key=lambda line: line.seq or 0))
    trials = reader.trials(study.id)
    extra = [
        Line(at - trial.created_at, None, text, cause)
        for lines_of in of_ends("show", "story_lines")
        for at, text, cause in lines_of(spec, trial, trials, epochs, names)
    ]
    waits = [says(spec, trial, trials) for says in of_ends("show", "waits_for")]
    heads = [
        head
        for heads in of_ends("show", "story_heads")
        for head in heads(reader, spec, trial, events, own)
    ]
    parts = [each for each in (*heads, *origins(trial, trials), *waits) if each]
    parts += standing(study, spec, trial, epochs)
    return Story(study, trial, _by_time(lines, extra), final_metrics(trial, epochs), tuple(parts))


def _by_time(lines: Sequence[Line], taken: Sequence[Line]) -> tuple[Line, ...]:
    """Return ``lines`` in order, with each line of ``taken`` inserted by its time."""
    in_order = list(lines)
    for each in taken:
        later = (n for n, line in enumerate(in_order) if line.after > each.after)
        in_order.insert(next(later, len(in_order)), each)
    return tuple(in_order)


def cause_words(
    event: Event, trial: str, reasons: Mapping[int, Event], names: Mapping[str, str]
) -> str:
    """Return the cause of ``event`` in words.

    The cause is the event that the scheduler handled when it sent the attempt that reported
    ``event``. ``reasons`` contains such earlier events by their number. ``names`` contains the
    names of studies by their id.
    """
    seq = _taken_at(event)
    if seq is None:
        return event.cause
    reason = reasons.get(seq)
    if reason is None:
        return f"sent at #{seq}"
    return f"sent when {_occasion(reason, trial, names)} (#{seq})"


def _taken_at(event: Event) -> int | None:
    """Return the number of the event that led to the decision behind ``event``.

    The result is None if that number is not known.
    """
    seq, _, index = event.cause.partition(".")
    return int(seq) if seq.isdecimal() and index.isdecimal() else None


_OCCASIONS: dict[type[Event], str] = {
    happened.StudySubmitted: "the study was submitted",
    happened.StudyPaused: "a study was paused",
    happened.StudyResumed: "the study was resumed",
    happened.StudyExtended: "the study was extended",
    happened.LedgerRestored: "an older ledger was restored",
    happened.Proposed: "the sampler proposed it",
    happened.Tick: "its wait was over",
}


def _occasion(reason: Event, trial: str, names: Mapping[str, str]) -> str:
    match reason:
        case happened.DeviceJoined():
            text = f"{reason.device.name} joined"
        case happened.DeviceLeft():
            text = f"{reason.device} left"
        case happened.DevicesTakenOut():
            text = f"the operator took out {', '.join(reason.devices)}"
        case happened.DevicesGivenBack():
            text = f"the operator gave back {', '.join(reason.devices)}"
        case happened.EpochReported():
            text = f"{_who(reason.trial, trial, names)} ended epoch {reason.epoch}"
        case happened.TrialReturned():
            text = f"{_who(reason.trial, trial, names)} returned"
        case happened.AttemptFailed() | happened.AttemptLost():
            text = f"an attempt of {_who(reason.trial, trial, names)} failed"
        case _:
            tables = (_OCCASIONS, *of_ends("show", "OCCASIONS"))
            texts = (occasions[type(reason)] for occasions in tables if type(reason) in occasions)
            text = next(texts, f"{kind_of(reason)} was handled")
    return text


def _who(other: str, trial: str, names: Mapping[str, str]) -> str:
    if other == trial:
        return "it"
    study = study_of_trial(other)
    of = "" if study == study_of_trial(trial) else f" of another study, {names.get(study, study)},"
    return f"trial {number_of(other)}{of}"


#: Words for the limits that can set the length of a segment in place of costs.
_LIMITS = {
    LengthReason.TARGET: "up to its target",
    LengthReason.STUDY: "no segment is longer",
    LengthReason.PLAN: "after it the trial gets another number of devices",
    LengthReason.PROBE: "system parameters are measured in it",
    LengthReason.LIMIT: "its study is close to a limit",
    LengthReason.UNMEASURED: "the time of an epoch is not known yet",
}
#: Words for the bounds that can change a length that was computed from costs.
_BOUNDS = {
    LengthReason.OVERHEAD: f"; overhead may take {MAX_OVERHEAD:.0%} at most",
    LengthReason.DELAY: f"; no trial should wait for more than {MAX_DELAY:g} s",
}
_TIERS = {SegmentStart.TRAINER: "in the trainer", SegmentStart.STORE: "from the store"}


def length_words(length: SegmentLength) -> str:
    """Return ``length`` as a line: *5 epochs: overhead 12 ms, resume 3 ms in the trainer, ...*."""
    head = count(length.epochs, "epoch")
    if (limit := _LIMITS.get(length.reason)) is not None:
        return f"{head}: {limit}"
    if length.reason is LengthReason.EPOCH:
        return f"{head}: it takes {_time(length.epoch_seconds or 0.0)}"
    return (
        f"{head}: overhead {_time(length.overhead)}, resume {_time(length.resume)}"
        f" {_TIERS[length.tier]}, a preemption expected every {duration(length.interval)}"
        f"{_BOUNDS.get(length.reason, '')}"
    )


def _time(seconds: float) -> str:
    """Return ``seconds`` in words: as ``12 ms`` below a second, otherwise by ``duration``."""
    return f"{1e3 * seconds:.3g} ms" if seconds < 1.0 else duration(seconds)


#: The strategies that pause trials and promote some of the paused trials later.
PROMOTES = set(STRATEGIES) - {"full", "pbt", *RULES}


def standing(
    study: StudyRow, spec: StudySpec, trial: TrialRow, epochs: Sequence[EpochRow]
) -> list[str]:
    """Return a list with a sentence on the rank of a trial that is paused or was stopped.

    ``epochs`` contains the epochs of the whole study. The list is empty for trials in other states,
    for trials without a finite value, and in a study with several objectives, which give no rank.
    """
    if trial.state not in {TrialState.PAUSED, TrialState.STOPPED} or len(spec.objectives) > 1:
        return []
    scores = {row.trial: row.value for row in epochs if row.epoch == trial.epoch}
    value = scores.get(trial.id, math.nan)
    if not math.isfinite(value):
        return []
    better = sum(sign(study) * other > sign(study) * value for other in scores.values())
    among = f"number {better + 1} of {len(scores)} after {count(trial.epoch, 'epoch')}"
    metric = f"its {study.shown_metric} of {number(value)}"
    return [f"{_end(study, spec, trial)}: {metric} is {among}"]


def _end(study: StudyRow, spec: StudySpec, trial: TrialRow) -> str:
    promotes = spec.strategy.name in PROMOTES
    if trial.state == TrialState.PAUSED:
        return "it is paused, and goes on if it is promoted" if promotes else "it is paused"
    if promotes and study.finished_at is not None and trial.epoch == trial.target:
        return "it was paused, and stopped at the end of its study, which did not promote it"
    return "it was stopped"  # at a limit of its study, for one, in the middle of a rung


def render(story: Story) -> RenderableType:
    """Render the story for the terminal: the cause of each attempt, then the attempt's events.

    The tracebacks follow at the end, in the full width of the terminal.
    """
    trial = story.trial
    title = Text.assemble(
        (f"trial {trial.number}", "bold"), f" of {story.study.name}  ", (trial.state, "bold")
    )
    parts: list[RenderableType] = [title, Text(_values(trial.params), style="dim")]
    if story.metrics:
        parts.append(Text(f"after epoch {trial.epoch}: {_values(story.metrics)}", style="dim"))
    parts += [Text(line, style="dim") for line in story.origins]
    parts.append(Text())
    if not story.lines:
        parts.append(Text("nothing has happened to it yet", style="dim"))
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", style="dim", no_wrap=True)
    table.add_column(justify="right", style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    attempt = None
    for line in story.lines:
        if line.attempt is not None and line.attempt != attempt:
            attempt = line.attempt
            why = f"attempt {attempt} (fence {line.fence})"
            why += f", {line.cause}" if line.cause else ""
            table.add_row("", "", Text(why, style="dim"))
            if line.length:
                table.add_row("", "", Text(line.length, style="dim"))
        if line.seq is None:
            table.add_row("", "", Text(line.cause, style="dim"))
        after = f"+{duration(max(0.0, line.after))}"
        table.add_row(after, "" if line.seq is None else f"#{line.seq}", Text(line.what))
    parts.append(table)
    # A repeated attempt often fails in the same place; such a traceback is shown once.
    for trace in dict.fromkeys(line.traceback for line in story.lines if line.traceback):
        numbers = ", ".join(f"#{line.seq}" for line in story.lines if line.traceback == trace)
        head = Text(f"the traceback of {numbers}", style="dim")
        parts += [Text(), head, Text(trace.rstrip(), style="red")]
    return Group(*parts)


def _values(values: Mapping[str, object]) -> str:
    return "  ".join(f"{name} {number(value)}" for name, value in values.items())


def find_trial(reader: Reader, name: str) -> tuple[StudyRow, TrialRow]:
    """Return the trial with the id ``name`` or the name ``STUDY/NUMBER``, and the trial's study.

    Raises UsageError if there is no such trial.
    """
    study_name, slash, last = name.rpartition("/")
    if not slash:
        for study in reversed(reader.studies()):
            if name in (study.id, study.name):
                advice = _numbers(study, reader.trials(study.id))
                raise UsageError(f"{name} is a whole study; {advice}")
        study_name, _, last = name.rpartition("-")
    if not last.isdecimal() and not slash:
        study_name = name
    study = reader.study(study_name)  # or it says which studies there are
    trials = reader.trials(study.id)
    for trial in trials:
        if last.isdecimal() and trial.number == int(last):
            return study, trial
    raise UsageError(f"there is no trial {name!r}; {_numbers(study, trials)}")


def _numbers(study: StudyRow, trials: Sequence[TrialRow]) -> str:
    if not trials:
        return f"{study.name} has no trial yet"
    return f"its trials are {study.name}/0 to {study.name}/{len(trials) - 1}"
