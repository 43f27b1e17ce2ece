"""The report: every section holds the study's own data, and no text of a user's becomes code."""

import io
import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise
from types import SimpleNamespace

import pytest
from ledgers.study_ledger import START, make_study, study_spec
from penstock.app.show.drawings.page import icon
from penstock.app.show.views.live import Watcher
from penstock.app.show.views.screen import study_screen
from penstock.app.show.views.spending import energy_words
from penstock.base.errors import UsageError
from penstock.extensions.report.report import lead, render, strategy_words, write_report
from penstock.scheduler.model.study import Code, StrategySpec, SuperNet
from rich.console import Console

HOSTILE = '</script><script>alert("x")</script>{{plotly}}{{ 7 * 7 }}{% include "pieces.html" %}{#'


class Page(HTMLParser):
    """Elements by tag, the text of each section by id, and the JSON of the charts."""

    def __init__(self, text):
        super().__init__()
        self.scripts = []
        self.rows = []
        self.sections = {}
        self.links = []
        self._within = []
        self._section = ""
        self.feed(text)
        self.figures = json.loads(next(s for kind, s in self.scripts if kind))

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self._within.append(tag)
        self.links += [value for name, value in attributes if name in ("src", "href", "action")]
        if tag == "script":
            self.scripts.append((given.get("type"), ""))
        if tag in ("section", "header", "footer"):
            self._section = given.get("id", tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        while self._within and self._within.pop() != tag:
            pass

    def handle_data(self, data):
        if "script" in self._within:
            kind, before = self.scripts[-1]
            self.scripts[-1] = (kind, before + data)
            return
        if self._section:
            self.sections[self._section] = self.sections.get(self._section, "") + data
        if {"td", "th"} & set(self._within):
            self.rows[-1][-1] += data


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    return make_study(tmp_path_factory.mktemp("home"), study_spec(n_trials=9), fails=(3,))


@pytest.fixture(scope="module")
def text(reader, tmp_path_factory):
    path = tmp_path_factory.mktemp("reports") / "new" / "report.html"
    assert write_report(reader, "digits-1a2b", path) == path
    assert [file.name for file in path.parent.iterdir()] == ["report.html"]
    return path.read_text()


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


def best_of(reader):
    complete = [t for t in reader.trials("digits-1a2b") if t.state == "completed"]
    return max(complete, key=lambda trial: trial.value)


def test_the_page_needs_no_network(text, page):
    """No element names another resource, and the page forbids itself to load one."""
    assert page.links == [icon()]
    assert icon().startswith("data:")
    assert "default-src 'none'" in text
    assert any("plotly.js v" in script[:400] for _, script in page.scripts)


def test_the_header_says_what_the_study_was(page):
    header = " ".join(page.sections["header"].split())
    assert "digits" in header
    assert "complete" in header
    assert "9 configurations by random sampling, ASHA from 1 to 9 epochs (eta 3)" in header
    assert "to maximize accuracy" in header
    assert "1 failed" in header


def test_the_best_trial_is_the_best_complete_one(page, reader):
    best = best_of(reader)
    card = page.sections["best"]
    assert card.startswith("Best trial")
    assert f"accuracy, last value of trial {best.number}, completed after 9 epochs" in card
    assert f"{best.value:.5g}" in card
    assert f"{best.params['lr']:.4g}" in card


def test_the_facts_name_the_code_but_not_the_folder(page, text):
    assert "digits.py:Digits" in page.sections["facts"]
    assert "/secret" not in text


@pytest.mark.parametrize("view", ["history_time", "history_trial"])
def test_the_history_has_every_value_and_a_best_that_only_rises(page, reader, view):
    line, dots = page.figures[view]["data"]
    values = [t.value for t in reader.trials("digits-1a2b") if t.value is not None]
    assert sorted(dots["y"]) == sorted(values)
    assert line["y"] == sorted(line["y"])
    assert line["y"][-1] == max(values)


def test_the_curves_are_the_accepted_epochs(page, reader):
    expected = {}
    for row in reader.epochs("digits-1a2b"):
        expected.setdefault(f"trial {int(row.trial[-4:])}", []).append((row.epoch, row.value))
    traces = page.figures["curves"]["data"]
    drawn = {t["name"]: list(zip(t["x"], t["y"], strict=True)) for t in traces}
    assert drawn == expected
    thickest = max(traces, key=lambda trace: trace["line"]["width"])
    assert thickest["name"] == f"trial {best_of(reader).number}"


def test_the_timeline_holds_all_training_and_no_device_runs_two_trials_at_once(page, reader):
    [bars] = page.figures["timeline"]["data"]
    spans = {}
    for lane, start, length in zip(bars["y"], bars["base"], bars["x"], strict=True):
        spans.setdefault(lane, []).append((start, start + length))
    assert sorted(spans) == ["cpu.node.0", "cpu.node.1"]
    for lane in spans.values():
        lane.sort()
        assert all(a[1] <= b[0] + 1e-6 for a, b in pairwise(lane))
    trained = sum(row.seconds for row in reader.epochs("digits-1a2b"))
    assert sum(bars["x"]) == pytest.approx(trained)


def test_parallel_coordinates_have_an_axis_for_each_parameter_and_the_metric(page, reader):
    [trace] = page.figures["parallel"]["data"]
    axes = {axis["label"]: axis for axis in trace["dimensions"]}
    assert list(axes) == ["x", "lr", "activation", "accuracy"]
    assert axes["activation"]["ticktext"] == ["&lt;i&gt;tanh", "relu"]
    assert "0.001" in axes["lr"]["ticktext"]  # powers of ten
    trials = {t.value: t for t in reader.trials("digits-1a2b")}
    assert axes["x"]["values"] == [trials[v].params["x"] for v in axes["accuracy"]["values"]]


def test_importances_are_of_one_rung_and_find_what_decides(tmp_path):
    """The curves are x times something: after the first rung 30 trials can be compared."""
    spec = study_spec(n_trials=30)
    path = write_report(make_study(tmp_path, spec), spec.id, tmp_path / "r.html")
    page = Page(path.read_text())
    [bars] = page.figures["importances"]["data"]
    assert sorted(bars["y"]) == ["activation", "lr", "x"]
    assert bars["y"][-1] == "x"
    assert bars["x"][-1] > 0.9
    assert sum(bars["x"]) == pytest.approx(1)
    assert "accuracy after 1 epoch varies, over 30 trials" in page.sections["importances"]


def test_too_few_trials_have_no_importances(page):
    assert page.figures["importances"] is None
    assert "need 20 trials" in page.sections["importances"]


def test_the_table_lists_all_trials_best_first_with_their_failures(page, reader):
    head, *rows = page.rows
    assert [cell.strip() for cell in head] == [
        *("Trial", "State", "accuracy", "Epochs"),
        *("x", "lr", "activation", "Training", "Device", "Failure"),
    ]
    trials = reader.trials("digits-1a2b")
    assert sorted(int(row[0]) for row in rows) == [trial.number for trial in trials]
    values = [trials[int(row[0])].value for row in rows if row[2] != "—"]
    assert values == sorted(values, reverse=True)
    [failed] = [row for row in rows if row[1] == "failed"]
    assert failed[0] == "3"
    assert "ValueError: <b>no</b>" in failed[-1]
    assert 'File "<net>.py", line 4' in failed[-1]


def test_a_hostile_name_stays_text(tmp_path):
    """Markup in the study's and the metric's name is shown, never run; nor are placeholders."""
    spec = study_spec(HOSTILE, n_trials=3, metric=HOSTILE)
    path = write_report(make_study(tmp_path, spec), spec.id, tmp_path / "r.html")
    page = Page(path.read_text())
    assert [kind for kind, _ in page.scripts] == [None, "application/json", None]
    assert HOSTILE in page.sections["header"]
    assert page.rows[0][2] == HOSTILE
    shown = page.figures["curves"]["layout"]["yaxis"]["title"]["text"]
    assert shown.startswith("&lt;/script&gt;")
    hover = page.figures["curves"]["data"][0]["hovertemplate"]
    assert hover.startswith("%{text}<br>epoch %{x}: &lt;/script&gt;")
    assert hover.endswith(" = %{y:.5g}<extra></extra>")


@pytest.mark.parametrize("turns", [0, 4])
def test_a_running_study_has_a_report(tmp_path, turns):
    """After no turn nothing is there yet; after four, some epochs."""
    reader = make_study(tmp_path, study_spec(), turns=turns)
    page = Page(write_report(reader, "digits-1a2b", tmp_path / "r.html").read_text())
    assert "running" in page.sections["header"]
    assert "not yet" in page.sections["facts"]
    if turns == 0:
        assert set(page.figures.values()) == {None}
        assert "No trial has a result." in page.sections["best"]
    else:
        drawn = sum(len(trace["x"]) for trace in page.figures["curves"]["data"])
        assert drawn == len(reader.epochs("digits-1a2b")) > 0


def test_trials_without_epochs_have_had_a_device_and_no_epoch_is_promised(reader):
    """An objective that only returns its value."""
    study, trials = reader.study("digits"), reader.trials("digits-1a2b")
    energy = energy_words([], reader.devices())
    page = Page(render(study, trials, [], None, datetime.now(UTC), energy=energy))
    said = "".join(page.sections.values())
    assert "no epoch was reported" in said
    assert "no epoch has begun" not in said
    facts = page.sections["facts"]
    assert {trial.device for trial in trials if trial.device and trial.device not in facts} == set()
    assert "none yet" not in facts
    assert "0.00 s of device time" not in facts


def test_a_study_in_which_all_failed_has_a_report(tmp_path):
    reader = make_study(tmp_path, study_spec(n_trials=3), fails=(0, 1, 2))
    page = Page(write_report(reader, "digits-1a2b", tmp_path / "r.html").read_text())
    assert "failed" in page.sections["header"]
    assert len([row for row in page.rows if row[1] == "failed"]) == 3


def test_a_report_that_cannot_be_written_leaves_the_old_one(tmp_path, reader):
    """A folder stands where the file should go: the error names it, and no draft stays."""
    place = tmp_path / "r.html"
    place.mkdir()
    with pytest.raises(UsageError, match=re.escape(str(place))):
        write_report(reader, "digits-1a2b", place)
    assert list(tmp_path.iterdir()) == [place]


def test_where_the_signature_has_changed_is_a_fact(reader):
    study = reader.study("digits-1a2b")
    epochs = reader.epochs(study.id)
    long = next(row for row in epochs if row.epoch == 9)
    changed = [replace(row, signature="elsewhere") if row == long else row for row in epochs]
    rendered = Page(render(study, reader.trials(study.id), changed, None, datetime.now(UTC)))
    facts = rendered.sections["facts"]
    assert "Exactnessbitwise" in facts
    assert f"Signature breakstrial {int(long.trial[-4:])} epoch 9" in facts
    assert (
        "Signature breaks"
        not in Page(
            render(study, reader.trials(study.id), epochs, None, datetime.now(UTC))
        ).sections["facts"]
    )


def test_of_candidates_it_says_whose_weights_they_have():
    supernet = SuperNet("trial 0 of <super> after epoch 3", "u", "h", 20)
    spec = study_spec(strategy=StrategySpec("full", max_epochs=1, supernet=supernet))
    words = "evaluation without training, with the weights of trial 0 of "
    assert strategy_words(spec) == f"{words}<super> after epoch 3"
    row = SimpleNamespace(n_trials=1, objectives=())
    assert f"{words}&lt;super&gt; after epoch 3" in lead(row, spec)


@pytest.mark.parametrize(
    ("kinds", "tools", "head"),
    [
        (
            {"sampler": "TPESampler", "pruner": "NopPruner"},
            *["TPESampler, NopPruner (the script's)"] * 2,
        ),
        ({"sampler": "TPESampler"}, *["TPESampler (the script's)"] * 2),
        ({}, "the script's own", "sampler and pruner: the script's own"),
    ],
)
def test_a_study_whose_sampler_is_its_scripts_names_it_and_no_seed(tmp_path, kinds, tools, head):
    """The scheduler knows neither a strategy of it nor what its sampler is seeded with."""
    spec = study_spec(
        contract="objective",
        sampler="optuna",
        sampler_options=json.dumps(kinds),
        space=None,
        strategy=StrategySpec(),
        tools=Code("pickle:tools", "", "d"),
    )
    reader = make_study(tmp_path, spec, turns=0)
    text = write_report(reader, "digits-1a2b", tmp_path / "r.html").read_text()
    facts = re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", text)
    known = {name: unescape(value) for name, value in facts}
    assert known["Sampler and pruner"] == tools
    assert known["Strategy"] == "as many epochs as the objective runs"
    assert not {"Sampler", "Seed"} & known.keys()
    console = Console(file=io.StringIO(), width=200)
    console.print(study_screen(Watcher(reader, "digits-1a2b").poll(), START))
    title = console.file.getvalue().splitlines()[0]
    assert title.rstrip() == f"digits  running  maximize accuracy · {head}"
