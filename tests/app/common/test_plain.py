"""Others' names, values, messages and tracebacks control no terminal and no spreadsheet."""

import csv
import io
import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from ledgers.study_ledger import SomeFail, make_study, study_spec
from penstock.app.cli import terminal
from penstock.app.cli.main import app
from penstock.app.common.console import PlainConsole
from penstock.app.common.plain import encodable, plain
from penstock.app.ledger.reader import Reader
from rich.text import Text
from typer.testing import CliRunner

ID = "digits-1a2b"
EVIL = "\x1b]52;c;cm0gLXJm\x07\x1b[31m\x1b[2J\x9b1A\r\x08\u202eevil\x00\ud800"
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]")


class Evil(SomeFail):
    message, traceback = f"ValueError: {EVIL}", f"Traceback:\n{EVIL}"


def choices(*values):
    return json.dumps({"name": "CategoricalDistribution", "attributes": {"choices": values}})


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    space = (*study_spec().space, (EVIL, choices(EVIL, f"b{EVIL}")))
    formulas = (("f", choices("=1+1", "@a", "-x", "+y")), ("n", choices("-1", "+2e3", "word")))
    make_study(
        folder, study_spec(space=(*space, *formulas), metric=f"m{EVIL}"), fails=(3,), devices=Evil
    )
    return folder


@pytest.mark.parametrize(
    "arguments",
    [
        *[("ls",), ("status",), ("best",), ("story", "digits/3"), ("story", "digits/1")],
        *[("watch",), ("report",), ("devices",), ("similar",), ("doctor",)],
        *[("export", "--format", "csv"), ("export", "--format", "csv", "--epochs")],
        *[("status", EVIL), ("nonsense", EVIL), ("best", f"--{EVIL}")],
    ],
    ids=lambda arguments: arguments[0] + f"-{len(arguments)}",
)
def test_no_command_lets_an_escape_through(home, arguments):
    env = {"PENSTOCK_HOME": str(home), "COLUMNS": "120"}
    result = CliRunner(env=env).invoke(app, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert CONTROL.findall(result.output) == []
    assert result.output


def test_json_is_exact(home):
    result = CliRunner(env={"PENSTOCK_HOME": str(home)}).invoke(app, ["best", "--json"])
    assert EVIL in json.loads(result.stdout)["params"]


@pytest.mark.extension("report")
def test_a_report_of_what_an_older_ledger_holds_is_written(home):
    result = CliRunner(env={"PENSTOCK_HOME": str(home)}).invoke(app, ["report"])
    assert result.exit_code == 0
    assert "evil" in Path(result.stdout.strip()).read_text("utf-8")


@pytest.mark.extension("exports")
def test_what_no_json_file_can_have_is_said_with_a_way_out(home, tmp_path):
    env = {"PENSTOCK_HOME": str(home)}
    result = CliRunner(env=env).invoke(app, ["export", "-o", str(tmp_path / "a.json")])
    assert result.exit_code == 2
    assert "half a character" in result.stderr
    assert "--format csv" in result.stderr


@pytest.mark.extension("exports")
def test_a_data_frame_has_all_but_halves_of_characters(home):
    from penstock.extensions.exports.archive import archive_of
    from penstock.extensions.exports.tables import to_parquet, trial_table

    archive = archive_of(Reader(f"sqlite:///{home / 'ledger.db'}"), ID)
    frame = pq.read_table(io.BytesIO(to_parquet(trial_table(archive)))).to_pylist()
    assert {row[f"params_{encodable(EVIL)}"] for row in frame} <= {
        encodable(EVIL),
        f"b{encodable(EVIL)}",
    }


@pytest.mark.extension("exports")
def test_cells_of_a_table_are_no_formulas_and_numbers_stay(home):
    from penstock.extensions.exports.archive import archive_of
    from penstock.extensions.exports.tables import epoch_table, to_csv, trial_table

    archive = archive_of(Reader(f"sqlite:///{home / 'ledger.db'}"), ID)
    for table in (trial_table(archive), epoch_table(archive)):
        assert CONTROL.findall(to_csv(table)) == []
    rows = list(csv.DictReader(io.StringIO(to_csv(trial_table(archive)))))
    assert {row["params_f"] for row in rows} <= {"'=1+1", "'@a", "'-x", "'+y"}
    assert {row["params_n"] for row in rows} <= {"-1", "+2e3", "word"}


def test_own_colours_stay():
    console = PlainConsole(file=io.StringIO(), force_terminal=True, color_system="standard")
    console.print(Text(EVIL, style="red"))
    assert console.file.getvalue() == "\x1b[31mevil\ufffd\x1b[0m\n"


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("é 漢 👍", "é 漢 👍"),
        ("a\tb\nc\r\nd", "a\tb\nc\nd"),
        ("\x1b]0;never ended\nnext", "\nnext"),
        ("\x1b[38;5;1mred\x1b", "red"),
        ("\x1bP1;2q\x1b\\x", "x"),
        ("\x9d0;title\x9cx", "x"),
    ],
)
def test_what_is_left_of_a_text(text, seen):
    assert plain(text) == seen
    encodable(plain(text)).encode()


def test_there_is_one_way_to_a_terminal():
    """Text goes through ``PlainConsole`` or ``terminal.say``; nothing else prints."""
    for path in Path(terminal.__file__).parent.glob("*.py"):
        text = path.read_text()
        assert not re.search(r"(?<!Plain)\bConsole\(", text.replace("console.Console)", "")), path
        if path.name != "terminal.py":
            assert not re.search(r"typer\.s?echo\(", text), path
