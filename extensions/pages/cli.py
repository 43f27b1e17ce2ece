"""The command ``penstock ui``, which serves the pages in the browser."""

from __future__ import annotations

from typing import Annotated

import typer

from ...app.cli.terminal import MACHINE, Application, reader_of, say, settings_of

commands = Application()


@commands.command(rich_help_panel=MACHINE)
def ui(
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="PORT", help="A port; 0 is any free one.")
    ] = 8765,
    proxy: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The address at which a proxy shows it, as https://example.org/penstock.",
        ),
    ] = None,
) -> None:
    """Show studies, trials and devices live in the browser, and control them, until Ctrl-C.

    It listens on this machine only. The address that it prints has the token that
    lets you in.
    """
    from .web_server import serve

    settings = settings_of()
    serve(settings, reader_of(settings), port, proxy, say)
