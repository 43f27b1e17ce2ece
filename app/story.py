"""The story of a trial: what happened to it, in order, and why, in sentences.

An event answers a decision, and a decision was taken when some other event was handled; both are
numbers in the ledger. Here they become words: *epoch 3 ended … · sent when trial 7 ended epoch 1*.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..profiling.errors import UsageError
from ..scheduler import events as happened
from ..scheduler.retry import KINDS
from .standing import duration, number

if TYPE_CHECKING:
    from ..scheduler.events import Event
    from .queries import EpochRow, Reader, StudyRow, TrialRow


@dataclass(frozen=True, slots=True)
class Line:
    """One event: seconds since the trial was proposed, its number in the ledger, what, and why."""

    after: float
    seq: int
    what: str
    cause: str
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class Story:
    """A trial, its study, and its events in order."""

    study: StudyRow
    trial: TrialRow
    lines: tuple[Line, ...]


def tell(reader: Reader, study: StudyRow, trial: TrialRow) -> Story:
    """The story of ``trial`` from the ledger."""
    events = reader.events(trial.id)
    causes = {cause for _, event in events if (cause := _taken_at(event)) is not None}
    reasons = reader.events_at(sorted(causes))
    accepted = {(r.epoch, r.fence): r for r in reader.epochs(study.id) if r.trial == trial.id}
    lines = tuple(
        Line(
            event.at - trial.created_at,
            seq,
            sentence(event, study.metric, accepted),
            because(event, trial.id, reasons),
            event.traceback if isinstance(event, happened.AttemptFailed) else "",
        )
        for seq, event in events
    )
    return Story(study, trial, lines)


def sentence(event: Event, metric: str, accepted: Mapping[tuple[int, int], EpochRow]) -> str:
    """What ``event`` says of its trial. ``accepted`` are the trial's epochs by (epoch, fence)."""
    match event:
        case happened.EpochReported():
            text = _epoch(event, metric, accepted.get((event.epoch, event.fence)))
        case happened.Durable():
            text = f"the state after epoch {event.epoch} is in the store: {event.uri}"
        case happened.Suggested():
            text = f"the sampler drew {event.name} = {number(event.value)}"
        case happened.TrialReturned():
            value = "without a value" if event.value is None else number(event.value)
            text = f"the objective returned {value}"
        case happened.AttemptFailed():
            why = KINDS.get(event.kind, event.kind)
            text = f"attempt {event.fence} failed, {why}: {event.message}"
        case happened.AttemptLost():
            how = "was refused by its node" if event.refused else "was lost"
            text = f"attempt {event.fence} {how}: {event.reason}"
        case _:
            text = type(event).__name__
    return text


def _epoch(event: happened.EpochReported, metric: str, row: EpochRow | None) -> str:
    if row is None:
        return f"epoch {event.epoch} was reported by attempt {event.fence} and did not count"
    others = [(name, value) for name, value in event.metrics if name != metric]
    metrics = ", ".join(f"{n} {number(v)}" for n, v in [(metric, row.value), *others])
    end = "; its segment ended" if event.closes else ""
    where = row.device + (f", slot {row.slot}" if row.slot else "")
    took = duration(event.seconds)
    return (
        f"epoch {event.epoch} ended on {where} after {took} (attempt {row.fence}): {metrics}{end}"
    )


def because(event: Event, trial: str, reasons: Mapping[int, Event]) -> str:
    """Why ``event`` came about: the event whose handling sent the attempt that it answers."""
    seq = _taken_at(event)
    if seq is None:
        return event.cause
    reason = reasons.get(seq)
    if reason is None:
        return f"sent at #{seq}"
    return f"sent when {_occasion(reason, trial)} (#{seq})"


def _taken_at(event: Event) -> int | None:
    """The number of the event at which the decision that ``event`` answers was taken."""
    seq, _, index = event.cause.partition(".")
    return int(seq) if seq.isdecimal() and index.isdecimal() else None


def _occasion(reason: Event, trial: str) -> str:
    match reason:
        case happened.StudySubmitted():
            text = "the study was submitted"
        case happened.Proposed():
            text = "the sampler proposed it"
        case happened.DeviceJoined():
            text = f"{reason.device.name} joined"
        case happened.DeviceLeft():
            text = f"{reason.device} left"
        case happened.EpochReported():
            text = f"{_who(reason.trial, trial)} ended epoch {reason.epoch}"
        case happened.TrialReturned():
            text = f"{_who(reason.trial, trial)} returned"
        case happened.AttemptFailed() | happened.AttemptLost():
            text = f"an attempt of {_who(reason.trial, trial)} failed"
        case happened.Tick():
            text = "its wait was over"
        case _:
            text = f"{type(reason).__name__} was handled"
    return text


def _who(other: str, trial: str) -> str:
    return "it" if other == trial else f"trial {int(other.rpartition('-')[2])}"


def render(story: Story) -> RenderableType:
    """The story for the terminal."""
    trial = story.trial
    title = Text.assemble(
        (f"trial {trial.number}", "bold"), f" of {story.study.name}  ", (trial.state, "bold")
    )
    params = "  ".join(f"{name} {number(value)}" for name, value in trial.params.items())
    parts: list[RenderableType] = [title, Text(params, style="dim"), Text()]
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", style="dim", no_wrap=True)
    table.add_column(justify="right", style="dim", no_wrap=True)
    table.add_column(ratio=3, overflow="fold")
    table.add_column(ratio=2, style="dim", overflow="fold")
    for line in story.lines:
        what: RenderableType = Text(line.what)
        if line.traceback:
            what = Group(what, Padding(Text(line.traceback.rstrip(), style="red"), (0, 0, 0, 2)))
        after = f"+{duration(max(0.0, line.after))}"
        table.add_row(after, f"#{line.seq}", what, Text(line.cause))
    parts.append(table if story.lines else Text("nothing has happened to it yet", style="dim"))
    return Group(*parts)


def find_trial(reader: Reader, name: str) -> tuple[StudyRow, TrialRow]:
    """The trial that ``name`` means: its id, or ``STUDY/NUMBER``. Raises UsageError if unknown."""
    study_name, slash, last = name.rpartition("/")
    if not slash:
        for study in reversed(reader.studies()):
            if name in (study.id, study.name):
                there = _numbers(study, reader.trials(study.id))
                raise UsageError(f"{name} is a whole study; {there}")
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
