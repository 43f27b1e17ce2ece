"""``penstock export``, ``import`` and ``metrics``, and the logs of ``penstock watch``."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...app.cli.terminal import (
    MACHINE,
    STUDIES,
    Application,
    Name,
    check_folder,
    client_of,
    reader_of,
    say,
    settings_of,
    study_of,
)
from ...app.common.text import count, in_shell
from ...base.errors import UsageError

if TYPE_CHECKING:
    from ...app.client.study.epoch_callbacks import EpochCallback

commands = Application()


class Format(StrEnum):
    """The format of an exported file."""

    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


@commands.command(rich_help_panel=STUDIES)
def export(
    name: Name = None,
    form: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help="json: the whole study; csv, parquet: a table. By default FILE's ending says.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The file to write; by default standard output."
        ),
    ] = None,
    epochs: Annotated[
        bool, typer.Option("--epochs", help="A table of epochs instead of trials.")
    ] = False,
) -> None:
    """Write a study to a file: all of it as JSON, or its trials as a table.

    What is written as JSON can be imported. Parquet needs the extra 'parquet' of penstock.
    """
    from ...app.common.atomic_file import write_atomic
    from ...app.common.versioned_file import to_text
    from .archive import archive_of
    from .tables import epoch_table, to_csv, to_parquet, trial_table

    form = form or _form_of(output)
    if epochs and form is Format.JSON:
        raise UsageError.refuse("--epochs", True, "no --epochs with JSON, which holds all epochs")
    if form is Format.PARQUET and output is None:
        raise UsageError.refuse("--output", None, "a file, because Parquet is a binary format")
    if output is not None:
        check_folder("--output", output)
    reader = reader_of()
    archive = archive_of(reader, study_of(reader, name).id)
    if form is Format.JSON:
        content: str | bytes = to_text(archive)
    else:
        table = epoch_table(archive) if epochs else trial_table(archive)
        content = to_csv(table) if form is Format.CSV else to_parquet(table)
    if output is None:
        sys.stdout.write(str(content))
    else:
        write_atomic(output, content, "export")
        say(output)


@commands.command("import", rich_help_panel=STUDIES)
def import_study(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A JSON file that `penstock export` wrote.")
    ],
) -> None:
    """Import a finished study that was exported elsewhere, to read it here.

    Its name and its id must not be taken. Its checkpoints stay where they are. Of the attributes
    that Optuna's own code wrote, only those that are known to be plain data are kept.
    """
    from ...app.extensions import has_command
    from ...app.server.optuna_bridge.plain_attributes import only_listed
    from .archive import read_archive, to_event

    event, dropped = only_listed(to_event(read_archive(file)))
    client_of().import_study(event)
    spec = event.record.spec
    shows = "report" if has_command("report") else "status"
    say(f"imported {spec.name}: penstock {shows} {in_shell(spec.name, spec.id)}")
    if dropped:
        say(
            f"{count(dropped, 'system attribute')} left out: only those that are known to be plain"
            " data are imported (the state of CMA-ES, for instance, is code)"
        )


@commands.command(rich_help_panel=MACHINE)
def metrics(
    address: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where to listen; 0.0.0.0 is everywhere.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=1, max=65535, metavar="PORT", help="A free port.")
    ] = 9917,
) -> None:
    """Serve metrics for Prometheus until Ctrl-C: studies, devices, epochs, claims."""
    from .prometheus import serve

    _, thread = serve(settings_of(), address, port)
    say(f"http://{address}:{port}/metrics")
    thread.join()


def epoch_logs(tensorboard: Path | None, mlflow: str | None) -> list[EpochCallback]:
    """Return the callbacks that log each epoch to the given places.

    ``tensorboard`` is the folder for TensorBoard's files, and ``mlflow`` is the address of an
    MLflow server. None means no log there.
    """
    from .mlflow import MLflowCallback
    from .tensorboard import TensorBoardCallback

    return [
        *([] if tensorboard is None else [TensorBoardCallback(tensorboard)]),
        *([] if mlflow is None else [MLflowCallback(mlflow)]),
    ]


def _form_of(output: Path | None) -> Format:
    """Return the format that the file's ending names, or JSON if the ending names no format."""
    ending = output.suffix.removeprefix(".") if output else ""
    return Format(ending) if ending in list(Format) else Format.JSON
