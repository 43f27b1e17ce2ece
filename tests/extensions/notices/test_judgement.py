"""When people are told: pure functions of what is known of a study."""

from __future__ import annotations

from dataclasses import replace

import pytest
from penstock.extensions.notices.judgement import (
    FIRST,
    OVERSLEPT,
    STILL,
    STILL_AT_FIRST,
    Standing,
    all_fail,
    is_late,
    look_again,
    patience,
    until_next_look,
)

AT = 1000.0
IDLE = Standing(AT - STILL, due=AT, longest=1.0, runs=False, has_work=True, queues=False)


@pytest.mark.parametrize(
    ("failed", "others", "told"),
    [(FIRST - 1, 0, False), (FIRST, 0, True), (FIRST + 9, 0, True), (FIRST + 9, 1, False)],
)
def test_all_trials_fail_where_the_first_did_and_no_other_has_trained_an_epoch(
    failed, others, told
):
    assert all_fail(failed, others) is told


def test_a_study_stands_still_that_has_work_and_no_epoch_for_long():
    assert look_again(AT, IDLE) is None
    assert look_again(AT, replace(IDLE, runs=True)) is None


@pytest.mark.parametrize(
    "excuse", [{"has_work": False}, {"queues": True}, {"due": AT - OVERSLEPT - 1}]
)
def test_time_does_not_count_without_work_in_a_queue_or_while_nobody_looked(excuse):
    assert look_again(AT, replace(IDLE, **excuse)) == (AT, AT + STILL)


def test_trials_that_run_while_others_wait_for_slots_are_no_excuse():
    assert look_again(AT, replace(IDLE, queues=True, runs=True)) is None


def test_the_first_epoch_may_take_longer():
    first = replace(IDLE, longest=0.0, runs=True)
    assert look_again(AT, first) == (first.since, first.since + STILL_AT_FIRST)
    later = first.since + STILL_AT_FIRST
    assert look_again(later, replace(first, due=later)) is None


def test_long_epochs_are_waited_for():
    assert patience(0.0) == patience(60.0) == STILL
    assert patience(7200.0) > 2 * 7200.0


def test_a_deadline_is_looked_at_some_fifty_times_but_neither_all_the_time_nor_seldom():
    assert until_next_look(30.0) == 10.0
    assert until_next_look(3600.0) == 72.0
    assert until_next_look(1e7) == 600.0


def test_a_forecast_that_misses_by_little_or_knows_nothing_is_no_news():
    assert not is_late(None, 100.0)
    assert not is_late(0.0, 100.0)
    assert not is_late(4.0, 100.0)
    assert is_late(6.0, 100.0)
