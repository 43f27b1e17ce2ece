"""``penstock best``: the result of a study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...profiling.base.errors import UsageError
from .terminal import Json, Name, present, reader_of, say, study_of


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
