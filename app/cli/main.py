"""The command line. Each command is a few lines that call a function of another module.

Exit codes: 0 success; 1 the user's code or a study failed; 2 wrong usage; 3 the infrastructure does
not answer. Output for scripts (``--json``) goes to standard output, progress and errors to standard
error. Heavy modules are imported inside the commands, so that ``--help`` answers at once.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ...base.errors import TrialFailed
from ...base.importing import importing
from ..host.permissions import forbid_others_to_write
from .devices import capacity
from .machine import (
    backup,
    dashboard,
    down,
    flower,
    gc,
    plan,
    restore,
    up,
    worker,
)
from .scripts import run, submit
from .studies import best, cancel, extend, logs, pause, resume, weight
from .terminal import (
    MACHINE,
    STUDIES,
    Application,
    Commands,
    Json,
    Name,
    TrialName,
    present,
    reader_of,
    say,
    scheduler_runs,
    settings_of,
    study_of,
)

app = Application(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Hyperparameter tuning as a stream of epoch-sized tasks on Celery.\n\n"
    "Begin with `penstock run SCRIPT`. Broker, scheduler and workers start by themselves.",
    epilog="PENSTOCK_HOME is the folder that holds all state. The other settings are PENSTOCK_*"
    " variables, too: see the guide.",
)
#: Settings of a command that passes all options after a script's name on to the script.
PASS_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False}


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        say(version("penstock"))
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version, and exit."
        ),
    ] = False,
) -> None:
    """Take the options before a command."""


for of_script in (run, submit):
    app.command(context_settings=PASS_ON, rich_help_panel=STUDIES)(of_script)


@app.command(rich_help_panel=STUDIES)
def watch(
    name: Name = None,
    tensorboard: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Log its epochs to this folder, past ones included."),
    ] = None,
    mlflow: Annotated[
        str | None,
        typer.Option(metavar="URI", help="Log its epochs to this tracking server or database."),
    ] = None,
) -> None:
    """Watch a study until it is finished, and log it to TensorBoard or MLflow.

    Ctrl-C ends the watching, not the study. The next watch continues the logs.
    """
    from ..client.study.epoch_callbacks import EpochCallback, Feed
    from ..client.study.watching import show_failures
    from ..extensions import end_of
    from ..show.status.stall_monitor import StallMonitor
    from ..show.views.live import follow

    settings = settings_of()
    reader = reader_of(settings)
    study = study_of(reader, name)
    logs = list[EpochCallback]()
    if tensorboard is not None or mlflow is not None:
        option = "--mlflow" if tensorboard is None else "--tensorboard"
        logs += end_of("exports", "cli", f"penstock watch {option}").epoch_logs(tensorboard, mlflow)
    with closing(Feed(logs, settings.run)) as feed:
        monitor = StallMonitor(settings, reader)
        study = follow(
            reader, study.id, on_poll=feed.update, why=monitor.reason, still=monitor.still
        )
    show_failures(reader, study)
    if study.paused_itself:
        raise TrialFailed("exception", f"study {study.name} has paused: {study.reason}")
    if study.status == "failed":
        raise TrialFailed("exception", f"study {study.name} failed: {study.reason}")


@app.command("ls", rich_help_panel=STUDIES)
def list_studies(as_json: Json = False) -> None:
    """List all studies with their progress."""
    from ..server.services.ledger_location import ledger_url
    from ..show.status.study_list import studies_facts, study_table

    settings = settings_of()
    facts = studies_facts(ledger_url(settings), partial(scheduler_runs, settings))
    present(facts, as_json, study_table)


@app.command(rich_help_panel=STUDIES)
def status(name: Name = None, as_json: Json = False) -> None:
    """Show a study's progress, with its failures in full."""
    from ..show.status.listing import status_facts, status_view
    from ..show.status.stall_monitor import StallMonitor

    settings = settings_of()
    reader = reader_of(settings)
    study = study_of(reader, name)
    waits = StallMonitor(settings, reader).now(study)
    still = study.status == "running" and not scheduler_runs(settings)
    present(
        study,
        as_json,
        lambda s: status_view(reader, s, settings, waits, still=still),
        lambda s: status_facts(reader, s, waits, still=still),
    )


@app.command(rich_help_panel=STUDIES)
def story(
    trial: TrialName,
    as_json: Json = False,
) -> None:
    """Show what happened to one trial, in order, and why."""
    from dataclasses import asdict

    from ..show.stories.story import find_trial, render, trial_story

    reader = reader_of()
    content = trial_story(reader, *find_trial(reader, trial))
    present(content, as_json, render, asdict)


for command, does in (
    ("best", best),
    ("logs", logs),
    ("pause", pause),
    ("resume", resume),
    ("weight", weight),
    ("extend", extend),
    ("cancel", cancel),
):
    app.command(command, rich_help_panel=STUDIES)(does)


for of_machine in (
    plan,
    gc,
    backup,
    restore,
    up,
    down,
    worker,
    flower,
    dashboard,
):
    app.command(rich_help_panel=MACHINE)(of_machine)
app.add_typer(capacity, name="devices", rich_help_panel=MACHINE)


@app.command(hidden=True)
def scheduler() -> None:
    """Run the scheduler in the foreground."""
    with importing():
        from ..server.services import scheduler_process

    scheduler_process.main(settings_of())


def main() -> None:
    """Run the console script."""
    forbid_others_to_write()
    app()
