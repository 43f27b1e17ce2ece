"""``penstock doctor``: check this installation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ...app.cli.terminal import BACKEND, MACHINE, Application, Json, present, settings_of

if TYPE_CHECKING:
    from .doctor import Finding

commands = Application()

#: The mark and the colour with which a finding is shown, by its grade.
GRADES = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✗", "red")}


@commands.command(rich_help_panel=MACHINE)
def doctor(as_json: Json = False) -> None:
    """Check this installation: what is here, what is missing, and what to do about it."""
    from dataclasses import asdict

    from .doctor import diagnose

    findings = diagnose(settings_of())
    present(findings, as_json, findings_view, lambda found: [asdict(f) for f in found])
    if any(finding.grade == "fail" for finding in findings):
        raise typer.Exit(BACKEND)


def findings_view(findings: Sequence[Finding]) -> RenderableType:
    """Return a table with a line for each finding. Advice stands below its finding."""
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        description = Text(finding.what)
        if finding.advice:
            description.append(f"\n{finding.advice}", style="yellow")
        table.add_row(Text(*GRADES[finding.grade]), finding.name, description)
    return table
