"""Lineage of forked trials: in the ledger, the story, the report, results, and exports."""

import io

import pytest
from ledgers.study_ledger import make_study, study_spec
from penstock.app.ledger.ledger import SqlLedger
from penstock.app.ledger.restore import restore
from penstock.app.server.optuna_bridge.frozen_trials import Results
from penstock.app.show.stories.story import render, trial_story
from penstock.extensions.report.lineage import lineage
from penstock.extensions.report.report import write_report
from penstock.scheduler.model.study import StrategySpec, number_of
from rich.console import Console

ID = "digits-1a2b"
PLAN = StrategySpec("pbt", max_epochs=6, min_epochs=2)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def reader(home):
    return make_study(home, study_spec(n_trials=6, strategy=PLAN))


def heir_of(reader):
    return next(t for t in reader.trials(ID) if t.origin_trial is not None)


def test_a_forked_trial_says_what_it_goes_on_from_and_has_only_its_own_epochs(reader):
    trials = {trial.id: trial for trial in reader.trials(ID)}
    heirs = [trial for trial in trials.values() if trial.origin_trial is not None]
    assert heirs
    assert [heir.number for heir in heirs] == list(range(6, 6 + len(heirs)))
    for heir in heirs:
        assert trials[heir.replaces].state == "stopped"
        source = trials[heir.origin_trial]
        assert source.number < heir.number
        assert set(source.params) == set(heir.params)
        own = [row.epoch for row in reader.epochs(ID) if row.trial == heir.id]
        assert own == list(range(heir.origin_epoch + 1, heir.epoch + 1))
    assert reader.study(ID).status == "complete"


def test_the_ledgers_events_rebuild_the_engine_with_its_lineage(tmp_path):
    reader = make_study(tmp_path, study_spec(n_trials=6, strategy=PLAN), turns=34)
    heir = heir_of(reader)
    ledger = SqlLedger.open(f"sqlite:///{tmp_path / 'ledger.db'}")
    trial = restore(ledger).state.trials[heir.id]
    ledger.close()
    assert (trial.origin.trial, trial.origin.epoch) == (heir.origin_trial, heir.origin_epoch)
    assert trial.params == tuple(heir.params.items()), "of the event, not drawn again"


def told(reader, trial):
    console = Console(file=io.StringIO(), width=200)
    console.print(render(trial_story(reader, reader.study(ID), trial)))
    return console.file.getvalue()


def test_the_stories_of_all_three_say_what_happened(reader):
    heir = heir_of(reader)
    trials = {trial.id: trial for trial in reader.trials(ID)}
    source = trials[heir.origin_trial]
    after = f"state after epoch {heir.origin_epoch}"
    assert f"it goes on from trial {source.number}'s {after}" in told(reader, heir)
    assert f"trial {heir.number} goes on from its {after}" in told(reader, source)
    replaced = told(reader, trials[heir.replaces])
    assert f"it fell behind after epoch {trials[heir.replaces].epoch}" in replaced
    assert f"trial {heir.number} took its place" in replaced


def test_the_report_draws_an_arrow_for_each_fork_and_nothing_where_there_is_none(reader, tmp_path):
    trials = reader.trials(ID)
    figure = lineage(reader.study(ID), trials)
    forks = [(a["ay"], a["y"], a["x"]) for a in figure["layout"]["annotations"]]
    heirs = [trial for trial in trials if trial.origin_trial is not None]
    assert forks == [(number_of(h.origin_trial), h.number, h.origin_epoch) for h in heirs]
    assert [trace["x"][0] for trace in figure["data"]] == [t.origin_epoch or 0 for t in trials]
    page = write_report(reader, ID, tmp_path / "report.html").read_text()
    assert '<section id="lineage">' in page
    assert "PBT over 6 epochs, compared every 2" in page
    plain = make_study(tmp_path / "plain", study_spec())
    page = write_report(plain, ID, tmp_path / "plain.html").read_text()
    assert '<section id="lineage">' not in page


@pytest.mark.extension("exports")
def test_results_and_exports_carry_it(reader):
    from penstock.extensions.exports.archive import archive_of, to_event
    from penstock.extensions.exports.tables import trial_table

    heir = heir_of(reader)
    frozen = Results(reader, ID).trials()
    origin = {"trial": number_of(heir.origin_trial), "epoch": heir.origin_epoch}
    assert frozen[heir.number].user_attrs["origin"] == origin
    assert "origin" not in frozen[0].user_attrs
    archive = archive_of(reader, ID)
    imported = to_event(archive).trials[heir.number].record(ID)
    assert imported.origin.trial == heir.origin_trial
    assert imported.origin.replaces == heir.replaces
    columns = trial_table(archive)
    assert columns["origin_trial"][heir.number] == number_of(heir.origin_trial)
    assert columns["origin_trial"][0] is None
