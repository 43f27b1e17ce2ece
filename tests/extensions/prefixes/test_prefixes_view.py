"""``penstock prefixes``: what is counted, what was saved, who waits for whom, and the tree."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from ledgers.shared_ledger import ID, checked, shared_spec, shared_study
from penstock.app.cli.main import app
from penstock.extensions.prefixes.common import left_to_others, prefixes_of, study_prefixes
from penstock.extensions.prefixes.picture import MAX_ROWS, tree_picture
from penstock.extensions.prefixes.tree import Edge
from penstock.extensions.prefixes.view import (
    MAX_EDGES,
    count_words,
    facts_in_words,
    prefixes_view,
)
from penstock.scheduler.model.study import StrategySpec
from rich.console import Console
from typer.testing import CliRunner

ASHA = StrategySpec("asha", max_epochs=9, eta=3)


def shown(found):
    console = Console(file=io.StringIO(), width=120)
    console.print(prefixes_view(found))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_a_finished_study_says_what_was_trained_and_what_that_saved(tmp_path):
    found = prefixes_of(*shared_study(tmp_path))
    told, *rest = facts_in_words(found)
    assert count_words(found) == "54 epochs of 9 trials, 36 distinct"
    assert told.startswith("36 were trained, 18 were taken over, which saved about 1.8 s of")
    assert rest == []
    assert (found.joules, found.companions, found.differences) == (None, (), ())
    lines = shown(found)
    assert lines[3:6] == [
        "epochs 1 to 3: x 0.2, 3 trials",
        "├── epochs 4 to 6: x 0.2, trial 0",
        "├── epochs 4 to 6: x 0.5, trial 1",
    ]
    assert len(lines) == 3 + 12


def test_joules_are_those_of_the_trials_that_trained(tmp_path):
    reader, study = shared_study(tmp_path)
    epochs = [
        row if row.taken_from else replace(row, joules=2.0) for row in reader.epochs(study.id)
    ]
    found = study_prefixes(shared_spec(), reader.trials(study.id), epochs, {})
    assert found.joules == pytest.approx(18 * 2.0)
    assert "1.8 s of training and 36.0 J" in "".join(facts_in_words(found))


def test_a_study_that_runs_says_what_is_to_come_and_who_waits_for_whom(tmp_path):
    reader, study = shared_study(tmp_path, turns=4)
    found = prefixes_of(reader, study)
    trials = reader.trials(study.id)
    have = sum(trial.epoch for trial in trials)
    assert found.trained + found.taken == have
    assert found.epochs.to_come == 54 - have
    assert found.epochs.to_train == 36 - found.trained
    lines = [*facts_in_words(found)]
    assert "trials 1, 2 wait as companions of trial 0" in lines
    assert lines[1] == "up to the targets of its trials 45 are to come, of which 33 need training"
    left = left_to_others(shared_spec(), trials, reader.epochs(study.id))
    assert left == 45 - 33


def test_what_was_foreseen_is_what_is_trained(tmp_path):
    """All trials of a grid are known from the start, so the whole study is."""
    for turns, home in enumerate(("a", "b", "c"), start=3):
        reader, study = shared_study(tmp_path / home, turns=turns)
        found = prefixes_of(reader, study)
        assert found.trained + found.epochs.to_train == 36


def test_trials_that_end_at_rungs_have_only_their_own_epochs_counted(tmp_path):
    reader, study = shared_study(tmp_path, n_trials=27, space=("x", "x@2", "x@4"), strategy=ASHA)
    found = prefixes_of(reader, study)
    assert found.epochs.total == sum(trial.epoch for trial in reader.trials(study.id))
    assert found.trained == found.epochs.distinct
    assert found.epochs.total == found.trained + found.taken


def test_checks_are_named_and_what_could_be_compared_is_counted(tmp_path):
    seed = next(s for s in range(999) if checked(s) == [4])
    found = prefixes_of(*shared_study(tmp_path, seed=seed))
    assert found.checked == (4,)
    assert (found.compared, found.differences) == (3, ())
    assert found.trained == 36 + 3
    words = "trial 4 trains all epochs as a check (one in 50); 3 epochs could be compared"
    assert words in [*facts_in_words(found)]


def test_bits_that_differed_are_told(tmp_path):
    seed = next(s for s in range(999) if checked(s) == [4])
    reader, study = shared_study(tmp_path, seed=seed)
    epochs = [
        replace(row, state_hash="other") if (row.trial[-1], row.epoch) == ("4", 2) else row
        for row in reader.epochs(study.id)
    ]
    found = study_prefixes(shared_spec(seed=seed), reader.trials(study.id), epochs, {})
    assert found.differences == ((3, 4, 2),)
    assert [*facts_in_words(found)][-1] == (
        "bits differed in 1 comparison, first in epoch 2 of trials 3 and 4: since then every trial"
        " trains its epochs itself"
    )


def test_a_study_without_prefixes_says_why(tmp_path):
    lines = shown(prefixes_of(*shared_study(tmp_path, seeding="trial")))
    assert lines == [
        "digits: 54 epochs of 9 trials, none in common",
        'it has no prefixes: seeding="trial" gives each trial random numbers of its own',
    ]


def test_a_study_of_which_no_two_trials_are_alike_says_so(tmp_path):
    found = prefixes_of(*shared_study(tmp_path, n_trials=3, space=("x",)))
    told = [*facts_in_words(found)]
    assert count_words(found) == "18 epochs of 3 trials, 18 distinct"
    assert "no two of its trials have equal hyperparameters from their first epoch on" in told
    assert "18 were trained, none was taken over" in told


def test_replicates_of_one_configuration_are_not_said_to_differ_in_it(tmp_path):
    found = prefixes_of(*shared_study(tmp_path, n_trials=2, replicates=2))
    told = [*facts_in_words(found)]
    assert "no two of its trials are one replicate and have equal hyperparameters from" in told[0]


def test_of_a_large_tree_the_edges_near_the_root_are_shown_and_the_others_counted(tmp_path):
    small = prefixes_of(*shared_study(tmp_path))
    [way, *_] = small.edges[0].ways
    roots = [Edge(None, 0, 0, 2, (("x", n),), (way,)) for n in range(30)]
    below = [Edge(n % 30, 1, 2, 6, (("x", n),), (way,)) for n in range(60)]
    order = [
        edge
        for n, root in enumerate(roots)
        for edge in (root, *(b._replace(above=3 * n) for b in below if b.above == n))
    ]
    lines = shown(replace(small, edges=tuple(order)))[3:]
    assert sum("epoch" in line for line in lines) == MAX_EDGES
    hidden = [int(line.split()[-4]) for line in lines if "not shown" in line]
    assert sum(hidden) == 90 - MAX_EDGES


def test_the_command_prints_the_tree_and_its_facts(tmp_path):
    shared_study(tmp_path)
    env = {"PENSTOCK_HOME": str(tmp_path), "COLUMNS": "120"}
    result = CliRunner(env=env).invoke(app, ["prefixes"])
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("digits: 54 epochs of 9 trials, 36 distinct\n")
    facts = json.loads(CliRunner(env=env).invoke(app, ["prefixes", ID, "--json"]).stdout)
    assert (facts["total"], facts["distinct"], facts["taken"]) == (54, 36, 18)
    assert facts["saved_seconds"] == pytest.approx(1.8)
    assert facts["tree"][1] == {
        "above": 0,
        "first": 4,
        "last": 6,
        "entering": {"x": 0.2},
        "trials": [0],
    }


@pytest.mark.extension("report")
def test_the_report_draws_the_tree_of_a_study_whose_trials_have_epochs_in_common(tmp_path):
    from penstock.extensions.report.report import write_report

    reader, study = shared_study(tmp_path)
    text = write_report(reader, study.id, tmp_path / "report.html").read_text()
    [section] = re.findall(r'<section id="prefixes">.*?</section>', text, re.DOTALL)
    assert "54 epochs of 9 trials, 36 distinct. A bar is a run of epochs" in section
    assert "36 were trained, 18 were taken over" in section
    root = ElementTree.fromstring(re.search(r"<svg.*</svg>", section).group())
    bars = [each for each in root if each.tag.endswith("rect")]
    titles = [bar[0].text for bar in bars]
    assert len(titles) == 12
    assert titles[0] == "epochs 1 to 3 of 3 trials: x = 0.2"
    assert titles[1] == "epochs 4 to 6 of trial 0: x = 0.2"
    thick = [float(bar.get("height")) for bar in bars]
    assert thick[0] > thick[1]
    ends = [float(bar.get("x")) + float(bar.get("width")) for bar in bars]
    assert max(ends) < float(root.get("viewBox").split()[2])
    assert [each.text for each in root if each.text == "trial 8"]


@pytest.mark.extension("report")
@pytest.mark.parametrize("fields", [{"seeding": "trial"}, {"n_trials": 3, "space": ("x",)}])
def test_the_report_says_nothing_of_it_where_nothing_is_in_common(tmp_path, fields):
    from penstock.extensions.report.report import write_report

    reader, study = shared_study(tmp_path, **fields)
    text = write_report(reader, study.id, tmp_path / "report.html").read_text()
    assert "Epochs in common" not in text


def test_a_huge_tree_is_drawn_in_part_and_says_so(tmp_path):
    small = prefixes_of(*shared_study(tmp_path))
    [way, *_] = small.edges[0].ways
    many = [Edge(None, 0, 0, 2, (("x", "<b>" * 20),), (way,)) for _ in range(MAX_ROWS + 7)]
    picture = tree_picture(many)
    root = ElementTree.fromstring(picture)
    assert sum(each.tag.endswith("rect") for each in root) == MAX_ROWS
    assert root[-1].text == "and 7 edges more, not drawn"
    assert "<b>" not in picture
    assert "<b>" not in tree_picture(many[:3])
    assert tree_picture([]) == ""
