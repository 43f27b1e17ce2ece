"""Lists and describes studies for ``ls`` and ``status``, for the terminal and as JSON."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from ..common.text import duration, number, share_words
from ..ledger.codec import spec_from_json
from ..ledger.forecast import forecast_of
from ..views.delays import Delays, delay_words, delays_of, summary
from ..views.live import Watcher
from ..views.progress import View, failure_words, status_word
from ..views.screen import STATUS_STYLE, study_screen
from ..views.spending import late_words, spent_facts, spent_words
from ..views.utilisation import usage_of, words
from .failure_logs import failure_logs

if TYPE_CHECKING:
    from ..host.settings import Settings
    from ..ledger.reader import Reader
    from ..ledger.rows import StudyRow, TrialRow

Facts = dict[str, Any]

#: The part of a line's width that metrics' names may take in the list of studies.
METRIC = 5


def study_facts(reader: Reader, study: StudyRow, *, still: bool = False) -> Facts:
    """A study in one row: its identity and its progress. Times are seconds since 1970.

    ``still`` as in ``View``.
    """
    return view_facts(replace(Watcher(reader, study.id).poll(), still=still))


def view_facts(view: View) -> Facts:
    """As ``study_facts``, of a study that was read already."""
    study, progress = view.study, view.progress
    best = progress.best
    return {
        "id": study.id,
        "name": study.name,
        "status": study.status,
        "stands_still": view.still,
        "message": study.message,
        "direction": study.direction,
        "metric": study.metric,
        "objectives": [asdict(each) for each in study.objectives],
        "strategy": study.strategy,
        "sampler": study.sampler,
        "seed": study.seed,
        "seeding": study.seeding,
        "replicates": study.replicates,
        "created_at": study.created_at,
        "finished_at": study.finished_at,
        "response_seconds": study.response,
        "weight": study.weight,
        "priority": study.priority,
        "n_trials": None if study.endless else study.n_trials,
        "copied_trials": study.observations,
        "enqueued_trials": progress.enqueued,
        "trials_over": progress.final,
        "trials_expected": progress.trials,
        "trials": {str(state): count for state, count in sorted(progress.counts.items())},
        "epochs": progress.epochs,
        "epochs_expected": progress.expected,
        "eta_seconds": view.eta,
        "best": None if best is None or study.further else _trial(best),
        "best_mean": None if best is None or study.further else progress.best_mean,
        "front": [trial.number for trial in progress.front],
    }


def _trial(trial: TrialRow) -> Facts:
    failure = trial.failure_kind and {
        "kind": trial.failure_kind,
        "message": trial.failure_message,
        "traceback": trial.failure_traceback,
    }
    finite = trial.value is not None and math.isfinite(trial.value)
    return {
        "id": trial.id,
        "number": trial.number,
        "state": trial.state,
        "epoch": trial.epoch,
        "target": trial.target,
        "value": trial.value if finite else None,
        "values": [value if math.isfinite(value) else None for value in trial.values],
        "constraints": trial.constraints,
        "params": trial.params,
        "device": trial.device or None,
        "slot": trial.slot,
        "failure": failure,
    }


def study_table(studies: list[Facts]) -> RenderableType:
    """The studies, oldest first, one line each unless a name is too long for the terminal."""
    if not studies:
        return Text("there is no study yet: start one with `penstock run SCRIPT`", style="dim")
    shares = [
        Text(f"{facts['name']} has {words}", style="dim")
        for facts in studies
        if facts["finished_at"] is None
        and (words := share_words(facts["weight"], facts["priority"]))
    ]
    how = "no scheduler is running: unfinished studies go on with `penstock up`"
    still = any(facts["stands_still"] for facts in studies)
    notes = [Text(how, style="yellow")] if still else []
    return Group(_Studies(studies), *notes, *shares)


class _Studies:
    """The table, whose last column takes a part of the width that there is."""

    def __init__(self, studies: list[Facts]) -> None:
        self._studies = studies

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
        table.add_column("study", overflow="fold")
        for title in ("status", "trials", "epochs", "took", "best (last)"):
            table.add_column(title, justify="left" if title == "status" else "right", no_wrap=True)
        width = max(1, options.max_width // METRIC)
        table.add_column("metric", no_wrap=True, overflow="ellipsis", max_width=width)
        for facts in self._studies:
            table.add_row(*_row(facts))
        yield table


def _row(facts: Facts) -> Iterator[RenderableType]:
    best, status = facts["best"], status_word(facts["status"], still=facts["stands_still"])
    yield Text(facts["name"], style="bold")
    yield Text(status, style=STATUS_STYLE.get(status, ""))
    yield from (done_words(facts, what) for what in ("trials", "epochs"))
    yield "" if facts["response_seconds"] is None else duration(facts["response_seconds"])
    yield number(best["value"]) if best else _front(facts)
    yield Text(", ".join(each["metric"] for each in facts["objectives"]), style="dim")


def done_words(facts: Facts, what: str) -> str:
    """``7/9``: so many ``trials`` are over, or ``epochs`` trained, of those that there will be.

    ``7`` where nobody knows how many there will be.
    """
    if what == "trials":
        done, total = facts["trials_over"], facts["trials_expected"]
    else:
        done, total = facts["epochs"], facts["epochs_expected"] or None
    return _short(done) if total is None else f"{_short(done)}/{_short(total)}"


def _short(n: int) -> str:
    """A count in few characters: ``80``, ``2.5e+06``."""
    return str(n) if n < 1_000_000 else f"{n:.3g}"


def _front(facts: Facts) -> str:
    return f"front of {len(facts['front'])}" if facts["front"] else ""


def status_facts(
    reader: Reader, study: StudyRow, waits: str | None = None, *, still: bool = False
) -> Facts:
    """A study with all its trials. ``waits`` says why it makes no progress (``status.waiting``).

    ``still`` as in ``View``.
    """
    view = replace(Watcher(reader, study.id).poll(), still=still)
    found = usage_of(reader, study)
    delays = _delays(reader, study, view)
    return view_facts(view) | {
        "waits": waits,
        "environment": study.environment or None,
        "all_trials": [_trial(trial) for trial in view.trials],
        "spent": spent_facts(view.study, time.time()),
        "misses_deadline_by": None if still else _misses_by(reader, view.study),
        "usage": None if found is None else asdict(found) | {"share": found.share},
        "delays": None if delays is None else asdict(delays),
    }


def _misses_by(reader: Reader, study: StudyRow) -> float | None:
    """By how many seconds the study is expected to miss its deadline; 0 if it meets it.

    None: it has none, or nothing is known yet.
    """
    if spec_from_json(study.spec_json).deadline is None:
        return None
    found = forecast_of(reader, study, time.time())
    return None if found is None else found.misses


def _delays(reader: Reader, study: StudyRow, view: View) -> Delays | None:
    """How long the study's trials waited and took so far; None before the first epoch."""
    plan = spec_from_json(study.spec_json).strategy
    return summary(delays_of(study, plan, view.trials, reader.epochs(study.id)))


def status_view(
    reader: Reader,
    study: StudyRow,
    settings: Settings,
    waits: str | None = None,
    *,
    still: bool = False,
) -> RenderableType:
    """A study as the live view shows it, why it makes no progress, all failures, and logs.

    Of the logs it shows the ends that tell why. ``still`` as in ``View``.
    """
    view = replace(Watcher(reader, study.id).poll(), still=still)
    parts: list[RenderableType] = [study_screen(view, time.time())]
    if study.environment:
        parts.append(Text(f"its trials run in {study.environment}", style="dim"))
    if waits:
        parts.append(Text(waits, style="yellow"))
    if spent := spent_words(view.study, time.time()):
        parts.append(Text(spent, style="dim"))
    if not still and (late := late_words(_misses_by(reader, view.study))):
        parts.append(Text(late, style="yellow"))
    if (found := usage_of(reader, study)) is not None:
        parts.append(Text(words(found), style="dim"))
    if (delays := _delays(reader, study, view)) is not None:
        parts.append(Text(delay_words(delays), style="dim"))
    for trial in view.trials:
        if trial.failure_kind:
            what = f"trial {trial.number} {failure_words(trial)}"
            parts += [Text(), Text(what, style="red")]
            if trial.failure_traceback:
                parts.append(Text(trial.failure_traceback.rstrip(), style="dim"))
    known = [record.device for record in view.devices]
    for what, end in failure_logs(settings, study, view.trials, known):
        parts += [Text(), Text(what, style="yellow"), Text(end, style="dim")]
    return Group(*parts)
