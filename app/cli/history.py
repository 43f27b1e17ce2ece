"""``penstock history``: what earlier tuning found, as a file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from .terminal import Application, check_folder, client_of, reader_of, say

history = Application(help="Export or import the history of tuned system parameters.")


@history.command("export")
def export_history(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")],
) -> None:
    """Write the history to a JSON file. It holds rates, ratios and digests, but no user data."""
    from ..common.atomic_file import write_atomic
    from ..ledger.history import to_json

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
    from ...profiling.similarity.history import machine_class
    from ..ledger.history import read_file

    entries = read_file(file)
    if not entries:
        say(f"{file}: no entries")
        return
    reader = reader_of()
    before = {entry.id for entry in reader.history()}
    client_of().remember(entries)
    ids = {entry.id for entry in entries}
    known = Counter(entry.machine for entry in reader.history() if entry.id in ids)
    classes = {machine_class(record.device) for record in reader.devices()}
    again = Counter(entry.machine for entry in entries if entry.id in before)
    for machine, n in sorted(Counter(entry.machine for entry in entries).items()):
        apart = "" if machine in classes else ": stored, but no device here is of that class"
        kept = "" if known[machine] == n else f", {known[machine]} of them kept"
        old = f", {again[machine]} of them known already" if again[machine] else ""
        say(f"{_entries(n)} of {machine}{old}{kept}{apart}")


def _entries(n: int) -> str:
    return "1 entry" if n == 1 else f"{n} entries"
