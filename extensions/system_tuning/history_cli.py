"""``penstock history``: list results of earlier tuning, adopt some, and move them as a file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from ...app.cli.terminal import Application, Json, check_folder, client_of, present, reader_of, say

history = Application(invoke_without_command=True)


@history.callback()
def known(ctx: typer.Context, as_json: Json = False) -> None:
    """List the history of tuned system parameters, adopt results, export or import it."""
    if ctx.invoked_subcommand is None:
        list_history(as_json)


@history.command("list")
def list_history(as_json: Json = False) -> None:
    """List workloads, their clusters, and the speed of each configuration."""
    from time import time

    from .history import history_facts, history_view

    present(history_facts(reader_of(), time()), as_json, history_view)


@history.command("adopt")
def adopt(
    workload: Annotated[
        str,
        typer.Argument(
            metavar="WORKLOAD", help="A workload of the list, or the beginning of its name."
        ),
    ],
    config: Annotated[
        str | None,
        typer.Argument(
            metavar="CONFIG",
            help="As threads=1,memory_format=channels_last, or default; without it, the fastest.",
        ),
    ] = None,
    machine: Annotated[
        str | None, typer.Option(metavar="CLASS", help="The class of machine, if it is on several.")
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Remove the adopted configuration.")] = False,
) -> None:
    """Pin a system configuration: studies of that code use it from their first epoch on."""
    from time import time

    from ...base.errors import UsageError
    from ...profiling.knobs.knobs import config_text
    from .history import best_known, config_from, find_workload, history_facts

    if undo and config is not None:
        raise UsageError("--undo takes no configuration")
    of, facts = find_workload(history_facts(reader_of(), time()), workload, machine)
    name = f"{facts['workload']} on {of['machine']}"
    if undo:
        if facts["adopted"] is None:
            raise UsageError(f"nothing is adopted for {name}")
        client_of().adopt(facts["workload"], of["machine"], None)
        say(f"{name}: nothing is adopted any more")
        return
    pinned = best_known(facts) if config is None else config_from(config)
    client_of().adopt(facts["workload"], of["machine"], pinned)
    say(f"{name}: {config_text(pinned)} is adopted")
    if not facts["of_code"]:
        say("no study in this ledger has that code: it is used once one has")


@history.command("export")
def export_history(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")],
) -> None:
    """Write the history to a JSON file. It contains rates, ratios and digests, but no user data."""
    from ...app.common.atomic_file import write_atomic
    from ...app.ledger.history import to_json

    check_folder("FILE", file)
    entries = reader_of().history()
    write_atomic(file, to_json(entries), "history")
    say(f"{file}: {_entries(len(entries))}")


@history.command("import")
def import_history(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A file that `penstock history export` wrote.")
    ],
) -> None:
    """Add a history that was exported elsewhere. Known entries are not duplicated."""
    from ...app.ledger.history import read_file
    from ...profiling.similarity.history import machine_class

    entries = read_file(file)
    if not entries:
        say(f"{file}: no entries")
        return
    reader = reader_of()
    before = {entry.id for entry in reader.history()}
    client_of().remember(entries)
    ids = {entry.id for entry in entries}
    kept_counts = Counter(entry.machine for entry in reader.history() if entry.id in ids)
    classes = {machine_class(record.device) for record in reader.devices()}
    again = Counter(entry.machine for entry in entries if entry.id in before)
    for machine, n in sorted(Counter(entry.machine for entry in entries).items()):
        apart = "" if machine in classes else ": stored, but no device here is of that class"
        kept_words = "" if kept_counts[machine] == n else f", {kept_counts[machine]} of them kept"
        old = f", {again[machine]} of them known already" if again[machine] else ""
        say(f"{_entries(n)} of {machine}{old}{kept_words}{apart}")


def _entries(n: int) -> str:
    return "1 entry" if n == 1 else f"{n} entries"
