"""``penstock notify``: send a test message to addresses."""

from __future__ import annotations

from typing import Annotated

import typer

from ...app.cli.terminal import BACKEND, MACHINE, Application, say, settings_of

commands = Application()


@commands.command(rich_help_panel=MACHINE)
def notify(
    addresses: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ADDRESS...",
            help="Addresses, or '$NAME' of variables that have them; by default PENSTOCK_NOTIFY.",
        ),
    ] = None,
) -> None:
    """Send a test message to addresses as studies do, and say which services accepted it."""
    import os

    from ...base.errors import UsageError
    from .addresses import resolve, shown
    from .outbox import deliver
    from .spec import CHECKS

    installed = settings_of().notify_list
    targets = CHECKS["notify"]("notify", list(addresses or installed))
    if not targets:
        raise UsageError("there is no address: give one, or set PENSTOCK_NOTIFY", "notify")
    failed = False
    for to in targets:
        address = resolve(to, os.environ)
        if address is None:
            raise UsageError(f"the variable {to} is not set", "notify")
        words = "This is a trial: studies of Penstock will tell you here."
        outcome = deliver(address, "Penstock", words, "info")
        say(f"{shown(to)}: {outcome.why or 'taken'}")
        failed = failed or bool(outcome.why)
    if failed:
        raise typer.Exit(BACKEND)
