"""``penstock logs``: what trials printed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from ...profiling.base.errors import UsageError
from ..common.text import count
from .terminal import StudyOrTrial, note, reader_of, say, settings_of, study_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..ledger.reader import Reader
    from ..ledger.rows import StudyRow, TrialRow

#: How many devices a message names.
DEVICES = 4
#: Seconds between two looks for new lines.
FOLLOW_PERIOD = 0.3


def logs(
    name: StudyOrTrial = None,
    most: Annotated[
        int, typer.Option("--lines", "-n", min=1, metavar="N", help="The newest N lines.")
    ] = 200,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Go on with what is printed, until the study is over."),
    ] = False,
) -> None:
    """Show what a trial printed, or all trials of a study, each line with the trial's number.

    The lines are those that the logs of this machine's trainers have kept.
    """
    from ...scheduler.model.study import number_of, study_of_trial
    from ..status.printed import PrintedLines

    settings = settings_of()
    reader = reader_of(settings)
    study, trial = _named(reader, name)

    def is_asked(id_: str) -> bool:
        return study_of_trial(id_) == study.id if trial is None else id_ == trial.id

    printed, any_shown = PrintedLines(settings.logs, is_asked), False
    found = printed.new(most, whole=follow)
    if found.cut:
        note("some lines are missing: a log outgrew PENSTOCK_LOG_LIMIT, and was cut")
    if found.older:
        note(f"{count(found.older, 'older line')} left out: --lines N shows more")
    while True:
        for line in found.lines:
            any_shown = True
            say(line.text if trial is not None else f"{number_of(line.trial)}| {line.text}")
        if not follow:
            break
        time.sleep(FOLLOW_PERIOD)
        follow = reader.study(study.id).finished_at is None  # asked first: then it prints no more
        found = printed.new(whole=follow)
    if not any_shown:
        who = study.name if trial is None else f"trial {trial.number}"
        trials = reader.trials(study.id) if trial is None else [trial]
        note(f"{who} has printed nothing that is in {settings.logs}{_elsewhere(trials)}")


def _named(reader: Reader, typed: str | None) -> tuple[StudyRow, TrialRow | None]:
    """The study, and the trial if one was named. Raises UsageError where there is neither."""
    from ..stories.story import find_trial

    try:
        return study_of(reader, typed), None
    except UsageError:
        if typed is None or not typed.rpartition("/" if "/" in typed else "-")[2].isdecimal():
            raise
    return find_trial(reader, typed)


def _elsewhere(trials: Sequence[TrialRow]) -> str:
    """Where else what these trials printed may be: on the machines of their newest attempts."""
    devices = sorted({trial.device for trial in trials if trial.device})
    return f"; it ran on {', '.join(devices[:DEVICES])}" if devices else ""
