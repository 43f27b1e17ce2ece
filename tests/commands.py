"""The commands of ``penstock``, with those of the extensions that are there."""

from penstock.app import extensions
from penstock.app.cli.main import app
from typer.main import get_command

_GROUP = get_command(app)
COMMANDS = {name: _GROUP.get_command(None, name) for name in _GROUP.list_commands(None)}
#: Commands whose extension is not there: they are refused.
MISSING = {name for name in extensions.COMMANDS if not extensions.has_command(name)}
