"""``penstock up``, ``down``, ``worker`` and others: see and control what runs on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...base.errors import BackendError
from ...base.importing import importing
from ...base.wording import size_words
from .terminal import Json, present, reader_of, say, settings_of

Devices = Annotated[
    str | None,
    typer.Option(
        metavar="DEVICES",
        help="auto, cpu:2x1 (two devices of one core), gpu:all or gpu:0,1. *2 after it: two trials"
        " side by side on each; *2x4: two lanes, in each of which four trials take turns.",
    ),
]


def plan(as_json: Json = False) -> None:
    """Show what the scheduler plans: which trials run and until when, which wait and why."""
    from ..client.study import control
    from ..show.views.plan import plan_view

    present(control.plan(settings_of()), as_json, plan_view)


def gc(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list what would be deleted.")
    ] = False,
) -> None:
    """Delete checkpoints not named in the ledger, and empty logs older than PENSTOCK_LOG_AGE."""
    from ..server.services.garbage import find

    freed, files = 0, 0
    for each in find(settings_of()):
        if not dry_run:
            each.remove()
        freed, files = freed + each.size, files + 1
        say(f"{each.shown}  {size_words(each.size)}")
    would = "would be freed" if dry_run else "freed"
    say(f"{files} files, {size_words(freed)} {would}")


def backup(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="The file to write; by default one in the state folder."
        ),
    ] = None,
) -> None:
    """Write a copy of the ledger, as it is now, to a file."""
    from ..server.services.backups import back_up

    path, content = back_up(settings_of(), file)
    say(f"{path}  {content.newest} events, {content.studies} studies")


def restore(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="The backup to restore; without it, backups are listed."
        ),
    ] = None,
) -> None:
    """Replace the ledger with a backup while nothing runs here, or list the backups."""
    from ..server.services.backups import list_backups, restore_backup

    settings = settings_of()
    if file is not None:
        say(restore_backup(settings, file))
        return
    backups = list_backups(settings)
    for line in backups:
        say(line)
    if not backups:
        say(f"there is no backup in {settings.backup_folder}")


def up(devices: Devices = None) -> None:
    """Start broker, scheduler and workers, and keep them running."""
    from ..server.services.services import ensure_up, startup_trouble, statuses

    settings = settings_of(devices)
    ensure_up(settings, devices, stays=True)
    trouble = startup_trouble(settings)
    for service in statuses(settings):
        say(f"{service.name} runs as process {service.pid}, its log is {service.log}")
    if trouble is not None:
        raise BackendError(f"the scheduler cannot serve: {trouble}")


def down() -> None:
    """Stop all services here. Studies continue when they are started again."""
    from ..client.study.control import unfinished
    from ..server.services.services import take_down

    settings = settings_of()
    names = take_down(settings)
    say(f"stopped: {', '.join(names)}" if names else "nothing was running")
    for words in unfinished(settings):
        say(words)


def worker(devices: Devices = None) -> None:
    """Serve this machine's devices to the scheduler on PENSTOCK_BROKER.

    On Ctrl-C or SIGTERM, running trials end their epoch, then the machine leaves.
    """
    from ...tasks.process.forking import forbid_tracing

    with importing():
        from ..node.agent import node_agent

    forbid_tracing()  # nor what it forks, which are its workers
    raise typer.Exit(node_agent.main(settings_of(devices)))


def flower(
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, metavar="PORT", help="A free port.")
    ] = None,
    address: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where to listen; 0.0.0.0 is everywhere.")
    ] = "127.0.0.1",
) -> None:
    """Show queues, workers and tasks in Flower, in the browser."""
    from ..broker.server import connect
    from ..server.services import flower as flowers

    settings = settings_of()
    settings.ensure_home()
    connect(settings).close()
    port = port or settings.flower_port
    say(f"http://{address}:{port}/tasks  user {flowers.USER}")
    say(f"the password is in {flowers.password_file(settings)}")
    flowers.exec_flower(settings, port, address)


def dashboard(
    port: Annotated[
        int, typer.Option(min=1, max=65535, metavar="PORT", help="A free port.")
    ] = 8080,
) -> None:
    """Show all studies in optuna-dashboard, in the browser, until Ctrl-C. Read-only.

    It needs the extra 'dashboard' of penstock, and listens on this machine only.
    """
    from ..server.optuna_bridge.dashboard import ADDRESS, serving

    reader = reader_of()
    reader.newest()  # says so here where nothing has run yet
    with serving(reader, port) as server:
        say(f"http://{ADDRESS}:{port}/dashboard")
        server.serve_forever()
