"""``penstock env``: virtual environments for studies, made from a file of requirements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...app.cli.terminal import MACHINE, Application, Json, note, present, say, settings_of

if TYPE_CHECKING:
    from rich.console import RenderableType

    from .virtual_environments import VirtualEnvironment

env = Application(help="Make environments for studies, and list them.")
commands = Application()
commands.add_typer(env, name="env", rich_help_panel=MACHINE)


@env.command("create")
def create_environment(
    requirements: Annotated[
        Path, typer.Argument(metavar="REQUIREMENTS", help="A file of requirements, as for pip.")
    ],
    inherit: Annotated[
        bool,
        typer.Option(
            "--inherit",
            help="See what is installed beside Penstock, and have only what differs of one's own.",
        ),
    ] = False,
) -> None:
    """Make an environment, named by the digest of its lock, and print what a study is given."""
    from .virtual_environments import create

    say(create(settings_of(), requirements, inherits=inherit, note=note).environment)


@env.command("list")
def list_environments(as_json: Json = False) -> None:
    """List the environments that were made in this state folder."""
    from dataclasses import asdict

    from .virtual_environments import listed

    found = listed(settings_of())
    present(found, as_json, _table, lambda found: [asdict(each) for each in found])


@env.command("path")
def environment_path(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name, or how that begins.")],
) -> None:
    """Print the folder of an environment."""
    from .virtual_environments import find

    say(find(settings_of(), name).folder)


def _table(found: list[VirtualEnvironment]) -> RenderableType:
    from rich.table import Table

    from ...app.common.text import count

    table = Table("name", "python", "packages", "requirements", box=None)
    for each in found:
        kind = "inherits, and has" if each.inherits else "whole,"
        lines = ", ".join(line for line in each.requirements.split("\n") if line.strip())
        table.add_row(each.name, each.python, f"{kind} {count(each.packages, 'package')}", lines)
    return table
