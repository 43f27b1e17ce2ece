"""``penstock --help`` lists the command, which it does not import."""

from penstock.app.cli.of_extensions import COMMANDS
from penstock.extensions.simulation.cli import simulate


def test_the_line_in_the_list_is_the_first_of_the_commands_own_help():
    [line] = [says for name, _, says, *_ in COMMANDS if name == "simulate"]
    assert line == simulate.__doc__.split("\n\n")[0]
