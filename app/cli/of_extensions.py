"""Commands of extensions: listed without importing them, and imported where one is run."""

from __future__ import annotations

from typing import Any

import typer

from .terminal import MACHINE, STUDIES, Application, Command, Commands


class ExtensionCommand(Command):
    """A command, or a group of them, that an extension has in its end ``cli`` under its name."""

    def __init__(self, name: str, extension: str, help: str, panel: str = STUDIES) -> None:  # noqa: A002
        super().__init__(name, help=help, rich_help_panel=panel)
        self.extension = extension

    def load(self) -> Any:
        """Return the command itself. Raises UsageError if the extension is not there."""
        from ..extensions import end_of

        found = getattr(end_of(self.extension, "cli", f"penstock {self.name}"), str(self.name))
        if isinstance(found, Application):
            group = typer.main.get_command(found)
            group.name = self.name
            return group
        alone = Application()
        alone.command(self.name)(found)
        return typer.main.get_command(alone)


#: The commands of extensions: name, extension, the line that ``--help`` has of it, and the panel.
COMMANDS = (
    (
        "memory",
        "memory",
        "Show what memory a study's trials need: estimated before they ran, and measured.",
    ),
    (
        "prefixes",
        "prefixes",
        "Show which epochs a study's trials have in common, what that saved, and the tree of them.",
    ),
    (
        "similar",
        "system_tuning",
        "Show which known workloads a trial resembles, and which system parameters paid off.",
    ),
    (
        "simulate",
        "simulation",
        "Simulate a workload on other devices and under other policies, and compare them.",
    ),
    ("env", "environments", "Make environments for studies, and list them.", MACHINE),
)


class AllCommands(Commands):
    """The commands of the core and those of extensions."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        for each in COMMANDS:
            self.add_command(ExtensionCommand(*each))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that is to be run."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, ExtensionCommand) else command, rest
