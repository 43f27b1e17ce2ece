"""The waits and durations of trials: worked out by hand, and the same in every view."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from ledgers.study_ledger import make_study, study_spec
from markupsafe import escape
from penstock.app.show.status.listing import status_facts
from penstock.app.show.views.delays import (
    Completion,
    Delays,
    TrialDelays,
    delay_words,
    delays_of,
    percentile,
    summary,
    trial_delays,
)
from penstock.scheduler.strategies.base import rungs_of


@dataclass(frozen=True)
class Row:
    trial: str
    epoch: int
    at: float
    seconds: float
    began: float | None = None
    taken_from: str = ""

    @property
    def begin(self):
        return self.at - self.seconds if self.began is None else self.began


ROWS = [Row("a", 1, 15.0, 5.0), Row("a", 2, 30.0, 5.0), Row("b", 1, 20.0, 5.0)]


def test_delays_begin_with_submission_and_gaps_are_waiting():
    assert trial_delays(2.0, ROWS) == [
        TrialDelays(start=8.0, waiting=18.0, completion=28.0, trained=10.0),
        TrialDelays(start=13.0, waiting=13.0, completion=18.0, trained=5.0),
    ]


def test_time_without_a_turn_is_waiting_and_an_epoch_begins_with_its_first_turn():
    rows = [Row("a", 1, 20.0, 5.0, began=6.0), Row("a", 2, 40.0, 5.0, began=20.0)]
    [found] = trial_delays(2.0, rows)
    assert found == TrialDelays(start=4.0, waiting=4.0 + 9.0 + 15.0, completion=38.0, trained=10.0)
    assert found.waiting + found.trained == found.completion


def test_a_companion_did_not_wait_for_a_device_while_its_epochs_were_trained():
    rows = [
        *ROWS[:2],
        Row("c", 1, 15.0, 0.0, taken_from="a"),
        Row("c", 2, 30.0, 0.0, taken_from="a"),
        Row("c", 3, 45.0, 5.0),
    ]
    one, other = trial_delays(2.0, rows)
    assert (other.start, other.trained) == (one.start, 15.0)
    assert other.waiting == one.waiting + 10.0, "then it waited for one"


def test_epochs_that_were_trained_before_the_trial_came_began_when_it_took_them_over():
    late = [Row("d", 1, 50.0, 0.0, taken_from="a"), Row("d", 2, 50.0, 0.0, taken_from="a")]
    assert trial_delays(2.0, [*ROWS[:2], *late])[1] == TrialDelays(48.0, 48.0, 48.0, 10.0)


def test_a_pause_at_a_rung_is_no_waiting():
    assert [each.waiting for each in trial_delays(2.0, ROWS, rungs={1})] == [8.0, 13.0]


def test_a_trial_that_goes_on_has_waited_but_is_not_completed():
    found = summary(trial_delays(2.0, ROWS, over={"b"}))
    assert found == Delays(2, 10.5, 15.5, Completion(1, 18.0, 18.0, 18.0, 3.6))
    assert summary(trial_delays(2.0, ROWS, over=())).completion is None
    assert summary([]) is None


@pytest.mark.parametrize(("part", "value"), [(0.0, 1.0), (0.5, 5.0), (0.95, 10.0), (1.0, 10.0)])
def test_a_percentile_is_one_of_the_values(part, value):
    assert percentile([float(k) for k in range(1, 11)], part) == value


@pytest.mark.extension("report")
def test_status_and_report_say_what_the_rows_say(tmp_path):
    from penstock.extensions.report.report import render

    reader = make_study(tmp_path / "home", study_spec(n_trials=9))
    [study] = reader.studies()
    trials, epochs = reader.trials(study.id), reader.epochs(study.id)
    found = summary(delays_of(study, trials, epochs))
    shown = status_facts(reader, study)["delays"]
    assert shown["start"] == found.start
    assert shown["completion"]["p95"] == found.completion.p95
    assert found.trials == found.completion.trials == 9
    assert found.start <= found.waiting <= found.completion.mean
    assert rungs_of(study.plan), "so that pauses were left out"
    assert escape(delay_words(found)) in render(study, trials, epochs, None, datetime.now(UTC))


def test_completion_and_slowdown_are_explained_where_they_are_shown():
    assert delay_words(Delays(2, 10.5, 15.5, Completion(1, 18.0, 18.0, 18.0, 3.6))) == (
        "trials began after 10.5 s and waited 15.5 s on average; completion (from the"
        " study's submission to a trial's last epoch) 18.0 s on average (p50 18.0 s, p95 18.0 s);"
        " slowdown (completion divided by the trial's own training time) 3.60 on average, 1 if it"
        " never waited"
    )


def test_a_study_at_work_has_delays_without_a_completion(tmp_path):
    reader = make_study(tmp_path / "home", study_spec(n_trials=9), turns=6)
    [study] = reader.studies()
    shown = status_facts(reader, study)["delays"]
    assert shown["completion"] is None
    assert "none has ended yet" in delay_words(Delays(2, 1.0, 2.0, None))
