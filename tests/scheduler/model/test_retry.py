"""Decisions to try a trial again."""

from penstock.scheduler.model.retry import (
    CRASH_LIMIT,
    KILL_LIMIT,
    LOSS_LIMIT,
    retry_failure,
    retry_loss,
)


def test_a_users_failure_is_retried_as_often_as_the_study_says():
    assert not retry_failure("exception", "boom", 1, 0)
    assert retry_failure("exception", "boom", 2, 2)
    assert not retry_failure("nan", "", 3, 2)


def test_a_crash_gets_attempts_of_its_own_and_a_kill_some_more():
    assert retry_failure("died", "signal 11", CRASH_LIMIT - 1, 0)
    assert not retry_failure("died", "signal 11", CRASH_LIMIT, 0)
    assert retry_failure("died", "signal 9", CRASH_LIMIT, 0)
    assert not retry_failure("died", "signal 9", KILL_LIMIT, 0)


def test_losses_are_bounded_only_against_endless_loops():
    assert retry_loss(LOSS_LIMIT - 1)
    assert not retry_loss(LOSS_LIMIT)
