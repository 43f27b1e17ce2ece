"""Replicates where users meet them: what is refused, and which configuration is best."""

from __future__ import annotations

import json
from dataclasses import replace
from statistics import mean

import optuna
import penstock
import pytest
from ledgers.study_ledger import make_study, study_spec
from penstock import ASHA, PBT, FullBudget, UsageError, create_study
from penstock.app.cli.main import app
from penstock.app.server.optuna_bridge.frozen_trials import Results, best_of
from penstock.app.server.runner.commands import to_event
from penstock.app.show.views.best import best_facts
from penstock.app.spec.build import make_plan, make_spec
from typer.testing import CliRunner
from worlds.drive_world import World

#: Trials are replicates where seeding is shared.
pytestmark = pytest.mark.extension("prefixes")

SPACE = {"lr": [0.1, 0.2, 0.3]}
GIVEN = {
    "metric": "loss",
    "sampler": "random",
    "strategy": ASHA(max_epochs=9),
    "seeding": "shared",
    "replicates": 2,
}
SEVERAL = {"metric": ["loss", "error"], "directions": ["minimize"] * 2, "strategy": FullBudget(3)}


class Net(penstock.TorchTrainable):
    pass


class Own(optuna.samplers.RandomSampler):
    pass


def objective(trial):
    return trial.suggest_float("x", 0, 1)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"replicates": 0}, "replicates = 0 is refused: allowed is a whole number >= 1"),
        ({"seeding": "trial"}, 'replicates = 2 is refused: allowed is 1 with seeding="trial"'),
        ({"replicates": 4}, "n_trials = 6 is refused: allowed is a multiple of the 4 replicates"),
        (
            {"strategy": PBT(max_epochs=9, interval=3)},
            "replicates = 2 is refused: allowed is 1 with PBT",
        ),
        ({"sampler": Own()}, "replicates = 2 is refused: allowed is 1 with a sampler of your own"),
        (SEVERAL, "replicates = 2 is refused: allowed is 1 with several objectives"),
    ],
)
def test_replicates_that_make_no_sense_are_refused_by_name(changes, words):
    with pytest.raises(UsageError, match=words):
        make_spec(make_plan(**GIVEN | changes), "s-1", "s", Net, SPACE, 6)


def test_trials_that_sample_as_they_run_have_no_replicates():
    words = "replicates = 2 is refused: allowed is 1, because trials sample as they run"
    plan = make_plan(seeding="shared", replicates=2, strategy=ASHA(max_epochs=9))
    with pytest.raises(UsageError, match=words):
        make_spec(plan, "s-1", "s", objective, None, 6)
    with pytest.raises(UsageError, match=words):
        create_study(seeding="shared", replicates=2).submit(objective, 6)
    with pytest.raises(UsageError, match=words):
        create_study(seeding="shared", replicates=2).ask()


def test_a_grid_without_a_number_of_trials_has_each_point_so_often():
    plan = make_plan(**GIVEN | {"sampler": "grid", "replicates": 3})
    assert make_spec(plan, "s-1", "s", Net, SPACE, None).n_trials == 3 * 3


def test_a_study_is_extended_by_whole_configurations():
    world = World()
    world.submit(study_spec(n_trials=4, seeding="shared", replicates=2, space=()))

    def extended(by):
        body = {"kind": "extend", "study": "digits-1a2b", "by": by}
        return to_event(body, world.engine, 0.0, {}.__getitem__).study.n_trials

    assert extended(2) == 6
    with pytest.raises(UsageError, match="n_trials = 5 is refused: allowed is a multiple of the 2"):
        extended(1)


@pytest.fixture
def kept(tmp_path):
    """A reader of a study of six configurations, twice each, and the values by configuration."""
    full = replace(study_spec().strategy, name="full", max_epochs=3)
    given = {"n_trials": 12, "strategy": full, "seeding": "shared", "replicates": 2}
    reader = make_study(tmp_path, study_spec(**given), fails=(1,))
    by_configuration = {}
    for trial in reader.trials("digits-1a2b"):
        if trial.state == "completed":
            by_configuration.setdefault(trial.number // 2, {})[trial.number] = trial.value
    return reader, by_configuration


@pytest.mark.extension("report")
def test_the_best_configuration_is_the_one_with_the_best_mean(tmp_path, kept):
    from penstock.extensions.report.report import write_report

    reader, by_configuration = kept
    assert len(by_configuration[0]) == 1, "one of the first configuration's failed"
    whole = [each for each in by_configuration.values() if len(each) == 2]
    best = max(whole, key=lambda each: mean(each.values()))
    facts = best_facts(reader, reader.study("digits"))
    assert facts["replicates"] == {str(number): value for number, value in best.items()}
    assert facts["mean"] == mean(best.values())
    assert facts["trial"] == min(best)
    env = {"PENSTOCK_HOME": str(tmp_path), "COLUMNS": "200"}
    first, second = best
    said = CliRunner(env=env).invoke(app, ["best"]).stdout
    assert f"best configuration trials {first}, {second}, mean accuracy {facts['mean']:.4g}" in said
    status = CliRunner(env=env).invoke(app, ["status", "digits"]).stdout
    assert f"mean of the last values of trials {first}, {second}" in status
    assert "shared seeding, 2 replicates" in status
    listed = json.loads(CliRunner(env=env).invoke(app, ["status", "digits", "--json"]).stdout)
    assert listed["best_mean"] == facts["mean"]
    assert listed["front"] == [first, second]
    page = write_report(reader, "digits-1a2b", tmp_path / "page.html").read_text()
    assert f"mean of the last values of trials {first}, {second}" in page
    assert "0, shared by all configurations, 2 replicates each" in page
    trials = Results(reader, "digits-1a2b").trials()
    assert [trial.number for trial in best_of(2, trials, ["maximize"])] == [*best]
