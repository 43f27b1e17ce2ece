"""Render a study: turn rows of the ledger into Rich renderables and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ....profiling.devices.device import slot_name, with_several_slots
from ....scheduler.model.trial import TOLD, TrialState
from ...common.text import STATUS_STYLE, count, duration, number, share_words, sparkline
from ...ledger.summary import ranked
from .progress import (
    StudyProgress,
    best_who,
    best_words,
    objective_words,
    reached,
    scores,
    search_words,
    so_far,
    told,
    violated,
)

if TYPE_CHECKING:
    from ...ledger.rows import StudyRow, TrialRow
    from .progress import View

FULL_TABLE = 15  # with more trials than this only the important ones are listed
BEST_SHOWN, FAILED_SHOWN = 5, 3
SPARKS = 12  # values in a sparkline, the newest

LOOKS = {
    TrialState.PROPOSED: ("○", "dim"),
    TrialState.WAITING: ("○", "dim"),
    TrialState.RUNNING: ("●", "bold cyan"),
    TrialState.PAUSED: ("‖", "yellow"),
    TrialState.COMPLETED: ("✓", "green"),
    TrialState.STOPPED: ("■", "dim"),
    TrialState.FAILED: ("✗", "bold red"),
    TrialState.CANCELLED: ("-", "yellow"),
}


def sentence(study: StudyRow, trial: TrialRow) -> str:
    text = f"trial {trial.number} {reached(trial)}"
    if trial.failure_kind:
        return f"{text}: {_failure(trial)}"
    if trial.value is None:
        return text if trial.feasible else f"{text} (violates {violated(trial)})"
    return f"{text}, {scores(study, trial)}"


def progress_words(view: View) -> str:
    progress = view.progress
    parts = [part for part in (_epochs(progress), _trials(progress)) if part]
    if view.study.further and progress.front:
        parts.append(f"{best_words(view.study)}: {count(len(progress.front), 'trial')}")
    elif progress.best is not None:
        best = f"best{so_far(view.study)} {view.study.shown_metric} {number(progress.best_mean)}"
        trained = f", {count(progress.best.epoch, 'epoch')}" if progress.best.epoch else ""
        parts.append(f"{best} ({best_who(view.study, progress.front)}{trained})")
    if view.eta is not None:
        parts.append(f"about {duration(view.eta)} left")
    return ", ".join(parts)


def _epochs(progress: StudyProgress) -> str:
    """Return ``9/63 epochs``. The result is empty for an objective that has reported no epoch."""
    if progress.expected:
        return f"{progress.epochs}/{progress.expected} epochs"
    return count(progress.epochs, "epoch") if progress.epochs else ""


def _trials(progress: StudyProgress) -> str:
    """Return ``7/9 trials``, or ``7 trials`` if the expected number is not known."""
    if progress.trials is None:
        return count(progress.done, "trial")
    return f"{progress.done}/{progress.trials} trials"


def study_screen(view: View, now: float) -> RenderableType:
    """Render ``view`` for the terminal. ``now`` is the present time in seconds since 1970."""
    listed = select(view.study, view.trials)
    parts = [_header(view, now), Text(), _table(view, listed)]
    hidden = [trial for trial in view.trials if trial not in listed]
    if hidden:
        parts.append(_others(hidden))
    return Group(*parts, Text(), _devices(view))


def select(study: StudyRow, trials: Sequence[TrialRow]) -> list[TrialRow]:
    """Return the trials to list: all trials, or only the important trials if there are many.

    With more than ``FULL_TABLE`` trials, the list has the running trials, the best trials, and the
    trials that failed last.
    """
    if len(trials) <= FULL_TABLE:
        return list(trials)
    running = [trial for trial in trials if trial.state == TrialState.RUNNING]
    best = [trial for trial in ranked(study, trials) if trial not in running][:BEST_SHOWN]
    failed = [trial for trial in trials if trial.state == TrialState.FAILED]
    newest = sorted(failed, key=lambda trial: trial.finished_at or 0.0)[-FAILED_SHOWN:]
    return running[: FULL_TABLE - BEST_SHOWN] + best + newest


def _header(view: View, now: float) -> RenderableType:
    study, progress = view.study, view.progress
    how = f"{objective_words(study)} · {search_words(study)}"
    if study.seeding == "shared":
        each = f", {study.replicates} replicates" if study.replicates > 1 else ""
        how += f" · shared seeding{each}"
    if shares := share_words(study.weight, study.priority):
        how += f" · {shares}"
    if study.observations:
        how += f" · {study.observations} copied"
    status = (view.status, STATUS_STYLE.get(view.status, ""))
    title = Text.assemble((study.name, "bold"), "  ", status, "  ", (how, "dim"))
    bar = Table.grid(padding=(0, 2))
    bar.add_row(*_bar(progress), _epochs(progress), _trials(progress), _clock(view, now))
    parts: list[RenderableType] = [title, bar]
    if study.further and progress.front:
        numbers = ", ".join(str(trial.number) for trial in progress.front)
        words = (count(len(progress.front), "trial"), "bold green")
        parts.append(Text.assemble(f"{best_words(study)}  ", words, (f"  {numbers}", "dim")))
    elif progress.best is not None:
        value = (number(progress.best_mean, 5), "bold green")
        subject = f"  {best_who(study, progress.front)}, {reached(progress.best)}  "
        params = (_params(progress.best), "dim")
        parts.append(Text.assemble(f"best{so_far(study)} ", value, subject, params))
    if progress.enqueued:
        notice = f"not run: {count(progress.enqueued, 'enqueued trial')}"
        parts.append(Text(notice, style="yellow"))
    if study.message:
        parts.append(Text(study.reason, style="yellow"))
    return Group(*parts)


def _bar(progress: StudyProgress) -> list[RenderableType]:
    """Return a progress bar. The result is empty if the total is not known."""
    total = progress.expected or progress.trials
    if total is None:
        return []
    completed = progress.epochs if progress.expected else progress.done
    look: dict[str, Any] = {"complete_style": "cyan", "finished_style": "green"}
    return [ProgressBar(total=max(total, 1), completed=completed, width=24, **look)]


def _clock(view: View, now: float) -> str:
    passed = duration(max(0.0, (view.study.finished_at or now) - view.study.created_at))
    if view.study.finished_at is not None:
        return f"in {passed}"
    eta = "" if view.eta is None else f", about {duration(view.eta)} left"
    return f"{passed}{eta}"


def _table(view: View, shown: Sequence[TrialRow]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    right: dict[str, Any] = {"justify": "right"}
    for title, more in (
        ("trial", right),
        ("state", {}),
        ("epoch", right),
        *((each.metric, right) for each in view.study.objectives),
        ("", {"width": SPARKS}),
        ("device", {}),
        ("parameters", {"ratio": 1}),
    ):
        table.add_column(title, no_wrap=True, overflow="ellipsis", **more)
    table.expand = True
    low, high = _range(view.curves)
    front = {trial.id for trial in view.progress.front}
    several = with_several_slots(record.device for record in view.devices)
    for trial in shown:
        mark, style = LOOKS[TrialState(trial.state)]
        best = trial.id in front
        values = view.curves.get(trial.id, [])[-SPARKS:]
        table.add_row(
            str(trial.number),
            Text(f"{mark} {trial.state}", style=style),
            f"{trial.epoch}/{trial.target}" if 0 < trial.target < 10**6 else str(trial.epoch),
            *_values(view.study, trial, "bold" if best else ""),
            Text(sparkline(values, low, high), style="green" if best else "cyan"),
            slot_name(trial.device, trial.slot, several)
            if trial.state == TrialState.RUNNING
            else "",
            _detail(trial),
        )
    return table


def _values(study: StudyRow, trial: TrialRow, style: str) -> list[Text]:
    """Return the trial's values, one table cell for each objective."""
    digits = 5 if study.further else 4
    texts = [number(value, digits) for value in trial.values] or [""] * len(study.objectives)
    return [Text(each, style if trial.feasible else "dim strike") for each in texts]


def _detail(trial: TrialRow) -> Text:
    params = Text(_params(trial))
    if not trial.failure_kind:
        return params
    why = Text(_failure(trial), style="red")
    return Text("\n").join([params, why]) if params else why  # one is not cut for the other


def _failure(trial: TrialRow) -> str:
    if trial.failure_kind == TOLD:
        return told(trial)
    return f"{trial.failure_kind}: {trial.failure_message}"


def _params(trial: TrialRow) -> str:
    return "  ".join(f"{name} {number(value, 3)}" for name, value in trial.params.items())


def _range(curves: dict[str, list[float]]) -> tuple[float, float]:
    """Return the lowest and the highest value to show in the sparklines.

    The outermost twentieth of the values on either side is left out.
    """
    values = sorted(value for curve in curves.values() for value in curve)
    if not values:
        return 0.0, 0.0
    cut = len(values) // 20
    return values[cut], values[len(values) - 1 - cut]


def _others(hidden: Sequence[TrialRow]) -> Text:
    counts = {state: sum(trial.state == state for trial in hidden) for state in TrialState}
    words = [f"{count} {state}" for state, count in counts.items() if count]
    return Text(f"and {', '.join(words)}", style="dim")


def _devices(view: View) -> Text:
    """Return a line with each device and its work."""
    text = Text(overflow="ellipsis", no_wrap=True)
    for record in view.devices:
        if record.gone:
            continue
        text.append(f"{record.device.name} ", style="dim")
        slots = [(record.device.name, slot) for slot in range(record.device.slots)]
        at_work = sum(slot in view.running for slot in slots)
        for slot in range(record.device.slots):
            work = view.running.get((record.device.name, slot))
            if work is None:
                idle = record.state == "joined" and not at_work
                text.append("idle " if idle and slot == 0 else "", style="dim")
            elif work.study == view.study.name:
                text.append(f"trial {work.number} ", style="cyan")
            else:
                text.append(f"busy with {work.study} ", style="dim")
        if at_work > 1:
            lanes = {record.device.lane(slot[1]) for slot in slots if slot in view.running}
            how = f"in {count(len(lanes), 'lane')}" if record.device.seats > 1 else "share it"
            text.append(f"({at_work} {how}) ", style="dim")
        text.append("" if record.state == "joined" else f"{record.state} ", style="yellow")
        text.append("  ")
    return text if text.plain else Text(_no_device(view), style="yellow")


def _no_device(view: View) -> str:
    if not view.devices:
        return "no device has joined yet"
    if view.study.finished_at is not None:
        return "no device is here"
    return "no device is here: start workers with `penstock up`"
