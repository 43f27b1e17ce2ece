"""The commands of ``penstock``, with those of the extensions that are there."""

from penstock.app.cli.main import app
from penstock.app.cli.of_extensions import ExtensionCommand
from penstock.app.extensions import names
from typer.main import get_command


def of_extension(command):
    """The extension that has the command; None for one of the core."""
    return command.extension if isinstance(command, ExtensionCommand) else None


COMMANDS = {
    name: command.load() if of_extension(command) in names("cli") else command
    for name, command in get_command(app).commands.items()
    if of_extension(command) in (None, *names("cli"))
}
#: Those whose extension is not there: they are listed, and refused.
MISSING = {
    name: command for name, command in get_command(app).commands.items() if name not in COMMANDS
}
