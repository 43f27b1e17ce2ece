"""``penstock best``, ``logs``, ``pause``, ``resume``, ``weight``, and others for one study."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...base.errors import UsageError
from ..common.text import count
from ..spec.amounts import HIGHEST, LOWEST, MAX_PRIORITY
from .terminal import (
    Json,
    Known,
    Name,
    StudyOrTrial,
    control_of,
    note,
    present,
    reader_of,
    say,
    settings_of,
    study_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..ledger.reader import Reader
    from ..ledger.rows import StudyRow, TrialRow


def pause(name: Known) -> None:
    """Pause a study: running trials end their epoch, and nothing is lost."""
    say(control_of().pause(name))


def resume(name: Known) -> None:
    """Continue a paused study."""
    say(control_of().resume(name))


def weight(
    name: Known,
    weight: Annotated[
        float | None,
        typer.Argument(
            metavar="WEIGHT",
            min=LOWEST,
            max=HIGHEST,
            help="Its share of the devices, relative to other studies.",
        ),
    ] = None,
    priority: Annotated[
        int | None,
        typer.Option(
            metavar="P",
            min=-MAX_PRIORITY,
            max=MAX_PRIORITY,
            help="Studies of higher priority go first.",
        ),
    ] = None,
) -> None:
    """Change a study's share of the devices: its weight within its priority."""
    say(control_of().set_weight(name, weight, priority))


def extend(
    name: Known,
    by: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="How many more trials to run.")
    ] = None,
    to: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="How many trials to run in all.")
    ] = None,
) -> None:
    """Add trials to a study, even if it is complete or was cancelled."""
    if (by is None) == (to is None):
        raise UsageError("give --by, how many more trials, or --to, how many in all")
    say(control_of().extend(name, by, to))


def cancel(name: Known) -> None:
    """Cancel a study. Its results so far stay readable."""
    say(control_of().cancel(name))


def best(
    name: Name = None,
    as_json: Json = False,
    *,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            metavar="FOLDER",
            help="Write the trained model of a TorchTrainable there: weights, parameters, and a"
            " model.py that loads them. It imports the study's code.",
        ),
    ] = None,
    trial: Annotated[
        int | None,
        typer.Option(
            "--trial", min=0, help="With --model: the number of the trial, if not the best one."
        ),
    ] = None,
    code: Annotated[
        str | None,
        typer.Option(
            "--code",
            metavar="FILE.py:NAME",
            help="With --model: the class that makes the model, if not the one of the study.",
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="URL",
            help="With --model: the folder that has the checkpoints, instead of where the ledger"
            " says. Of an imported study --code and --store must be given.",
        ),
    ] = None,
) -> None:
    """Show a study's best trial: value, parameters, metrics, and where its checkpoint is."""
    from ..show.views.best import best_facts, best_view

    reader = reader_of()
    study = study_of(reader, name)
    if model is None:
        for option, value in (("--trial", trial), ("--code", code), ("--store", store)):
            if value is not None:
                raise UsageError(f"{option} = {value} is for --model only: add --model FOLDER")
        present(best_facts(reader, study), as_json, best_view)
        return
    if as_json:
        raise UsageError.refuse(
            "--json", True, "no --json with --model, which writes its facts to its folder"
        )
    from ..extensions import end_of

    write = end_of("nas", "cli", "penstock best --model").write_trained
    write(reader, study, model, trial=trial, code=code, store=store)
    say(model)


#: The most devices that a message names.
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
        typer.Option("--follow", "-f", help="Show new lines, too, until the study is over."),
    ] = False,
) -> None:
    """Show what one trial or all trials of a study printed, with the number of the trial.

    It reads the logs that trainers have kept on this machine.
    """
    from ...scheduler.model.study import number_of, study_of_trial
    from ..show.status.printed import PrintedLines

    settings = settings_of()
    reader = reader_of(settings)
    study, trial = _named(reader, name)

    def is_asked(id_: str) -> bool:
        return study_of_trial(id_) == study.id if trial is None else id_ == trial.id

    printed, any_shown = PrintedLines(settings.logs, is_asked), False
    page = printed.new(most, whole=follow)
    if page.cut:
        note("some lines are missing: a log outgrew PENSTOCK_LOG_LIMIT, and was cut")
    if page.older:
        note(f"{count(page.older, 'older line')} left out: --lines N shows more")
    while True:
        for line in page.lines:
            any_shown = True
            say(line.text if trial is not None else f"{number_of(line.trial)}| {line.text}")
        if not follow:
            break
        time.sleep(FOLLOW_PERIOD)
        follow = reader.study(study.id).finished_at is None  # asked first: then it prints no more
        page = printed.new(whole=follow)
    if not any_shown:
        subject = study.name if trial is None else f"trial {trial.number}"
        trials = reader.trials(study.id) if trial is None else [trial]
        note(f"{subject} has printed nothing that is in {settings.logs}{_elsewhere(trials)}")


def _named(reader: Reader, typed: str | None) -> tuple[StudyRow, TrialRow | None]:
    """Return the study, and the trial if one was named. Raises UsageError if neither exists."""
    from ..show.stories.story import find_trial

    try:
        return study_of(reader, typed), None
    except UsageError:
        if typed is None or not typed.rpartition("/" if "/" in typed else "-")[2].isdecimal():
            raise
    return find_trial(reader, typed)


def _elsewhere(trials: Sequence[TrialRow]) -> str:
    """Return words that name the devices of the newest attempts, which may have other output."""
    devices = sorted({trial.device for trial in trials if trial.device})
    return f"; it ran on {', '.join(devices[:DEVICES])}" if devices else ""
