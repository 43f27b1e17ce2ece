"""The command line. Each command is a few lines over a function that others can call as well.

Exit codes: 0 fine; 1 the user's code or a study failed; 2 usage; 3 the infrastructure does not
answer. What a script reads (``--json``) goes to standard output, progress and errors to standard
error. Heavy modules are imported inside the commands: ``--help`` answers at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...profiling.base.errors import PenstockError, TrialFailed, UsageError
from ..common.text import in_shell
from ..host.permissions import forbid_others_to_write
from .devices import capacity
from .environments import environments
from .history import history, similar
from .life import cancel, extend, pause, resume, weight
from .logs import logs
from .machine import (
    backup,
    dashboard,
    doctor,
    down,
    flower,
    gc,
    metrics,
    plan,
    restore,
    ui,
    up,
    worker,
)
from .results import best, export, import_study, memory, prefixes
from .simulate import simulate
from .terminal import (
    FAILED,
    Application,
    Commands,
    Json,
    Name,
    Names,
    TrialName,
    console_for_output,
    note,
    present,
    raised_at,
    reader_of,
    say,
    scheduler_runs,
    settings_of,
    study_of,
)

if TYPE_CHECKING:
    from ..host.settings import Settings
    from ..study.handle import StudyHandle

#: By how its name ends a file is known to be a study's, and not a script.
STUDY_FILES = (".yaml", ".yml")
STUDIES, MACHINE = "Studies", "This machine"  # how --help groups the commands

app = Application(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Hyperparameter tuning as a stream of epoch-sized tasks on Celery.\n\n"
    "Begin with `penstock run SCRIPT`. Broker, scheduler and workers start by themselves.",
    epilog="PENSTOCK_HOME is the folder that holds all state. The other settings are PENSTOCK_*"
    " variables, too: see the guide.",
)
#: A script's own options are the script's: nothing after its name is ours.
_PASS_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False}

Script = Annotated[
    Path,
    typer.Argument(
        metavar="SCRIPT",
        help="A Python file that calls study.optimize(...), or a study's YAML file.",
    ),
]
Arguments = Annotated[
    list[str] | None,
    typer.Argument(metavar="ARGUMENTS", help="Arguments that are passed to the script."),
]


Environment = Annotated[
    str | None,
    typer.Option(
        metavar="ENV",
        help="The environment of studies that name none: venv:/folder, rootfs:/folder or"
        " command:PROGRAM.",
    ),
]


LimitsText = Annotated[
    str | None,
    typer.Option(
        metavar="NAME=VALUE,...",
        help="The limits of studies that give none, as in device_hours=2,deadline=3600.",
    ),
]


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
    """What stands before a command."""


@app.command(context_settings=_PASS_ON, rich_help_panel=STUDIES)
def run(
    script: Script,
    arguments: Arguments = None,
    environment: Environment = None,
    limits: LimitsText = None,
) -> None:
    """Run a script or a study's YAML file, watch its studies, and print their results.

    Ctrl-C ends the watching, not the study.
    """
    import psutil

    began = time.time()
    since = psutil.Process().create_time()
    studies: list[StudyHandle] = []
    try:
        _run(script, arguments or [], studies, environment, limits, detach=False)
        _check_any(script, studies)
    finally:
        failed = _show_outcomes(studies, began, since)
    if failed:
        raise typer.Exit(FAILED)


@app.command(context_settings=_PASS_ON, rich_help_panel=STUDIES)
def submit(
    script: Script,
    arguments: Arguments = None,
    environment: Environment = None,
    limits: LimitsText = None,
) -> None:
    """Submit a script's studies, or that of a YAML file, to run in the background."""
    studies: list[StudyHandle] = []
    cut_short = ""
    try:
        _run(script, arguments or [], studies, environment, limits, detach=True)
        _check_any(script, studies)
    except PenstockError as error:
        from ..optuna_bridge.frozen_trials import NoTrial
        from ..services.ledger_location import LedgerElsewhere

        # It asks for the results of what was only submitted: so far it was to go.
        if not (studies and isinstance(error, NoTrial | LedgerElsewhere)):
            raise
        cut_short = _cut_short(script, error, "ValueError: " if isinstance(error, NoTrial) else "")
    finally:
        where = _elsewhere(studies)
        for study in studies:
            if where is None:
                typed = in_shell(study.study_name, study.id)
                say(f"submitted {study.study_name}: penstock watch {typed}")
            else:
                say(f"submitted {study.study_name}, as {study.id}; {where}")
    if cut_short:
        note(cut_short)


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
    from ..exports.epoch_callbacks import Feed
    from ..exports.mlflow import MLflowCallback
    from ..exports.tensorboard import TensorBoardCallback
    from ..status.stall_monitor import StallMonitor
    from ..study.watching import show_failures
    from ..views.live import follow

    settings = settings_of()
    reader = reader_of(settings)
    study = study_of(reader, name)
    logs = (
        *(() if tensorboard is None else (TensorBoardCallback(tensorboard),)),
        *(() if mlflow is None else (MLflowCallback(mlflow),)),
    )
    with closing(Feed(logs, settings.run)) as feed:
        monitor = StallMonitor(settings, reader)
        study = follow(
            reader, study.id, on_poll=feed.update, why=monitor.reason, still=monitor.still
        )
    show_failures(reader, study)
    if study.status == "failed":
        raise TrialFailed("exception", f"study {study.name} failed: {study.reason}")


@app.command("ls", rich_help_panel=STUDIES)
def list_studies(as_json: Json = False) -> None:
    """List all studies with their progress."""
    from ..status.listing import study_facts, study_table

    settings = settings_of()
    reader = reader_of(settings)
    studies = [] if reader.is_empty() else reader.studies()
    facts = [study_facts(reader, row) for row in studies]
    # Without a scheduler the ledger still has as running what was when the last one ended.
    still = any(each["status"] == "running" for each in facts) and not scheduler_runs(settings)
    present(facts, as_json, partial(study_table, still=still))


@app.command(rich_help_panel=STUDIES)
def status(name: Name = None, as_json: Json = False) -> None:
    """Show a study's progress, with its failures in full."""
    from ..status.listing import status_facts, status_view
    from ..status.stall_monitor import StallMonitor

    settings = settings_of()
    reader = reader_of(settings)
    study = study_of(reader, name)
    waits = StallMonitor(settings, reader).now(study)
    still = study.status == "running" and not scheduler_runs(settings)
    present(
        study,
        as_json,
        lambda s: status_view(reader, s, settings, waits, still=still),
        lambda s: status_facts(reader, s, waits),
    )


@app.command(rich_help_panel=STUDIES)
def story(
    trial: TrialName,
    as_json: Json = False,
) -> None:
    """Show what happened to one trial, in order, and why."""
    from dataclasses import asdict

    from ..stories.story import find_trial, render, trial_story

    reader = reader_of()
    found = trial_story(reader, *find_trial(reader, trial))
    present(found, as_json, render, asdict)


@app.command(rich_help_panel=STUDIES)
def report(
    names: Names = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The file to write; by default one in the state folder.",
        ),
    ] = None,
) -> None:
    """Write a study's report to an HTML file. Several studies are compared in one."""
    from ..report.compare import write_comparison
    from ..report.report import write_report

    settings = settings_of()
    reader = reader_of(settings)
    ids = [study_of(reader, name).id for name in names or ()] or [study_of(reader, None).id]
    path = output or _report_path(settings, "-and-".join(ids)[:200])
    several = len(ids) > 1
    say(write_comparison(reader, ids, path) if several else write_report(reader, ids[0], path))


for command, does in (
    ("best", best),
    ("logs", logs),
    ("memory", memory),
    ("prefixes", prefixes),
    ("export", export),
    ("import", import_study),
    ("pause", pause),
    ("resume", resume),
    ("weight", weight),
    ("extend", extend),
    ("cancel", cancel),
    ("simulate", simulate),
    ("similar", similar),
):
    app.command(command, rich_help_panel=STUDIES)(does)


for of_machine in (
    ui,
    doctor,
    plan,
    gc,
    backup,
    restore,
    up,
    down,
    worker,
    flower,
    metrics,
    dashboard,
):
    app.command(rich_help_panel=MACHINE)(of_machine)
app.add_typer(capacity, name="devices", rich_help_panel=MACHINE)
app.add_typer(history, name="history", rich_help_panel=MACHINE)
app.add_typer(environments, name="env", rich_help_panel=MACHINE)


@app.command(hidden=True)
def scheduler() -> None:
    """Run the scheduler in the foreground."""
    from ..services import scheduler_process

    scheduler_process.main(settings_of())


def main() -> None:
    """The console script."""
    forbid_others_to_write()
    app()


def _report_path(settings: Settings, study_id: str) -> Path:
    return settings.home / "reports" / f"{study_id}.html"


def _run(
    script: Path,
    arguments: list[str],
    studies: list[StudyHandle],
    environment: str | None,
    limits: str | None,
    *,
    detach: bool,
) -> None:
    """Run a user's script, or a study's file; ``studies`` fills with those it submits."""
    from ...scheduler.model.environment import check_environment
    from ..spec.options import parse_limits
    from ..study.handle import DETACH, ENVIRONMENT, LIMITS, SUBMITTED

    check_environment(environment)
    given = None if limits is None else parse_limits(limits)
    runs: Callable[[Path, Sequence[str]], None]
    if script.suffix in STUDY_FILES:
        from ..nas.one_shot import OneShot
        from ..study.study_file import run_study_file

        runs = partial(run_study_file, strategies={OneShot.__name__: OneShot})
    else:
        from ..study.script import run_script as runs
    detached, collected = DETACH.set(detach), SUBMITTED.set(studies)
    named, limited = ENVIRONMENT.set(environment), LIMITS.set(given)
    try:
        with _services_ahead(script) if script.suffix == ".py" else nullcontext():
            runs(script, arguments)
    finally:
        ENVIRONMENT.reset(named)
        LIMITS.reset(limited)
        DETACH.reset(detached)
        SUBMITTED.reset(collected)


@contextmanager
def _services_ahead(script: Path) -> Iterator[None]:
    """The services start beside what ``script`` imports, if it may want them."""
    beside: AbstractContextManager[None] = nullcontext()
    with suppress(PenstockError, OSError, ImportError):  # said when the script asks
        from ..host.settings import load
        from ..services.ahead import services_ahead

        if any(name in script.read_bytes() for name in (b"penstock", b"optuna")):
            beside = services_ahead(load(), script)
    with beside:
        yield


def _check_any(script: Path, studies: Sequence[StudyHandle]) -> None:
    """Raise UsageError where a script of ours that ran to its end has submitted nothing.

    One that does not name Penstock has run as under Python; that is said.
    """
    if not studies and "penstock" not in script.read_text("utf-8", "replace"):
        note(f"{script.name} ran no study on Penstock's devices")
    elif not studies:
        raise UsageError(
            f"{script.name} ended without submitting a study: call study.optimize(...), also when"
            " it runs as __main__"
        )


def _cut_short(script: Path, error: PenstockError, kind: str) -> str:
    """That ``script`` was not run to its end, because it asked for results too early."""
    return (
        f"{raised_at(error) or script.name} asks for results, and there are none yet, since the"
        f" study was only submitted. The script ended there: {kind}{error}"
    )


def _elsewhere(studies: Sequence[StudyHandle]) -> str | None:
    """Where what is submitted can be watched, if not here."""
    if not studies:
        return None
    from ..services.ledger_location import elsewhere

    return elsewhere(settings_of())


def _show_outcomes(studies: list[StudyHandle], began: float, since: float) -> bool:
    """Print what each finished study came to; whether one of them failed.

    The run ``began`` in a process that there has been ``since`` (seconds of the clock).
    """
    from ..ledger.codec import spec_from_json
    from ..study.script import outcome, show
    from ..study.watching import detached_message, open_message

    if not studies:
        return False
    settings = settings_of()
    console, reader, failed = console_for_output(), reader_of(settings), False
    for study in dict.fromkeys(studies):
        row = reader.study(study.id)
        if row.finished_at is None:
            alone = spec_from_json(row.spec_json).contract == "ask"
            say(open_message(row.name) if alone else detached_message(row.name, row.id))
            continue
        path = _report_path(settings, row.id)
        # Only the first study waited for the services to start; the others began when submitted.
        asked = row.created_at if row.created_at >= began else None
        begin = since if study is studies[0] else asked
        show(console, outcome(reader, row.id, path, began, begin))
        failed = failed or row.status == "failed"
    return failed
