"""A study of two objectives and a constraint, as it is read back: front, tables, pictures."""

import json
from datetime import UTC, datetime

import pytest
from ledgers.study_ledger import WithSizes, make_study, study_spec
from penstock.app.common.versioned_file import to_text
from penstock.app.ledger.summary import front_of, ranked
from penstock.app.server.optuna_bridge.frozen_trials import (
    NoTrial,
    Results,
    SeveralObjectives,
    to_optuna,
)
from penstock.app.server.optuna_bridge.frozen_trials import best as best_trial
from penstock.app.show.status.listing import status_facts
from penstock.app.show.views.best import best_facts, best_view
from penstock.app.show.views.live import Watcher
from penstock.app.show.views.screen import progress_words, study_screen
from penstock.scheduler.model.pareto import front
from penstock.scheduler.model.study import Objective, StrategySpec
from rich.console import Console

WAYS = ["maximize", "minimize"]
TRIALS = 12


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    spec = study_spec(
        n_trials=TRIALS,
        sampler="random",
        strategy=StrategySpec("full", max_epochs=2),
        further=(Objective("size", "minimize"),),
        constraints=(("seconds", 8.0),),
    )
    return make_study(tmp_path_factory.mktemp("home"), spec, fails=(3,), devices=WithSizes)


@pytest.fixture(scope="module")
def study(reader):
    return reader.study("digits-1a2b")


@pytest.fixture(scope="module")
def rows(reader):
    return reader.trials("digits-1a2b")


@pytest.fixture(scope="module")
def numbers(rows):
    """The front by hand: all that is complete and fast enough, but for trial 2."""
    return [t.number for t in rows if t.params["x"] <= 0.8 and t.number not in (2, 3)]


def text_of(shown):
    console = Console(width=120, file=None, record=True)
    with console.capture() as capture:
        console.print(shown)
    return capture.get()


def test_the_ledger_has_all_values_and_by_how_much_each_constraint_is_violated(rows):
    complete = [row for row in rows if row.number != 3]
    for row in complete:
        x = row.params["x"]
        assert row.further == (9.0 if row.number == 2 else 4.0 * x,)
        assert row.constraints == {"seconds": pytest.approx(10 * x - 8)}
        assert row.feasible == (x <= 0.8)
    assert {row.feasible for row in complete} == {True, False}, "the test has both"
    assert rows[3].values == ()


def test_the_front_is_complete_feasible_and_beaten_by_none(reader, study, rows, numbers):
    trials = Results(reader, study.id).trials()
    best = to_optuna(trials, "front", WAYS, None).best_trials
    assert [trial.number for trial in best] == sorted(numbers)
    assert sorted(row.number for row in front_of(study, rows)) == sorted(numbers)
    assert all(len(trial.values) == 2 for trial in best)
    order = ranked(study, rows)
    assert {row.number for row in order[: len(numbers)]} == set(numbers)
    assert not order[-1].feasible
    with pytest.raises(SeveralObjectives, match="no single best trial: see best_trials"):
        best_trial(trials, WAYS)
    assert issubclass(SeveralObjectives, RuntimeError), "as Optuna raises"


def test_optunas_own_study_has_the_same_front(reader, study, numbers):
    copy = to_optuna(Results(reader, study.id).trials(), "copy", WAYS, None)
    assert [way.name.lower() for way in copy.directions] == WAYS
    assert [trial.number for trial in copy.best_trials] == sorted(numbers)


def test_a_study_of_one_objective_has_a_best_trial_that_is_feasible(reader, study, rows):
    trials = Results(reader, study.id).trials()
    for trial in trials:
        trial.values = trial.values and trial.values[:1]
    best = best_trial(trials, ["maximize"])
    assert best.value == max(row.value for row in rows if row.value and row.feasible)
    alone = to_optuna(trials, "alone", ["maximize"], None).best_trials
    assert [trial.number for trial in alone] == [best.number]
    slow = [
        trial for trial in trials if trial.user_attrs.get("constraints", {}).get("seconds", 0) > 0
    ]
    with pytest.raises(NoTrial, match=f"{len(slow)} violate a constraint"):
        best_trial(slow, ["maximize"])


@pytest.mark.extension("exports")
def test_data_frame_and_export_have_a_column_an_objective(reader, study, rows):
    from penstock.extensions.exports import archive
    from penstock.extensions.exports.tables import trial_table

    trials = Results(reader, study.id).trials()
    frame = to_optuna(trials, "frame", WAYS, None).trials_dataframe()
    assert list(frame)[:3] == ["number", "values_0", "values_1"]
    assert frame["values_1"][0] == rows[0].further[0]
    table = trial_table(archive.archive_of(reader, study.id))
    assert table["values_1"][:3] == [row.further[0] for row in rows[:3]]
    assert table["constraints_seconds"][0] == rows[0].constraints["seconds"]


@pytest.mark.extension("exports")
def test_an_export_comes_back_with_all_values(reader, study, rows, tmp_path):
    from penstock.extensions.exports import archive

    file = tmp_path / "study.json"
    file.write_text(to_text(archive.archive_of(reader, study.id)))
    event = archive.to_event(archive.read_archive(file))
    assert event.record.spec.further == (Objective("size", "minimize"),)
    past = [each.record(study.id) for each in event.trials]
    assert [each.further for each in past] == [row.further for row in rows]
    assert [dict(each.constraints) for each in past] == [row.constraints for row in rows]
    # One that was written before there were several objectives.
    body = json.loads(file.read_text())
    for trial in body["trials"]:
        del trial["further"], trial["constraints"]
    file.write_text(json.dumps(body))
    assert archive.read_archive(file).trials[0].further == []


def test_best_lists_the_front(reader, study, numbers):
    facts = best_facts(reader, study)
    assert sorted(trial["trial"] for trial in facts["front"]) == sorted(numbers)
    assert facts["directions"] == WAYS
    json.dumps(facts, allow_nan=False)
    shown = text_of(best_view(facts))
    assert f"complete: Pareto front of {len(numbers)}" in shown
    assert "accuracy" in shown and "size" in shown


def test_the_live_view_shows_the_front_and_a_column_an_objective(reader, study, numbers):
    view = Watcher(reader, study.id).poll()
    shown = text_of(study_screen(view, study.finished_at))
    assert "maximize accuracy, minimize size" in shown
    assert f"Pareto front  {len(numbers)} trials" in shown
    assert f"Pareto front: {len(numbers)} trials" in progress_words(view)
    facts = status_facts(reader, study)
    assert (sorted(facts["front"]), facts["best"]) == (sorted(numbers), None)
    json.dumps(facts, allow_nan=False)


@pytest.mark.extension("report")
def test_the_report_shows_the_front(reader, study, rows, numbers):
    from penstock.extensions.report.figures import pareto
    from penstock.extensions.report.report import render

    epochs = reader.epochs(study.id)
    page = render(study, rows, epochs, None, datetime.now(UTC))
    assert '<section id="pareto">' in page
    assert "seconds at most 8" in page
    assert page.count('<tr class="top"') == len(numbers)
    line, dots, names = pareto(study, rows)["data"]
    assert list(zip(names["x"], names["y"], strict=True)) == list(
        zip(line["x"], line["y"], strict=True)
    )
    assert len(dots["x"]) == TRIALS - 1
    assert len(line["x"]) == len(numbers)
    scores = [(x, -y) for x, y in zip(line["x"], line["y"], strict=True)]
    assert front(scores) == list(range(len(scores)))
    hollow = dots["marker"]["symbol"].count("circle-open")
    assert hollow == sum(not row.feasible for row in rows)
