"""``penstock run``, ``submit``: commands that run a script or a study's YAML file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...base.errors import PenstockError, TrialFailed, UsageError
from ...base.importing import importing
from ..common.text import in_shell
from .terminal import (
    FAILED,
    console_for_output,
    note,
    raised_at,
    reader_of,
    report_path,
    say,
    settings_of,
)

if TYPE_CHECKING:
    from ..client.study.handle import StudyHandle

#: The suffixes of studies' files.
STUDY_FILES = (".yaml", ".yml")

Script = Annotated[
    Path,
    typer.Argument(
        metavar="SCRIPT",
        help="A Python file or a notebook that calls study.optimize(...), a module's name after"
        " -m, or a study's YAML file.",
    ),
]
AsModule = Annotated[
    bool, typer.Option("-m", help="SCRIPT is a module's name, which is run as `python -m` does.")
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


def run(
    script: Script,
    arguments: Arguments = None,
    environment: Environment = None,
    limits: LimitsText = None,
    as_module: AsModule = False,
) -> None:
    """Run a script, notebook, module or YAML file, watch its studies, and print their results.

    Ctrl-C ends the watching, not the study.
    """
    import psutil

    began = time.time()
    since = psutil.Process().create_time()
    studies: list[StudyHandle] = []
    try:
        aside = _run(
            script, arguments or [], studies, environment, limits, as_module=as_module, detach=False
        )
        _check_any(script, studies, aside, as_module=as_module)
    finally:
        failed = _show_outcomes(studies, began, since)
    if failed:
        raise typer.Exit(FAILED)


def submit(
    script: Script,
    arguments: Arguments = None,
    environment: Environment = None,
    limits: LimitsText = None,
    as_module: AsModule = False,
) -> None:
    """Submit the studies of a script, notebook, module or YAML file to run in the background."""
    studies: list[StudyHandle] = []
    cut_short = ""
    try:
        aside = _run(
            script, arguments or [], studies, environment, limits, as_module=as_module, detach=True
        )
        _check_any(script, studies, aside, as_module=as_module)
    except TrialFailed:
        if studies:  # as `study.trials[0]`, which is the script's own error
            note(f"{script.name} has results of what it submitted only under `penstock run`")
        raise
    except PenstockError as error:
        from ..server.optuna_bridge.frozen_trials import NoTrial
        from ..server.services.ledger_location import LedgerElsewhere

        # The script asks for results of a study that was only submitted: it need not go on.
        if not (studies and isinstance(error, NoTrial | LedgerElsewhere)):
            raise
        cut_short = _cut_short(script, error)
    finally:
        from ..server.services.ledger_location import elsewhere

        where = elsewhere(settings_of()) if studies else None
        for study in studies:
            if where is None:
                typed = in_shell(study.study_name, study.id)
                say(f"submitted {study.study_name}: penstock watch {typed}")
            else:
                say(f"submitted {study.study_name}, as {study.id}; {where}")
    if cut_short:
        note(cut_short)


def _run(
    script: Path,
    arguments: list[str],
    studies: list[StudyHandle],
    environment: str | None,
    limits: str | None,
    *,
    as_module: bool,
    detach: bool,
) -> list[str]:
    """Run a user's program or a study's file, and append its submitted studies to ``studies``.

    Returns sentences about those studies of a script that did not run on devices.
    """
    from ..extensions import PROGRAMS, end_of
    from ..spec.contracts import check_environment
    from ..spec.options import parse_limits

    check_environment(environment)
    limit_values = None if limits is None else parse_limits(limits)
    aside = list[str]()
    source = _source(script, as_module=as_module)
    with _services_ahead(source) if source.suffix == ".py" else nullcontext():
        # Imported while the launcher process imports the largest libraries.
        from ..client.study.handle import running

        runs: Callable[[Path, Sequence[str]], None]
        if as_module:
            from ..client.study.script import run_module as runs
        elif (owner := PROGRAMS.get(script.suffix)) is not None:
            runs = end_of(owner, "program", f"a program in {script.suffix}").run
        elif script.suffix in STUDY_FILES:
            from ..client.study.study_file import run_study_file as runs
        else:
            from ..client.study.script import run_script as runs
        with running(
            detach=detach,
            environment=environment,
            limits=limit_values,
            submitted=studies,
            aside=aside,
        ):
            runs(script, arguments)
    return aside


def _source(script: Path, *, as_module: bool) -> Path:
    """Return the file of a script, or of a module if it is found."""
    if not as_module:
        return script
    from ..client.study.script import source_of

    return source_of(script) or script


@contextmanager
def _services_ahead(script: Path) -> Iterator[None]:
    """Start the services while ``script`` imports its modules, if it may need them."""
    services: AbstractContextManager[None] = nullcontext()
    with suppress(PenstockError, OSError, ImportError):  # said when the script asks
        with importing():
            from ..host.settings import load
            from ..server.services.ahead import services_ahead

        if any(name in script.read_bytes() for name in (b"penstock", b"optuna")):
            services = services_ahead(load(), script)
    with services:
        yield


def _check_any(
    script: Path, studies: Sequence[StudyHandle], aside: Sequence[str], *, as_module: bool
) -> None:
    """Raise UsageError if a script that names Penstock has ended without submitting a study.

    For other scripts, print the reasons (``aside``) why studies did not run on devices.
    """
    source, why = _source(script, as_module=as_module), "; ".join(aside)
    if studies:
        if why:
            note(f"not on Penstock's devices: {why}")
    elif "penstock" not in source.read_text("utf-8", "replace"):
        note(f"{script.name} ran no study on Penstock's devices{why and ': '}{why}")
    else:
        raise UsageError(
            f"{script.name} ended without submitting a study: call study.optimize(...), also when"
            " it runs as __main__"
        )


def _cut_short(script: Path, error: PenstockError) -> str:
    """Say that ``script`` was stopped, because it asked for results that come later."""
    return (
        f"{raised_at(error) or script.name} asks for results, which a study that was only submitted"
        f" has later: from there on {script.name} was not run. `penstock run` waits for them"
    )


def _show_outcomes(studies: list[StudyHandle], began: float, since: float) -> bool:
    """Print the outcome of each study; return True if a study failed.

    The run ``began`` in a process that was started at ``since`` (both in seconds since 1970).
    """
    from ..client.study.script import outcome, show
    from ..client.study.watching import asked_message, detached_message, open_message

    if not studies:
        return False
    settings = settings_of()
    console, reader, failed = console_for_output(), reader_of(settings), False
    for study in dict.fromkeys(studies):
        row = reader.study(study.id)
        alone = row.contract == "ask"
        if alone and study.announce is not None:  # its user has no close()
            if row.finished_at is None:
                study.storage().remove_session()  # what was written comes before the end
                with suppress(PenstockError):  # no scheduler answers: it stays open
                    study.client().close(row.id)
            say(asked_message(row.name, row.id))
            continue
        if row.paused_itself:  # its message is in the error that ends the script
            say(f"{row.name} has paused: penstock status {in_shell(row.name, row.id)}")
            failed = True
            continue
        if row.finished_at is None:
            say(open_message(row.name) if alone else detached_message(row.name, row.id))
            continue
        path = report_path(settings, row.id)
        # Only the first study waited for the services; the others started when submitted.
        created = row.created_at if row.created_at >= began else None
        begin = since if study is studies[0] else created
        show(console, outcome(reader, row.id, path, began, begin))
        failed = failed or row.status == "failed"
    return failed
