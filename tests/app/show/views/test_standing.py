"""Numbers about a study: best trial, epochs to go, time left."""

from dataclasses import replace

import pytest
from ledgers.study_ledger import make_study, study_spec
from penstock.app.common.text import duration, number, sparkline
from penstock.app.ledger.summary import ranked
from penstock.app.show.views.progress import (
    best_of,
    reached,
    signature_changes,
    so_far,
    study_progress,
)
from penstock.scheduler.model.study import StrategySpec
from penstock.scheduler.strategies.expected import expected_epochs


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    reader = make_study(tmp_path_factory.mktemp("home"), study_spec(n_trials=9))
    [study] = reader.studies()
    return study, reader.trials(study.id), reader.epochs(study.id)


@pytest.mark.parametrize(
    ("strategy", "n_trials", "epochs"),
    [
        (StrategySpec("full", 5), 4, 20),
        (StrategySpec("asha", 9, 1, 3), 27, 27 + 9 * 2 + 3 * 6),
        (StrategySpec("halving", 4, 2, 2), 5, 5 * 2 + 2 * 2),
        (StrategySpec("halving", 9, 1, 3), 2, 2 + 1 * 2 + 1 * 6),
        (StrategySpec("full", None), 4, None),
    ],
)
def test_a_strategy_takes_as_many_epochs_as_its_rungs_say(strategy, n_trials, epochs):
    assert expected_epochs(strategy, n_trials) == epochs


def test_once_a_study_is_over_a_completed_trial_beats_a_better_one_that_was_stopped(rows):
    """As Study.best_trial says; without a completed one, those count that were trained longest."""
    study, trials, _ = rows
    done = next(trial for trial in trials if trial.state == "completed")
    stopped = replace(next(t for t in trials if t.state == "stopped"), value=99.0)
    assert best_of(study, [stopped, done]) == done
    short = replace(stopped, number=8, value=100.0, epoch=stopped.epoch - 1)
    assert best_of(study, [stopped, short]) == stopped, "no values of different training"
    assert best_of(study, []) is None
    assert so_far(study) == ""
    assert reached(done) == "completed after 9 epochs"


def test_while_a_study_runs_the_best_is_the_best_value_in_the_table(rows):
    """Also that of a trial that was trained shorter: it says so."""
    study, trials, _ = rows
    runs = replace(study, finished_at=None)
    done = next(trial for trial in trials if trial.state == "completed")
    short = replace(trials[0], state="running", value=99.0, epoch=3)
    assert best_of(runs, [done, short]) == short
    assert so_far(runs) == " so far"
    assert reached(short) == "running, epoch 3"


def test_ranking_turns_with_the_direction_and_leaves_failures_and_nan_out(rows):
    study, [one, two, three, *_], _ = rows
    trials = [
        replace(one, value=1.0, state="stopped"),
        replace(two, value=2.0, state="failed"),
        replace(three, value=float("nan"), state="stopped"),
        replace(one, number=7, value=3.0, state="stopped"),
    ]
    assert [t.value for t in ranked(study, trials)] == [3.0, 1.0]
    assert [t.value for t in ranked(replace(study, direction="minimize"), trials)] == [1.0, 3.0]


def test_the_time_left_is_what_is_to_do_at_the_measured_pace_on_the_slots_at_work(rows):
    """Half of a study of 9 trials seen on two slots: the other epochs take 0.1 s each on two."""
    study, trials, epochs = rows
    half = [replace(row, slot=i % 2, device="d") for i, row in enumerate(epochs[:10])]
    progress = study_progress(replace(study, finished_at=None), trials, half)
    total = 9 + 3 * 2 + 1 * 6
    assert progress.expected == total
    assert progress.eta == pytest.approx((total - 10) * 0.1 / 2)


def test_a_finished_study_has_no_time_left(rows):
    study, trials, epochs = rows
    progress = study_progress(study, trials, epochs)
    assert progress.eta is None
    assert progress.expected == progress.epochs == len(epochs)
    assert progress.busy == pytest.approx(0.1 * len(epochs))


def test_sparklines_clip_and_survive_a_flat_range():
    assert sparkline([-5.0, 0.0, 0.5, 1.0, 9.0], 0.0, 1.0) == "▁▁▅██"
    assert sparkline([2.0, 2.0], 2.0, 2.0) == "▁▁"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.417, "0.42 s"),
        (18.34, "18.3 s"),
        (59.97, "60.0 s"),
        (250, "4 min 10 s"),
        (3599.7, "1 h 00 min"),
        (11100, "3 h 05 min"),
        (187_200, "2 d 4 h"),
    ],
)
def test_durations_are_written_for_people(seconds, words):
    assert duration(seconds) == words


def test_numbers_keep_what_they_are():
    assert [number(v) for v in (0.123456, 64, True, "relu", None)] == [
        *("0.1235", "64", "True", "relu", "None"),
    ]
    counts = (15_482.0, -12_345_678.0, 9_999.0, 15_482.5, 1e12)
    assert [number(v) for v in counts] == ["15,482", "-12,345,678", "9999", "1.548e+04", "1e+12"]


def test_a_break_is_an_epoch_under_another_signature_than_its_trials_one_before(rows):
    _, _, epochs = rows
    assert signature_changes(epochs) == []
    long = next(row.trial for row in epochs if row.epoch == 9)
    moved = [
        replace(row, signature="elsewhere") if row.trial == long and row.epoch in {4, 5} else row
        for row in reversed(epochs)
    ]
    assert [(row.trial, row.epoch) for row in signature_changes(moved)] == [(long, 4), (long, 6)]
