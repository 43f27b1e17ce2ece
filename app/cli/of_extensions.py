"""Commands of extensions: listed without importing them, and imported where one is run."""

from __future__ import annotations

from typing import Any

import typer

from .terminal import STUDIES, Application, Command, Commands


class ExtensionCommand(Command):
    """A command that an extension has in its end ``cli``, under the command's name."""

    def __init__(self, name: str, extension: str, help: str, panel: str) -> None:  # noqa: A002
        super().__init__(name, help=help, rich_help_panel=panel)
        self.extension = extension

    def load(self) -> Any:
        """Return the command itself. Raises UsageError if the extension is not there."""
        from ..extensions import end_of

        end = end_of(self.extension, "cli", f"penstock {self.name}")
        alone = Application()
        alone.command(self.name)(getattr(end, str(self.name)))
        return typer.main.get_command(alone)


#: The commands of extensions: name, extension, and the line that ``--help`` has of it.
COMMANDS = (
    (
        "memory",
        "memory",
        "Show what memory a study's trials need: estimated before they ran, and measured.",
    ),
    (
        "simulate",
        "simulation",
        "Simulate a workload on other devices and under other policies, and compare them.",
    ),
)


class AllCommands(Commands):
    """The commands of the core and those of extensions."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        for name, extension, says in COMMANDS:
            self.add_command(ExtensionCommand(name, extension, says, STUDIES))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that is to be run."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, ExtensionCommand) else command, rest
