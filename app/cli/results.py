"""``penstock best``, ``export``, ``import``: results, and their moves."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ...profiling.base.errors import UsageError
from ..common.text import count, in_shell
from .terminal import Json, Name, check_folder, client_of, present, reader_of, say, study_of


class Format(StrEnum):
    """What an export is written as."""

    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


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
            "--trial", min=0, help="With --model: of the trial of this number, not of the best."
        ),
    ] = None,
    code: Annotated[
        str | None,
        typer.Option(
            "--code",
            metavar="FILE.py:NAME",
            help="With --model: the class that makes it, instead of the one that the study names.",
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
    from ..views.best import best_facts, best_view

    reader = reader_of()
    study = study_of(reader, name)
    if model is None:
        for option, given in (("--trial", trial), ("--code", code), ("--store", store)):
            if given is not None:
                raise UsageError.refuse(option, given, "it beside --model FOLDER only")
        present(best_facts(reader, study), as_json, best_view)
        return
    if as_json:
        raise UsageError.refuse("--json", True, "no --model: what that writes is in its folder")
    from ..extensions import end_of

    write = end_of("nas", "cli", "penstock best --model").write_trained
    write(reader, study, model, trial=trial, code=code, store=store)
    say(model)


def export(
    name: Name = None,
    form: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help="json: the whole study; csv, parquet: a table. By default as FILE ends.",
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
    from ..common.atomic_file import write_atomic
    from ..common.versioned_file import to_text
    from ..exports.archive import archive_of
    from ..exports.tables import epoch_table, to_csv, to_parquet, trial_table

    form = form or _form_of(output)
    if epochs and form is Format.JSON:
        raise UsageError.refuse("--epochs", True, "csv or parquet: JSON holds all epochs")
    if form is Format.PARQUET and output is None:
        raise UsageError.refuse("--output", None, "a file: Parquet is a binary format")
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


def import_study(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A JSON file that `penstock export` wrote.")
    ],
) -> None:
    """Import a finished study that was exported elsewhere, to read it here.

    Its name and its id must not be taken. Its checkpoints stay where they are. Of the attributes
    that Optuna's own code wrote, only those that are known to be plain data are kept.
    """
    from ..exports.archive import read_archive, to_event
    from ..extensions import has_command
    from ..optuna_bridge.plain_attributes import only_listed

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


def _form_of(output: Path | None) -> Format:
    """What a file's name says; JSON where it says nothing."""
    ending = output.suffix.removeprefix(".") if output else ""
    return Format(ending) if ending in list(Format) else Format.JSON
