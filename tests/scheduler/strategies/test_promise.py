"""Promises: probabilities of promotion, by rank and by how much ranks were worth so far."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import pytest
from penstock.scheduler.model.decisions import Dispatch
from penstock.scheduler.model.events import PolicyChosen
from penstock.scheduler.model.snapshot import Candidate, Snapshot
from penstock.scheduler.model.study import StrategySpec
from penstock.scheduler.policies.waterfill import waterfill
from penstock.scheduler.strategies.promotion import promotion_probabilities
from worlds.drive_world import World, spec

LEVELS, ETA = (1, 3, 9), 3


def first_rung(n):
    return {f"t{k}": {1: k / n} for k in range(n)}


def test_who_has_no_result_is_promoted_as_often_as_anybody():
    assert promotion_probabilities({"a": {}, "b": {}}, LEVELS, ETA) == {"a": 1 / 3, "b": 1 / 3}


def test_a_better_rank_promises_more_and_a_third_is_promoted_in_all():
    found = [*promotion_probabilities(first_rung(27), LEVELS, ETA).values()]
    assert found == sorted(found)
    assert found[0] < 0.05 < 0.6 < found[-1] < 1
    assert fmean(found) == pytest.approx(1 / 3, abs=0.02)


@pytest.mark.parametrize("order", [1, -1])
def test_a_rank_promises_the_more_the_better_ranks_have_held_so_far(order):
    """Eight of 27 went on to three epochs, with the same ranks there or the opposite ones."""
    before = first_rung(27)
    after = before | {f"t{k}": {1: k / 27, 3: order * k / 27} for k in range(18, 26)}
    then, now = (promotion_probabilities(each, LEVELS, ETA)["t26"] for each in (before, after))
    assert now > then if order > 0 else now < then


def test_of_trials_alike_the_most_promising_goes_first_where_results_decide_what_follows():
    waiting = tuple(
        Candidate(name, "s", 1, 3, float(at), level=1.0, promise=promise)
        for at, (name, promise) in enumerate([("a", 0.1), ("b", 0.2), ("c", 0.9)])
    )
    staged = Snapshot(0.0, waiting, 1, free_devices=1, devices=1, staged=True)
    assert waterfill(staged).order == ("c", "b", "a")
    assert waterfill(replace(staged, staged=False)).order == ("a", "b", "c")


def test_trials_of_equal_promise_are_not_overtaken_for_ever_by_shorter_ones():
    """A PBT population on one device: the short trials come back after every interval."""
    waiting = tuple(
        Candidate(name, "s", 2, 4, float(at), level=level)
        for at, (name, level) in enumerate([("short", 1.0), ("long", 5.0), ("shorter", 0.5)])
    )
    snapshot = Snapshot(0.0, waiting, 1, free_devices=1, devices=1, staged=True)
    assert waterfill(snapshot).order == ("long", "short", "shorter")


def test_the_engine_sends_the_most_promising_of_a_rung_first():
    at = World(score=lambda number, epoch: float(number))
    at.send(PolicyChosen(at=0.0, policy="waterfill"))
    at.join("d0")
    at.submit(spec(StrategySpec("halving", max_epochs=9), n_trials=27))
    at.run()
    last_rung = [d.number for d in at.trace if isinstance(d, Dispatch) and d.segment.first == 4]
    assert last_rung == [26, 25, 24], "which is not how they arrived"
