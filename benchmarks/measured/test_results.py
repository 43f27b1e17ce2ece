"""Figures have one home: what benchmarks write is kept, and pages that quote it are compared."""

from __future__ import annotations

import json
import re

import pytest

from testkit import results
from testkit.measured import Home, keep_all

CLAIMS = """
head = "{start.first_s} s"

[[section]]
title = "Starts"
rows = [["first step", "{start.first_s} s", "theirs {start.theirs_s} s", "1; {start.share:.1%}"]]

[table]
starts = [["", "seconds"], ["first", "**{start.first_s}**"]]
"""
RUN = {
    "name": "start",
    "command": "python -m benchmarks.start --json FILE",
    "baseline": "theirs, in turns",
    "commit": "abc",
    "date": "2026-11-27",
    "machine": {"cores": 2, "processor": "any", "loop_s": 0.5},
    "load_before": 0.7,
    "load_after": 1.5,
}


@pytest.fixture
def home(tmp_path):
    """Make a repository with claims, one kept run, and a page with this text."""

    def make(page=""):
        (tmp_path / "docs").mkdir(exist_ok=True)
        (tmp_path / "docs" / "some.md").write_text(page)
        (tmp_path / "claims.toml").write_text(CLAIMS)
        made = Home(tmp_path, tmp_path, tmp_path / "claims.toml")
        (tmp_path / "docs" / "measured.md").write_text(made.page())
        return made

    written(tmp_path, {"first_s": {"n": 3, "median": 4.26}, "theirs_s": 2.8, "share": 0.0039})
    return make


def written(folder, figures, **run):
    """Keep these figures as a benchmark's file has them."""
    file = folder / "a_benchmark"
    file.write_text(json.dumps({**figures, "run": RUN | run}))
    return results.keep(file, folder)


def test_a_benchmark_writes_its_figures_with_commit_date_machine_and_load(tmp_path):
    run = results.Run("some", baseline="another")
    run.write(tmp_path / "some", {"seconds": results.summary([3.0, 1.0, 2.0])})
    run.write(None, {})
    found = json.loads((tmp_path / "some").read_text())
    assert found["seconds"] == {"n": 3, "median": 2.0, "low": 1.0, "high": 3.0}
    assert found["run"].keys() == RUN.keys() | {"seconds", "whole"}
    assert (found["run"]["name"], found["run"]["baseline"]) == ("some", "another")
    assert found["run"]["machine"].keys() >= {"cores", "processor", "loop_s"}
    assert found["run"]["machine"]["loop_s"] > 0.0


def test_a_newer_figure_takes_the_place_of_the_older_one_alone(tmp_path):
    written(tmp_path, {"a": 1, "b": {"median": 2.0, "n": 5}, "c": [1], "d": "text", "e": True})
    place = written(tmp_path, {"a": 3}, date="2026-11-28")
    found = results.kept(tmp_path)
    assert {name: figure.value for name, figure in found.items()} == {
        "start.a": 3,
        "start.b": 2.0,
        "start.b.median": 2.0,
        "start.b.n": 5,
    }
    assert found["start.a"].run["date"] == "2026-11-28"
    assert found["start.b"].run["date"] == "2026-11-27"
    written(tmp_path, {"b": {"median": 1.0, "n": 7}})
    assert len(json.loads(place.read_text())["runs"]) == 2, "nothing of the first is left"


def test_what_is_no_whole_run_that_tells_of_itself_is_refused_with_words(tmp_path):
    (tmp_path / "plain").write_text('{"seconds": 1}')
    with pytest.raises(ValueError, match="plain does not describe its run"):
        results.keep(tmp_path / "plain", tmp_path)
    with pytest.raises(ValueError, match="a quick run"):
        written(tmp_path, {"a": 1}, command="python -m benchmarks.start --quick --json FILE")
    with pytest.raises(ValueError, match="is of a part"):
        written(tmp_path, {"a": 1}, whole=False)
    assert results.kept(tmp_path) == {}


def test_a_mean_is_kept_with_its_interval(tmp_path):
    written(tmp_path, {"ratio": results.estimate(1.1, 0.9, 1.3)})
    found = {name: figure.value for name, figure in results.kept(tmp_path).items()}
    assert found == {
        "start.ratio": 1.1,
        "start.ratio.mean": 1.1,
        "start.ratio.interval.low": 0.9,
        "start.ratio.interval.high": 1.3,
    }


def test_nothing_is_kept_where_a_figure_that_is_told_would_be_gone(home, tmp_path):
    made = home("At least <!--start.first_s.low-->4<!--/--> s")
    assert made.unknown() == ["docs/some.md: start.first_s.low"]
    written(tmp_path, {"first_s": {"n": 3, "median": 4.26, "low": 4.0}})
    made, before = home("At least <!--start.first_s.low-->4<!--/--> s"), results.kept(tmp_path)
    file = tmp_path / "newer"
    file.write_text(json.dumps({"first_s": 3.9, "run": RUN}))
    with pytest.raises(
        ValueError, match=r"(?s)nothing is kept.*docs/some\.md: start\.first_s\.low"
    ):
        keep_all([file], made)
    assert results.kept(tmp_path) == before
    file.write_text(json.dumps({"first_s": {"median": 3.9, "low": 3.8}, "run": RUN}))
    keep_all([file], made)
    assert results.kept(tmp_path)["start.first_s"].value == 3.9


def test_a_command_with_a_bar_stays_in_its_cell(home, tmp_path):
    written(tmp_path, {"first_s": 4.26}, command="python -m benchmarks.start [--a | --b]")
    (row,) = [line for line in home().page().splitlines() if line.startswith("| first step")]
    assert len(cells(row)) == 5
    assert r"`start [--a \| --b]`, 2026-11-27" in row


def test_each_row_of_the_real_page_has_five_cells():
    rows = [line for line in Home().page().splitlines() if line.startswith("|")]
    assert rows
    assert [row for row in rows if len(cells(row)) != 5] == []
    assert [row for row in rows if not cells(row)[2].strip()] == [], "without a baseline"


def cells(row):
    """Split a row of a table; a bar after a backslash is text."""
    return re.split(r"(?<!\\)\|", row)[1:-1]


def test_the_page_has_a_row_with_its_baseline_its_goal_and_its_run(home):
    page = home().page()
    row = "| first step | 4.26 s | theirs 2.8 s | 1; 0.4 % "
    assert f"{row}| `start`, 2026-11-27, load 0.7 to 1.5, loop 0.50 s |" in page


def test_a_quoted_number_may_be_rounded_and_nothing_else(home):
    text = "It is <!--start.first_s-->**4.3**<!--/--> s, <!--start.share:%-->0.39<!--/--> %"
    assert home(text).disagreeing() == []
    assert home(f"\n{text[6:]}").disagreeing() == ["docs/some.md: begins a line: start.first_s"]
    assert home(text.replace("4.3", "4.2")).disagreeing() == [
        "docs/some.md: start.first_s: **4.2**, kept 4.26"
    ]


def test_what_is_quoted_is_brought_up_to_date(home, tmp_path):
    made = home("In <!--start.first_s-->**9.9**<!--/--> s\n\n<!--table starts-->\n<!--/table-->\n")
    assert len(made.disagreeing()) == 2
    made.write()
    after = Home(tmp_path, tmp_path, tmp_path / "claims.toml")
    assert after.disagreeing() == []
    assert after.pages["docs/some.md"].startswith("In <!--start.first_s-->**4.3**<!--/--> s\n")
    assert "\n| | seconds |\n|---|---|\n| first | **4.26** |\n" in after.pages["docs/some.md"]


def test_a_figure_that_is_not_kept_is_told(home):
    assert home("Eight seconds.").unknown() == []
    assert home("<!--start.none-->8<!--/--> s").unknown() == ["docs/some.md: start.none"]
    assert home("On 2026-11-27, load 3: 8 s.").unknown() == [
        "docs/some.md: On 2026-11-27, load 3: 8 s."
    ]
