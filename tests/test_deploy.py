"""The units start commands that there are, and the environment names settings that there are."""

import configparser
import re
import shlex
from pathlib import Path

import pytest
import typer.main
from penstock.app.cli import app
from penstock.app.settings import PREFIX, Settings

DEPLOY = Path(__file__).parent.parent / "deploy"


@pytest.mark.parametrize("unit", sorted(DEPLOY.glob("systemd/*.service")), ids=lambda p: p.name)
def test_a_unit_starts_a_command_with_options_that_it_has(unit):
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read(unit)
    program, command, *options = shlex.split(parser["Service"]["ExecStart"])
    assert Path(program).name == "penstock"
    known = typer.main.get_command(app).commands[command]
    named = {name for parameter in known.params for name in parameter.opts}
    assert {option for option in options if option.startswith("--")} <= named


def test_the_environment_names_settings():
    names = re.findall(rf"^{PREFIX}(\w+)=", (DEPLOY / "penstock.env").read_text(), re.MULTILINE)
    assert names
    assert {name.lower() for name in names} <= Settings.model_fields.keys()


def test_every_file_is_in_the_readme():
    text = (DEPLOY / "README.md").read_text()
    files = [p for p in DEPLOY.rglob("*") if p.is_file() and p.name != "README.md"]
    assert [
        str(p.relative_to(DEPLOY)) for p in files if str(p.relative_to(DEPLOY)) not in text
    ] == []
