"""The files of deploy/, for the tests that read them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from commands import COMMANDS
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def check_command(words: Sequence[str]) -> None:
    """See that ``penstock WORDS`` is a command, with options that it has."""
    command, *options = words
    named = {name for parameter in COMMANDS[command].params for name in parameter.opts}
    assert {option for option in options if option.startswith("--")} <= named, words


def yaml_of(path: Path):
    """A YAML file's value; a key that is there twice is an error."""
    return YAML(typ="safe").load(path)
