"""The list of studies, for the terminal and as JSON.

This module does not import ``listing``, which shows a single study. Importing ``listing`` takes
longer than reading a thousand studies.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.segment import Segment
from rich.text import Text

from ...common.text import STATUS_STYLE, duration, number, share_words, status_word
from ...ledger.databases.read_only import ReadOnly
from ...ledger.listed import Listed, read_listed

if TYPE_CHECKING:
    from ...ledger.reader import Reader
    from ...ledger.rows import StudyRow, TrialRow
    from ..views.progress import StudyProgress

Facts = dict[str, Any]

#: ``TITLES`` contains the titles of all columns. ``RIGHT`` contains the titles of columns with
#: numbers, which are aligned to the right.
RIGHT = ("trials", "epochs", "took", "best (last)")
TITLES = ("study", "status", "started", *RIGHT, "metric")
GAP = "  "
#: The divisor that gives the largest width of metrics' names, from the width of a line.
METRIC = 5
#: The statuses of a study that ended before all its trials were done.
_CUT_SHORT = ("cancelled", "failed")


def studies_facts(url: str, serves: Callable[[], bool]) -> list[Facts]:
    """Return the facts about each study in the ledger at ``url``, oldest study first.

    ``serves`` returns True if a scheduler runs. It is called only if the answer matters.
    """
    ledger = ReadOnly(url)
    studies = [] if ledger.is_empty() else read_listed(ledger)
    # Without a scheduler the ledger still says "running" for studies that ran when the last
    # scheduler ended.
    still = any(each.status == "running" for each in studies) and not serves()
    stored = [each.facts for each in studies]
    going = {} if all(stored) else _read_going(ledger, still=still)
    return [
        facts or going.get(study.id) or _read(url, study, still=still)
        for facts, study in zip(stored, studies, strict=True)
    ]


def _read_going(ledger: ReadOnly, *, still: bool) -> dict[str, Facts]:
    """Return the facts about unfinished studies, by id, if SQLAlchemy is not needed for that.

    The result is empty if the database cannot be read without SQLAlchemy. Studies with shared
    seeding are left out, since all their epochs are needed to find the epochs that trials take over
    from each other.
    """
    from ...ledger.listed import read_going
    from ...ledger.summary import epochs_of, facts_of
    from ..views.progress import RECENT, epochs_expected, time_left

    by_study = {}
    for study, trials, recent in read_going(ledger, RECENT).values():
        if study.seeding == "shared":  # what trials take over is seen from all epochs
            continue
        epochs, stands = epochs_of(trials), still and study.status == "running"
        expected = epochs_expected(study, trials, epochs)
        eta = None if stands else time_left(study, trials, epochs, recent, expected)
        by_study[study.id] = facts_of(
            study, trials, epochs=epochs, epochs_expected=expected, eta=eta, still=stands
        )
    return by_study


def _read(url: str, study: Listed, *, still: bool) -> Facts:
    from ...ledger.reader import Reader

    reader = Reader(url)
    return study_facts(reader, reader.study(study.id), still=still and study.status == "running")


def study_facts(reader: Reader, study: StudyRow, *, still: bool = False) -> Facts:
    """Return the facts about a study (``summary.facts_of``), read from the ledger.

    ``still`` is True if the study stands still because no scheduler runs.
    """
    from ..views.progress import study_progress

    study = reader.with_names(study)
    trials, epochs = reader.trials(study.id), reader.epochs(study.id)
    progress = study_progress(study, trials, epochs)
    return progress_facts(study, trials, progress, still=still)


def progress_facts(
    study: StudyRow, trials: Sequence[TrialRow], progress: StudyProgress, *, still: bool
) -> Facts:
    """Return the facts about a study from its progress, in the form of ``study_facts``."""
    from ...ledger.summary import facts_of

    return facts_of(
        study,
        trials,
        epochs=progress.epochs,
        epochs_expected=progress.expected,
        eta=None if still else progress.eta,
        still=still,
    )


def study_table(studies: list[Facts]) -> RenderableType:
    """Return a table of the studies. Each study takes one line unless its name is too long."""
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
    """The table of studies, fitted to the terminal.

    Long names of studies are folded, and long lists of metrics are cut. Tables of Rich take a
    millisecond for each line, which is too slow for a thousand studies.
    """

    def __init__(self, studies: list[Facts]) -> None:
        self._studies = studies

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = [TITLES, *map(_row, self._studies)]
        widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
        rest = options.max_width - sum(widths[1:-1]) - len(GAP) * (len(widths) - 1)
        # Names of studies take precedence, since users copy them from here.
        least = max(rest - widths[0], rest // 2)
        widths[-1] = max(1, min(widths[-1], options.max_width // METRIC, least))
        widths[0] = max(1, min(widths[0], rest - widths[-1]))
        dim, bold, plain = (console.get_style(name) for name in ("dim", "bold", "none"))
        looks = {word: console.get_style(style) for word, style in STATUS_STYLE.items()}
        for index, row in enumerate(rows):
            name, *folded = chop_cells(row[0], widths[0])
            first = [name, *row[1:-1], _cut(row[-1], widths[-1])]
            styles = [bold, looks.get(row[1], plain), *[plain] * (len(row) - 3), dim]
            for cell, width, title, style in zip(first, widths, TITLES, styles, strict=True):
                spaces = " " * (width - cell_len(cell))
                text = spaces + cell if title in RIGHT else cell + spaces
                yield Segment(text + ("" if title is TITLES[-1] else GAP), style if index else dim)
            yield Segment.line()
            for part in folded:
                yield from (Segment(part, bold), Segment.line())


def _cut(text: str, width: int) -> str:
    return text if cell_len(text) <= width else f"{set_cell_size(text, width - 1)}…"


def _row(facts: Facts) -> tuple[str, ...]:
    best = facts["best"]
    return (
        facts["name"],
        status_word(facts["status"], still=facts["stands_still"]),
        started_words(facts),
        done_words(facts, "trials"),
        done_words(facts, "epochs"),
        took_words(facts),
        number(best["value"]) if best else _front(facts),
        ", ".join(each["metric"] for each in facts["objectives"]),
    )


def started_words(facts: Facts) -> str:
    """Return the local time of a study's submission, as ``21:05``, ``27-Nov`` or ``2025``.

    The text is the time for a study of today, the day for a study of this year, else the year.
    """
    at, now = time.localtime(facts["created_at"]), time.localtime()
    if at[:3] == now[:3]:
        return time.strftime("%H:%M", at)
    return time.strftime("%d-%b" if at.tm_year == now.tm_year else "%Y", at)


def took_words(facts: Facts) -> str:
    """Return the time from a study's submission to its end, or until now. Pauses are included.

    The result is empty while no scheduler runs, since it is not known how long the study has stood
    still.
    """
    if facts["stands_still"]:
        return ""
    took = facts["response_seconds"]
    return duration(max(0.0, time.time() - facts["created_at"]) if took is None else took)


def done_words(facts: Facts, what: str) -> str:
    """Return ``7/9`` if 7 of the expected 9 trials are over, or if 7 of 9 epochs were trained.

    ``what`` is ``trials`` or ``epochs``. The total is left out if it is not known. The total of
    epochs is also left out if the study was cut short. Cancelled trials do not count as over.
    """
    if what == "trials":
        over = facts["trials_over"] - facts["trials"].get("cancelled", 0)
        total = facts["trials_expected"]
    else:
        over, total = facts["epochs"], facts["epochs_expected"] or None
        if facts["status"] in _CUT_SHORT:
            total = None
    return _short(over) if total is None else f"{_short(over)}/{_short(total)}"


def _short(n: int) -> str:
    """Return a number in few characters: ``80``, ``2.5e+06``."""
    return str(n) if n < 1_000_000 else f"{n:.3g}"


def _front(facts: Facts) -> str:
    return f"front of {len(facts['front'])}" if facts["front"] else ""
