"""Commands of extensions: an end is imported to list its commands, or to run one of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from typer.main import get_group

from .terminal import Commands


class AllCommands(Commands):
    """The commands of the core and those of extensions."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands that are there."""
        from ..extensions import names

        self._add(names("cli"), "penstock --help")
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Find a command. Raises UsageError if its extension is not there."""
        if cmd_name not in self.commands:
            from ..extensions import COMMANDS, names

            owner = COMMANDS.get(cmd_name)
            self._add(names("cli") if owner is None else [owner], f"penstock {cmd_name}")
        return super().get_command(ctx, cmd_name)

    def _add(self, extensions: Iterable[str], what: str) -> None:
        from ..extensions import end_of

        for name in extensions:
            commands = getattr(end_of(name, "cli", what), "commands", None)
            if commands is not None:
                self.commands.update(get_group(commands).commands)
