"""Epochs that trials took over took no time: every view counts seconds and joules once."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from ledgers.shared_ledger import ID, shared_study
from penstock.app.server.optuna_bridge.frozen_trials import Results
from penstock.app.show.views.plan import plan_view
from penstock.app.show.views.progress import study_progress
from penstock.app.show.views.spending import energy_words, joules_of
from penstock.app.show.views.utilisation import usage, usage_of
from penstock.scheduler.model.events import StudyPaused
from penstock.scheduler.outlook.outlook import outlook
from rich.console import Console
from worlds.prefix_world import Grid, grid, shared

OF_ONE = {"n_trials": 3}  # three trials with their first three epochs in common


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    return shared_study(tmp_path_factory.mktemp("home"))


def metered(reader):
    """The epochs, as if each one that was trained had taken 2 J."""
    epochs = reader.epochs(ID)
    return [row if row.taken_from else replace(row, joules=2.0) for row in epochs]


def test_joules_count_once(ledger):
    reader, _ = ledger
    epochs = metered(reader)
    assert joules_of(epochs) == 36 * 2.0
    own = [row for row in epochs if row.trial.endswith("1")]
    assert joules_of(own) == 3 * 2.0
    assert energy_words(own, ()).startswith("6.0 J, shared by use of the device; 0.30 s of device")
    frozen = Results(reader, ID).frozen(reader.trials(ID), epochs)
    assert [
        each.user_attrs.get("energy_j", each.system_attrs.get("penstock", {}).get("energy_j"))
        for each in frozen
    ][:2] == [12.0, 6.0]


def test_a_trial_that_trained_nothing_has_no_joules_of_its_own(ledger):
    reader, _ = ledger
    taken = [row for row in metered(reader) if row.taken_from]
    assert joules_of(taken) is None
    assert energy_words(taken, ()) == "none of its own: other trials trained its epochs"


@pytest.mark.extension("report")
def test_seconds_of_training_count_once(ledger):
    from penstock.extensions.report.timeline import timeline

    reader, study = ledger
    trials, epochs = reader.trials(ID), reader.epochs(ID)
    assert study_progress(study, trials, epochs).busy == pytest.approx(3.6)
    assert usage_of(reader, study).trained == pytest.approx(3.6)
    [trace] = timeline(study, trials, epochs)["data"]
    assert sum(trace["x"]) == pytest.approx(3.6, abs=1e-3)
    assert min(trace["x"]) > 0.09


def test_epochs_that_were_taken_over_foretell_no_time(ledger):
    reader, study = ledger
    trials, epochs = reader.trials(ID), reader.epochs(ID)
    running = replace(study, finished_at=None, status="running")
    taken = [row for row in epochs if row.taken_from]
    assert taken and study_progress(running, trials, taken).eta is None
    assert study_progress(running, trials, epochs).eta is not None
    assert usage(running, trials, taken, study.finished_at) is None


def test_the_bound_is_that_of_what_was_trained(ledger):
    reader, study = ledger
    trials, epochs = reader.trials(ID), reader.epochs(ID)
    own = [row for row in epochs if not row.taken_from]
    both = [usage(study, trials, rows, study.finished_at) for rows in (epochs, own)]
    assert both[0].over_bound == pytest.approx(both[1].over_bound)


def test_a_device_is_idle_for_want_of_work_while_companions_wait(tmp_path):
    """Two devices, and one trial that trains for three: the other device has nothing to do."""
    found = usage_of(*shared_study(tmp_path, **OF_ONE))
    assert found.slots == 2
    assert found.idle["no work"] > 0.19
    assert found.idle["plan"] < 0.1


@pytest.mark.extension("report")
def test_trials_that_took_over_were_not_on_the_device(ledger):
    from penstock.extensions.report.device_sharing import shared_spans

    reader, _ = ledger
    assert shared_spans(ID, reader.epochs(ID)) == []


def test_the_time_left_is_that_of_the_epochs_that_need_training(tmp_path):
    reader, study = shared_study(tmp_path, turns=4)
    found = study_progress(study, reader.trials(ID), reader.epochs(ID))
    assert found.expected == 54
    assert found.eta == pytest.approx(33 * 0.1 / 2)


@pytest.fixture
def world():
    world = Grid(grid(3))
    world.join("a", "b")
    world.submit(shared(9))
    world.run_segment()
    return world


def test_the_plan_lists_companions_with_those_they_wait_for(world):
    plan = outlook(world.engine, world.at)
    whys = {row["trial"]: row["why"] for row in plan["waiting"]}
    companions = {world.engine.state.trials[name].number for name in world.engine.aside()}
    assert companions
    assert companions <= whys.keys()
    assert whys[1] == (
        "waits for trial 0, which trains epochs that both have in common (up to epoch 3)"
    )
    console = Console(file=io.StringIO(), width=160)
    console.print(plan_view(plan))
    assert whys[1] in console.file.getvalue()
    numbers = [row["trial"] for row in plan["waiting"]]
    assert len(numbers) == len(set(numbers)), "each once"


def test_equal_trials_have_all_in_common(tmp_path):
    world = Grid([{"x": 1}] * 2)
    world.join("a")
    world.submit(shared(2))
    [row] = outlook(world.engine, world.at)["waiting"]
    assert row["why"] == "waits for trial 0, which trains epochs that both have in common"


def test_a_companion_of_a_paused_study_waits_for_that(world):
    world.send(StudyPaused(at=world.at, study="s-1"))
    waiting = outlook(world.engine, world.at)["waiting"]
    assert waiting
    assert {row["why"] for row in waiting} == {"its study is paused"}


def test_the_metrics_count_what_was_trained(world):
    world.run()
    assert world.trained == world.engine.state.tally.epochs["accepted"] == 3 * 3 + 9 * 3
