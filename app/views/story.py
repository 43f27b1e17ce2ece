"""Tells the story of a trial: what happened to it, in order, and why, in sentences.

An event answers a decision, and a decision is taken when another event is handled. The ledger holds
the numbers of both. Here they become words: *epoch 3 ended … · sent when trial 7 ended epoch 1*.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ...profiling.base.errors import UsageError
from ...profiling.knobs.knobs import config_text
from ...scheduler.model import events as happened
from ...scheduler.model.retry import KINDS
from ...scheduler.model.snapshot import POLICY_BACKOFF
from ..common.text import count, duration, instead, number, size
from .progress import final_metrics, origins
from .system_configurations import tried

if TYPE_CHECKING:
    from ...scheduler.model.events import Event
    from ...scheduler.model.writing import Attributes
    from ..ledger.reader import Reader
    from ..ledger.rows import EpochRow, StudyRow, TrialRow


#: The shortest pause without a running epoch, in seconds, that the story mentions.
LONG = 1.0


@dataclass(frozen=True, slots=True)
class Line:
    """One event of a trial."""

    #: Seconds since the trial was proposed.
    after: float
    #: The event's number in the ledger.
    seq: int
    #: What happened, and why; ``cause`` may be empty.
    what: str
    cause: str
    #: The attempt that reported it: its number in the trial, from 1, and its fence; None if none
    #: did.
    attempt: int | None = None
    fence: int | None = None
    #: The traceback of a failure; otherwise empty.
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class Story:
    """A trial, its study, its events in order, and all metrics of its last accepted epoch.

    ``origins`` says which trial a forked trial continues, and which trials continue this one.
    """

    study: StudyRow
    trial: TrialRow
    lines: tuple[Line, ...]
    metrics: dict[str, float]
    origins: tuple[str, ...] = ()


def trial_story(reader: Reader, study: StudyRow, trial: TrialRow) -> Story:
    """The story of ``trial`` from the ledger."""
    study = reader.with_names(study)
    events = reader.events(trial.id)
    causes = {cause for _, event in events if (cause := _taken_at(event)) is not None}
    reasons = reader.events_at(sorted(causes))
    epochs = reader.epochs(study.id)
    accepted = {(row.epoch, row.fence): row for row in epochs if row.trial == trial.id}
    fences = sorted({fence for _, event in events if (fence := _fence(event)) is not None})
    attempts = {fence: number for number, fence in enumerate(fences, 1)}
    lines = tuple(
        Line(
            event.at - trial.created_at,
            seq,
            sentence(event, study.shown_metric, accepted, attempts),
            cause_words(event, trial.id, reasons),
            None if (fence := _fence(event)) is None else attempts[fence],
            fence,
            event.traceback if isinstance(event, happened.AttemptFailed) else "",
        )
        for seq, event in events
    )
    if not lines and (found := reader.imported(study.id)) is not None:
        seq, past = found
        what = "it was imported: its story is in the ledger that it was exported from"
        lines = (Line(past.at - trial.created_at, seq, what, ""),)
    until = trial.finished_at or math.inf
    lines += tuple(
        Line(event.at - trial.created_at, seq, planless(event), "")
        for seq, event in reader.policy_failures()
        if max(study.created_at, trial.created_at - POLICY_BACKOFF) <= event.at <= until
    )
    lines = tuple(sorted(lines, key=lambda line: line.seq))
    parts = origins(trial, reader.trials(study.id))
    return Story(study, trial, lines, final_metrics(trial, epochs), tuple(parts))


def planless(event: happened.PolicyFailed) -> str:
    """A sentence: a user's policy gave no plan, why, and what follows."""
    return f"policy {event.policy or 'of yours'} {event.reason}: {instead()}"


def _fence(event: Event) -> int | None:
    """The fence of the attempt that reported ``event``; None if its user did, or the scheduler."""
    return getattr(event, "fence", None) or None


def sentence(
    event: Event,
    metric: str,
    accepted: Mapping[tuple[int, int], EpochRow],
    attempts: Mapping[int, int],
) -> str:
    """``event`` as a sentence.

    ``accepted`` are the trial's epochs by (epoch, fence), ``attempts`` the numbers of its attempts
    by fence.
    """
    attempt = f"attempt {attempts.get(_fence(event) or 0)}"
    match event:
        case happened.EpochReported():
            last = (row for (epoch, _), row in accepted.items() if epoch == event.epoch - 1)
            before = next(last, None)
            row = accepted.get((event.epoch, event.fence))
            text = _epoch(event, metric, row, before, attempt) + _signatures(event, before)
        case happened.Durable():
            text = f"the state after epoch {event.epoch} is in the store"
        case happened.Undurable():
            text = f"its state could not be written to the store: {event.reason}"
        case happened.Replayed() | happened.Remarked():
            text = _remark(event, attempt)
        case happened.WindowsMeasured() | happened.Profiled() | happened.FootprintReported():
            text = _measured(event)
        case happened.WidthsMeasured():
            text = _widths(event)
        case happened.Suggested():
            text = f"the sampler drew {event.name} = {number(event.value)}"
        case happened.TrialReturned():
            text = _returned(event)
        case happened.TrialTold() | happened.TrialAdded() | happened.TrialWritten():
            text = _by_hand(event, metric)
        case happened.AttemptFailed() | happened.AttemptLost():
            text = _ended(event, attempt)
        case _:
            text = type(event).__name__
    return text


def _epoch(
    event: happened.EpochReported,
    metric: str,
    row: EpochRow | None,
    before: EpochRow | None,
    attempt: str,
) -> str:
    if row is None:
        return f"epoch {event.epoch} was reported by {attempt} and did not count"
    where = row.device + (f", slot {row.slot}" if row.slot else "")
    if row.width > 1:
        where = ", ".join(device for device, _ in row.members)
    if row.system:
        where += f" with {config_text(row.system)}"
    if before is not None and before.width != row.width:
        where += f" ({row.width} devices after {before.width})"
    took, value = duration(event.seconds), number(row.value)
    text = f"epoch {event.epoch} ended on {where} after {took}: {metric} {value}"
    stood = 0.0 if before is None else row.at - row.seconds - before.at
    return f"{text}; it had stood for {duration(stood)}" if stood > LONG else text


def _remark(event: happened.Replayed | happened.Remarked, attempt: str) -> str:
    if isinstance(event, happened.Remarked):
        return f"{attempt} runs, but {event.text}"
    epochs = f"epoch {event.first} is"
    if event.last > event.first:
        epochs = f"epochs {event.first} to {event.last} are"
    text = f"{epochs} computed again by {attempt}"
    return text + (f": {event.reason}" if event.reason else "")


def _ended(event: happened.AttemptFailed | happened.AttemptLost, attempt: str) -> str:
    if isinstance(event, happened.AttemptLost):
        how = "was refused by its node" if event.refused else "was lost"
        return f"{attempt} {how}: {event.reason}"
    why = KINDS.get(event.kind, event.kind)
    during = f" while {config_text(event.trying)} was tried" if event.trying else ""
    return f"{attempt} failed{during}, {why}: {event.message}"


def _by_hand(
    event: happened.TrialTold | happened.TrialAdded | happened.TrialWritten, metric: str
) -> str:
    """What the trial's user did, or its objective."""
    match event:
        case happened.TrialAdded():
            return f"its user {_added(event)}"
        case happened.TrialWritten():
            return f"{'the objective' if event.fence else 'its user'} {_written(event)}"
    failed = f"that it failed {event.reason}".rstrip()
    return f"its user told {failed if event.value is None else f'{metric} {number(event.value)}'}"


def _added(event: happened.TrialAdded) -> str:
    """What the user did who added a trial."""
    values = f": {', '.join(map(number, event.values))}" if event.values else ""
    return {
        "running": "asked for it",
        "waiting": "enqueued it",
        "complete": f"added it with its result{values}",
        "pruned": f"added it as pruned{values}",
    }.get(event.state, "added it as failed")


def _written(event: happened.TrialWritten) -> str:
    """What an objective or a user wrote of the trial, and did with it."""
    writing, parts = event.writing, []
    if writing.suggestions:
        suggested = ", ".join(f"{each.name} = {number(each.value)}" for each in writing.suggestions)
        parts.append(f"drew {suggested}")
    if writing.steps:
        steps = ", ".join(f"{number(value)} at step {step}" for step, value in writing.steps)
        parts.append(f"reported {steps}")
    if writing.user_attrs:
        parts.append(f"set {_names('attribute', writing.user_attrs)}")
    if writing.system_attrs:
        parts.append(f"noted Optuna's own {_names('attribute', writing.system_attrs)}")
    values = ", ".join(map(number, event.values))
    told = {
        "running": "took it",
        "complete": f"told the result {values}",
        "pruned": "pruned it",
        "fail": f"told that it failed {event.reason}".rstrip(),
    }
    parts += [told[event.state]] if event.state in told else []
    return ", ".join(parts) or "wrote nothing"


def _names(noun: str, attributes: Attributes) -> str:
    plural = "" if len(attributes) == 1 else "s"
    return f"{noun}{plural} {', '.join(name for name, _ in attributes)}"


def _footprint(event: happened.FootprintReported) -> str:
    if event.failed:
        return f"the memory that {event.of} needs could not be estimated: {event.failed}"
    how = "was measured" if event.measured else "was estimated"
    need = f"{size(event.footprint.peak)}, {size(event.footprint.persistent)} of it between steps"
    return f"the memory that {event.of} needs {how}: {need}"


def _measured(
    event: happened.WindowsMeasured | happened.Profiled | happened.FootprintReported,
) -> str:
    """A footprint, a profile's counters, or each system configuration's result."""
    if isinstance(event, happened.FootprintReported):
        return _footprint(event)
    if isinstance(event, happened.Profiled):
        return f"epoch {event.epoch} was profiled: {len(event.values)} rates and ratios"
    found = tried([event])
    parts = [
        f"{config_text(each.config)} took {1 / each.speed:.2f} of the default's seconds a step"
        + ("" if each.energy is None else f" and {each.energy:.2f} of its joules")
        for each in found
        if each.speed
    ]
    parts += [
        f"{config_text(each.config)} cannot be run: {each.failed}" for each in found if each.failed
    ]
    wasted = sum(window.wasted for window in event.windows)
    return f"system parameters were tried, which cost {duration(wasted)}: {'; '.join(parts)}"


def _widths(event: happened.WidthsMeasured) -> str:
    """Seconds a step by width, or why there are none."""
    steps = [f"{duration(took)} on {count(width, 'device')}" for width, took in event.seconds]
    text = f"steps were measured: {', '.join(steps)}" if steps else "its epochs have too few steps"
    if event.meeting and not event.met:
        text += f"; the other devices had not met in {duration(event.meeting)}"
    return text


def _signatures(event: happened.EpochReported, before: EpochRow | None) -> str:
    """A note if the epoch's numeric signature differs from that of the epoch before it."""
    if before is None or before.signature == event.signature:
        return ""
    return f"; computed under {event.signature}, epoch {before.epoch} under {before.signature}"


def cause_words(event: Event, trial: str, reasons: Mapping[int, Event]) -> str:
    """Why ``event`` happened: the event whose handling sent the attempt that it answers."""
    seq = _taken_at(event)
    if seq is None:
        return event.cause
    reason = reasons.get(seq)
    if reason is None:
        return f"sent at #{seq}"
    return f"sent when {_occasion(reason, trial)} (#{seq})"


def _taken_at(event: Event) -> int | None:
    """The number of the event that led to the decision which ``event`` answers."""
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


def _occasion(reason: Event, trial: str) -> str:
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
            text = f"{_who(reason.trial, trial)} ended epoch {reason.epoch}"
        case happened.TrialReturned():
            text = f"{_who(reason.trial, trial)} returned"
        case happened.AttemptFailed() | happened.AttemptLost():
            text = f"an attempt of {_who(reason.trial, trial)} failed"
        case _:
            text = _OCCASIONS.get(type(reason), f"{type(reason).__name__} was handled")
    return text


def _who(other: str, trial: str) -> str:
    if other == trial:
        return "it"
    study, _, last = other.rpartition("-")
    of = "" if study == trial.rpartition("-")[0] else f" of another study, {study},"
    return f"trial {int(last)}{of}"


def render(story: Story) -> RenderableType:
    """The story for the terminal: the cause of each attempt, and below it what the attempt did.

    Tracebacks follow at the end, over the terminal's whole width.
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
        after = f"+{duration(max(0.0, line.after))}"
        table.add_row(after, f"#{line.seq}", Text(line.what))
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
    """The trial with the id ``name`` or ``STUDY/NUMBER``. Raises UsageError if unknown."""
    study_name, slash, last = name.rpartition("/")
    if not slash:
        for study in reversed(reader.studies()):
            if name in (study.id, study.name):
                advice = _numbers(study, reader.trials(study.id))
                raise UsageError(f"{name} is a whole study; {advice}")
        study_name, _, last = name.rpartition("-")
    if not study_name or not last.isdecimal():
        raise UsageError.refuse("trial", name, "a trial's id, or STUDY/NUMBER")
    study = reader.study(study_name)
    trials = reader.trials(study.id)
    for trial in trials:
        if trial.number == int(last):
            return study, trial
    raise UsageError(f"there is no trial {name!r}; {_numbers(study, trials)}")


def _numbers(study: StudyRow, trials: Sequence[TrialRow]) -> str:
    if not trials:
        return f"{study.name} has no trial yet"
    return f"its trials are {study.name}/0 to {study.name}/{len(trials) - 1}"


def _returned(event: happened.TrialReturned) -> str:
    values = [] if event.value is None else [event.value, *event.further]
    text = f"the objective returned {', '.join(map(number, values)) or 'without a value'}"
    text = "the objective pruned it" if event.pruned else text
    left = f"; {event.left} processes that it had started still ran: they end with its trainer"
    return text + (left if event.left else "")
