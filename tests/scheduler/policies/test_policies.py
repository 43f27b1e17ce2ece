"""Policies are functions of a snapshot."""

import pytest
from penstock.base.errors import UsageError
from penstock.scheduler.model.snapshot import Candidate, Snapshot
from penstock.scheduler.policies.names import POLICIES
from penstock.scheduler.policies.registry import FUNCTIONS, find_policy


def snapshot(*work: float | None) -> Snapshot:
    waiting = tuple(
        Candidate(f"t{i}", "s", 0, 10 + i, float(i), seconds and seconds / (10 + i))
        for i, seconds in enumerate(work)
    )
    return Snapshot(at=10.0, waiting=waiting, free_slots=1)


def test_each_name_is_that_of_its_policy_and_there_are_no_others():
    assert {name: find_policy(name).__name__ for name in FUNCTIONS} == {n: n for n in POLICIES}


def test_fifo_keeps_the_order_of_arrival():
    assert find_policy("fifo")(snapshot(1.0, 9.0, 3.0)).order == ("t0", "t1", "t2")


def test_longest_first_goes_by_expected_seconds_and_keeps_ties_in_order():
    assert find_policy("longest_first")(snapshot(3.0, 9.0, 3.0)).order == ("t1", "t0", "t2")


def test_longest_first_counts_epochs_where_nothing_was_measured():
    assert find_policy("longest_first")(snapshot(None, None)).order == ("t1", "t0")


def test_an_unknown_policy_is_refused_with_the_names_there_are():
    with pytest.raises(UsageError, match="fifo, longest_first"):
        find_policy("lifo")
