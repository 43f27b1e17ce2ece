"""``penstock report``: a study, or a comparison of several, as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...app.cli.terminal import (
    STUDIES,
    Application,
    Names,
    reader_of,
    report_path,
    say,
    settings_of,
    study_of,
)

commands = Application()


@commands.command(rich_help_panel=STUDIES)
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
    from .compare import write_comparison
    from .report import write_report

    settings = settings_of()
    reader = reader_of(settings)
    ids = [study_of(reader, name).id for name in names or ()] or [study_of(reader, None).id]
    path = output or report_path(settings, "-and-".join(ids)[:200])
    several = len(ids) > 1
    say(write_comparison(reader, ids, path) if several else write_report(reader, ids[0], path))
