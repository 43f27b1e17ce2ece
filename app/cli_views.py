"""``penstock dashboard``: other people's views of our studies."""

from __future__ import annotations

from typing import Annotated

import typer

from .terminal import reader_of, say


def dashboard(
    port: Annotated[
        int, typer.Option(min=1, max=65535, metavar="PORT", help="A free port.")
    ] = 8080,
) -> None:
    """Show all studies in optuna-dashboard, in the browser, until Ctrl-C. It only reads.

    It needs the extra 'dashboard' of penstock, and listens on this machine only.
    """
    from .dashboard import ADDRESS, serving

    reader = reader_of()
    reader.newest()  # says so here where nothing has run yet
    with serving(reader, port) as server:
        say(f"http://{ADDRESS}:{port}/dashboard")
        server.serve_forever()
