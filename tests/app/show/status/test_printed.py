"""``penstock logs`` finds what trials printed in the logs of this machine's trainers."""

import os

import pytest
from ledgers.study_ledger import make_study, study_spec
from penstock.app.cli.main import app
from penstock.app.host.log_keeper import trim
from penstock.app.host.logs import tail
from penstock.app.host.settings import load
from penstock.app.show.status.printed import WIDEST, PrintedLines
from typer.testing import CliRunner

ONE, OTHER = "trainer-cpu.node.0.s0.log", "trainer-cpu.node.1.s0.log"


def line(second, trial, text):
    return f"2026-11-27T07:00:{second:06.3f}Z {trial}| {text}\n"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A study of nine trials, of which 2 moved from a device to another one; one log is no log."""
    home = tmp_path_factory.mktemp("home")
    make_study(home, study_spec())
    logs = load(home=home).logs
    logs.mkdir()
    (logs / ONE).write_text(
        "a library in C says something\n"
        + line(1, "digits-1a2b-0002", "epoch 1")
        + line(2, "digits-1a2b-0000", "zero")
        + line(3, "other-1a2b-0002", "not of this study")
    )
    (logs / OTHER).write_text(
        line(1.5, "digits-1a2b-0001", "a bar: 10 %\r\x1b[2Ka bar: 20 %\r\x1b[2Ka bar: all")
        + line(4, "digits-1a2b-0002", "epoch 2")
    )
    os.mkfifo(logs / "trainer-cpu.node.9.s0.log")
    return home


@pytest.fixture
def call(home):
    def call(*arguments):
        done = CliRunner(env={"PENSTOCK_HOME": str(home)}).invoke(app, ["logs", *arguments])
        return done.exit_code, done.stdout.splitlines(), done.stderr

    return call


@pytest.mark.parametrize("name", ["digits/2", "digits-1a2b-0002"])
def test_of_a_trial_it_is_what_it_printed_wherever_it_ran(call, name):
    assert call(name) == (0, ["epoch 1", "epoch 2"], "")


@pytest.mark.parametrize("name", [(), ("digits",)])
def test_of_a_study_it_is_what_all_printed_in_the_order_of_time(call, name):
    lines = ["2| epoch 1", "1| a bar: all", "0| zero", "2| epoch 2"]
    assert call(*name) == (0, lines, "")


def test_older_lines_are_left_out_and_that_is_said(call):
    code, lines, said = call("digits", "--lines", "1")
    assert (code, lines) == (0, ["2| epoch 2"])
    assert said == "3 older lines left out: --lines N shows more\n"


def test_who_printed_nothing_here_is_said_to_have_run_there(call):
    code, lines, said = call("digits/5")
    assert (code, lines) == (0, [])
    assert said.startswith("trial 5 has printed nothing that is in ")
    assert "; it ran on cpu.node." in said


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("digit", "there is: digits"),
        ("digits/99", "its trials are digits/0 to digits/8"),
        ("nobody/1", "nobody"),
    ],
)
def test_what_is_not_there_is_refused(call, name, words):
    code, lines, said = call(name)
    assert (code, lines) == (2, [])
    assert words in said


def test_that_a_log_was_cut_is_said(tmp_path):
    log = tmp_path / ONE
    log.write_text("".join(line(n / 10, "s-0000", f"line {n}") for n in range(500)))
    assert not PrintedLines(tmp_path, "s-0000".__eq__).new(10).cut
    trim(log, 4000)
    found = PrintedLines(tmp_path, "s-0000".__eq__).new(10_000)
    assert (found.cut, found.lines[0].text, found.lines[-1].text) == (True, "line 0", "line 499")
    assert 10 < len(found.lines) < 499
    assert not PrintedLines(tmp_path, "s-0001".__eq__).new(10).cut, "nothing of it was there"


def test_what_is_shown_of_a_line_is_bounded(tmp_path):
    (tmp_path / ONE).write_text(line(1, "s-0000", "x" * 10_000))
    [found] = PrintedLines(tmp_path, "s-0000".__eq__).new(10).lines
    assert found.text == "x" * WIDEST


def test_messages_quote_a_log_without_its_marks(tmp_path):
    (tmp_path / ONE).write_text(line(1, "s-0000", "KeyError: 'x'") + "as it is\n")
    assert tail(tmp_path / ONE) == "KeyError: 'x'\nas it is"


def test_what_is_printed_later_is_found_once_and_only_in_whole_lines(tmp_path):
    log, later = tmp_path / ONE, tmp_path / OTHER
    log.write_text(line(1, "s-0000", "before"))
    following = PrintedLines(tmp_path, "s-0000".__eq__)
    assert [each.text for each in following.new().lines] == ["before"]
    assert following.new().lines == []
    with log.open("a") as file:
        file.write(line(2, "s-0000", "second") + line(2, "s-0001", "another's") + "2026-11")
    later.write_text(line(1.5, "s-0000", "first, in a log that is new"))
    found = [each.text for each in following.new().lines]
    assert found == ["first, in a log that is new", "second"]
    with log.open("a") as file:
        file.write(line(3, "s-0000", "the rest").removeprefix("2026-11"))
    assert [each.text for each in following.new().lines] == ["the rest"]
    log.write_text(line(3, "s-0000", "kept"))
    assert following.new().lines == [], "a log that was cut keeps what was there"


def test_of_a_study_that_is_over_following_ends_at_once(call):
    assert call("digits/2", "-f") == call("digits/2")
    code, lines, said = call("digits/5", "-f")
    assert (code, lines) == (0, [])
    assert "has printed nothing" in said
