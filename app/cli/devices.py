"""``penstock devices``: list devices, and drain some while studies run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from ...scheduler.outlook.drain_choice import MAX_WITHIN
from .terminal import (
    Application,
    Json,
    client_of,
    completed,
    present,
    reader_of,
    say,
    scheduler_runs,
    settings_of,
)

if TYPE_CHECKING:
    from ..broker.client import Client

Names = Annotated[
    list[str],
    typer.Argument(
        metavar="NAME",
        help="Device names, or unique prefixes of them.",
        autocompletion=completed(
            lambda reader, _: (r.device.name for r in reader.devices() if r.state != "left")
        ),
    ),
]
_WITHIN = typer.Option(
    metavar="SECONDS", min=0, max=MAX_WITHIN, help="Revoke what still runs after this time."
)
Within = Annotated[float | None, _WITHIN]

capacity = Application(invoke_without_command=True)


@capacity.callback()
def devices(ctx: typer.Context, as_json: Json = False) -> None:
    """List the installation's devices, drain some, and return them."""
    if ctx.invoked_subcommand is None:
        list_devices(as_json)


@capacity.command("list")
def list_devices(as_json: Json = False) -> None:
    """List every device, its state, and what runs there."""
    from ..show.views.devices import device_facts, device_table

    settings = settings_of()
    facts = device_facts(reader_of(settings), served=scheduler_runs(settings))
    present(facts, as_json, device_table)


@capacity.command()
def drain(names: Names, within: Within = None) -> None:
    """Drain devices: what runs there ends its epoch, and nothing new starts.

    Their workers stay up. With --within, the command waits that long, and then revokes
    what still runs.
    """
    from ..client.study import control

    if within is None:
        say(control.drain(settings_of(), names))
    else:
        _wait_free(lambda client: client.drain(names, within), within)


@capacity.command()
def undrain(names: Names) -> None:
    """Return devices that were drained or freed."""
    from ..client.study import control

    say(control.undrain(settings_of(), names))


@capacity.command()
def free(
    n: Annotated[int, typer.Argument(metavar="N", min=1, help="How many devices to free.")],
    within: Annotated[float, _WITHIN],
) -> None:
    """Drain N devices that the scheduler chooses, and wait until nothing runs there.

    Idle devices are chosen first, then those where least work is lost. Ctrl-C ends only the
    waiting: the devices are drained nevertheless.
    """
    _wait_free(lambda client: client.free(n, within), within)


def _wait_free(take_out: Callable[[Client], list[str]], within: float) -> None:
    """Drain devices by ``take_out``, and print each one's name when it becomes free."""
    from ..show.views.devices import wait_free

    settings = settings_of()
    reader = reader_of(settings)
    reader.devices()  # nothing is taken out where the ledger, which says when, is out of reach
    names = take_out(client_of(settings))
    wait_free(reader, names, within, lambda name: say(f"{name} is free"))
