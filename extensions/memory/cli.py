"""``penstock memory``: what memory a study's trials need."""

from __future__ import annotations

from ...app.cli.terminal import STUDIES, Application, Json, Name, present, reader_of, study_of

commands = Application()


@commands.command(rich_help_panel=STUDIES)
def memory(name: Name = None, as_json: Json = False) -> None:
    """Show the memory needs of a study's trials: estimated before they ran, and measured."""
    from .show import memory_facts, memory_of, memory_view

    reader = reader_of()
    present(memory_of(reader, study_of(reader, name)), as_json, memory_view, memory_facts)
