"""Repeated attempts come at once, then ever more slowly."""

from __future__ import annotations

from penstock.base.backoff import HEALTHY_AFTER, RESTARTS, Backoff, Restarts


def test_waits_double_up_to_the_longest_however_many_failures():
    waits = [Backoff(first=0.5, longest=3.0, free=1).after(n) for n in range(6)]
    assert waits == [0.0, 0.0, 0.5, 1.0, 2.0, 3.0]
    assert RESTARTS.after(100_000) == RESTARTS.longest


def test_a_process_that_keeps_ending_is_started_ever_more_slowly():
    now, waits, past = 100.0, [], Restarts()
    for _ in range(7):
        past = past.ended(now)
        waits.append(past.due - now)
        now = past.due
        past = past.started(now)
        now += 0.25
    assert waits == [0.0, 0.0, 0.5, 1.0, 2.0, 4.0, 8.0]
    assert past.early == 6
    assert not past.is_healthy(now)


def test_the_end_of_one_that_ran_for_long_is_the_first():
    past = Restarts(early=5).started(0.0)
    assert past.is_healthy(2 * HEALTHY_AFTER)
    past = past.ended(2 * HEALTHY_AFTER)
    assert (past.early, past.due) == (0, 2 * HEALTHY_AFTER)
