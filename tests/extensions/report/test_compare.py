"""Studies on one page: their progress, what was set otherwise, their best trials side by side."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace

import pytest
from ledgers.study_ledger import make_study, study_spec
from penstock.app.ledger.codec import spec_from_json
from penstock.app.show.views.progress import study_progress
from penstock.base.errors import UsageError
from penstock.extensions.report.compare import Compared, _progress, write_comparison
from penstock.scheduler.model.study import StrategySpec

HOSTILE = "</script><script>alert(1)</script>{{plotly}}"


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    return make_study(
        tmp_path_factory.mktemp("home"),
        study_spec(n_trials=9),
        study_spec(HOSTILE, id="b-1a2b", strategy=StrategySpec("full", max_epochs=3), seed=7),
        study_spec("c", id="c-1a2b", direction="minimize"),
        fails=(3,),
    )


@pytest.fixture(scope="module")
def page(reader, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "new" / "compare.html"
    return write_comparison(reader, ["digits-1a2b", "b-1a2b"], path).read_text()


def rows(page, section):
    """The cells of a section's table, as text."""
    [inside] = re.findall(rf'<section id="{section}">(.*?)</section>', page, re.DOTALL)
    found = [
        re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row)
        for row in re.findall(r"<tr>(.*?)</tr>", inside)
    ]
    return [[html.unescape(re.sub("<[^>]+>", "", cell)) for cell in row] for row in found]


def test_the_curves_are_the_best_so_far_of_each_study(page, reader):
    data = re.search(r'<script type="application/json" id="figures">(.*?)</script>', page)[1]
    figures = json.loads(data)
    for view in ("epochs", "time"):
        first, second = figures[view]["data"]
        assert first["name"] == "digits"
        for line, study in ((first, "digits-1a2b"), (second, "b-1a2b")):
            epochs = reader.epochs(study)
            assert len(line["x"]) == len(epochs)
            assert line["x"] == sorted(line["x"])
            assert line["y"] == sorted(line["y"])
            assert line["y"][-1] == max(row.value for row in epochs)
    assert figures["epochs"]["data"][0]["x"][-1] == len(reader.epochs("digits-1a2b"))


def test_a_trial_that_violates_a_constraint_is_nobodys_best(reader):
    trials, epochs = reader.trials("digits-1a2b"), reader.epochs("digits-1a2b")
    best = max(epochs, key=lambda row: row.value).trial
    marked = [replace(t, constraints={"size": 1.0}) if t.id == best else t for t in trials]
    study = reader.study("digits-1a2b")
    spec = spec_from_json(study.spec_json)
    progress = study_progress(study, marked, epochs)
    of = Compared(study, spec, marked, epochs, progress, "red")
    values = [value for *_, value in _progress(of)]
    assert sorted(values) == sorted(row.value for row in epochs if row.trial != best)
    silent = [value for *_, value in _progress(replace(of, epochs=[]))]
    assert len(silent) == sum(t.value is not None and t.state != "failed" for t in trials) - 1


def test_only_settings_that_differ_are_listed(page):
    head, *found = rows(page, "settings")
    assert head == ["", "digits", HOSTILE]
    assert {row[0]: row[1:] for row in found} == {
        "strategy": ["ASHA from 1 to 9 epochs (eta 3)", "full budget of 3 epochs each"],
        "seed": ["0", "7"],
    }


def test_the_best_trials_stand_side_by_side(page, reader):
    best = {row[0]: row[1:] for row in rows(page, "best")}
    for column, study in enumerate(("digits-1a2b", "b-1a2b")):
        completed = [t for t in reader.trials(study) if t.state == "completed"]
        trial = max(completed, key=lambda t: t.value)
        assert best["accuracy"][column] == f"{trial.value:.5g}"
        assert best["trial"][column].startswith(f"{trial.number}, completed")
        assert best["lr"][column] == f"{trial.params['lr']:.4g}"


def test_no_text_of_a_users_becomes_code_and_no_folder_is_shown(page):
    assert "<script>alert(1)" not in page
    assert "/secret" not in page


def test_what_cannot_be_compared_is_refused(reader, tmp_path):
    words = "digits to maximize accuracy, c to minimize accuracy"
    with pytest.raises(UsageError, match=words):
        write_comparison(reader, ["digits-1a2b", "c-1a2b"], tmp_path / "r.html")
    with pytest.raises(UsageError, match="each study once"):
        write_comparison(reader, ["digits-1a2b", "digits"], tmp_path / "r.html")
    with pytest.raises(UsageError, match="no study 'd'"):
        write_comparison(reader, ["digits-1a2b", "d"], tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()
