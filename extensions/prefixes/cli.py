"""``penstock prefixes``: the epochs that a study's trials have in common."""

from __future__ import annotations

from ...app.cli.terminal import STUDIES, Application, Json, Name, present, reader_of, study_of

commands = Application()


@commands.command(rich_help_panel=STUDIES)
def prefixes(name: Name = None, as_json: Json = False) -> None:
    """Show which epochs a study's trials have in common, what that saved, and their tree."""
    from .common import prefix_facts, prefixes_of
    from .view import prefixes_view

    reader = reader_of()
    present(prefixes_of(reader, study_of(reader, name)), as_json, prefixes_view, prefix_facts)
