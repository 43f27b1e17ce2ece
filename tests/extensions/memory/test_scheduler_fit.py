"""Trials of different sizes on one device: which fit together, which wait, and for how long."""

from __future__ import annotations

from penstock.app.extensions import PLUGS
from penstock.app.ledger.codec import state_from_json, state_to_json
from penstock.extensions.memory.fit import need
from penstock.extensions.memory.known import known_of
from penstock.scheduler.engine.dispatch import AHEAD, MAX_PASSED
from penstock.scheduler.engine.engine import Engine
from worlds.sized_world import GIB, Sized


def test_nobody_joins_before_anything_is_known_and_who_is_estimated_joins_where_there_is_room():
    at = Sized(1.0, 1.5, 6.0, 2.0, 1.0)
    assert at.on() == [0]
    at.epoch(0)
    assert at.on() == [0, 1, 2, 3], "all are taken to be as large as the first"


def test_trials_join_by_what_they_need_themselves():
    at = Sized(1.0, 5.5, 1.5, 2.0, 0.6, memory=8.4)
    at.estimate(0, 1, 2, 3, measured=False)
    # 15 % more tensors each, and 15 % more for the larger process: 8.33 GiB.
    assert at.on() == [0, 1]
    assert at.state.ready, "the others wait"
    at.epoch(0)
    at.epoch(1)
    assert at.on() == [0, 1]


def test_what_was_measured_counts_instead_of_what_was_estimated():
    at = Sized(2.0, 2.0)
    at.estimate(0)
    trial = at.state.trials[at.name(0)]
    assert 2.2 * GIB < need(at.state, trial, "cpu").size < 2.3 * GIB
    at.estimate(0, measured=True)
    assert 1.95 * GIB < need(at.state, trial, "cpu").size < 2.05 * GIB
    at.sizes = (3.0, 2.0)
    at.epoch(0)
    assert need(at.state, trial, "cpu").size == 3 * GIB


def test_what_is_known_outlives_a_restart():
    at = Sized(2.0, 3.0, 1.0)
    at.estimate(0)
    at.estimate(0, measured=True)
    at.epoch(0)
    at.estimate(1)
    again = Engine(state_from_json(state_to_json(at.state)), plugs=PLUGS)
    assert known_of(again.state) == known_of(at.state)
    for name in at.state.trials:
        assert need(again.state, again.state.trials[name], "cpu") == need(
            at.state, at.state.trials[name], "cpu"
        )


def test_a_trial_goes_where_it_leaves_least_room():
    """Best fit: the smaller rest is used up, so that the larger one stays for a larger trial."""
    at = Sized(4.0, 4.5, 2.5, 3.0, devices=2)
    assert (at.on("d0"), at.on("d1")) == ([0], [1])
    at.epoch(0)
    at.epoch(1)  # the others are taken to be of this size
    assert (at.on("d0"), at.on("d1")) == ([0], [1])
    at.estimate(2)
    assert (at.on("d0"), at.on("d1")) == ([0], [1, 2]), "beside the larger one"
    at.estimate(3)
    assert (at.on("d0"), at.on("d1")) == ([0, 3], [1, 2])


class Gaining(Sized):
    """The same without a packed plan: sharing gains in full, so that memory alone decides."""

    def __init__(self, *sizes, **fields):
        super().__init__(*sizes, policy="fifo", **fields)

    def warm_up(self, *numbers, rounds=3):
        for _ in range(rounds):
            for number in numbers:
                self.epoch(number)


def test_a_trial_without_room_is_overtaken_a_few_times_and_then_no_more():
    """Trial 1 fits only alone. Without a bound, small trials would pass it for ever."""
    sizes = (2.0, 7.0, *(1.0 for _ in range(20)))
    at = Gaining(*sizes, slots=2, memory=8.0)
    at.estimate(0, measured=True)
    at.estimate(1)
    at.warm_up(0)
    joined = []
    while 1 not in at.on() and len(joined) < len(sizes):
        at.estimate(*(n for n in range(2, len(sizes)) if at.is_waiting(n)))
        before = at.on()
        at.epoch(before[-1])
        joined += [n for n in at.on() if n not in before]
    assert 1 < len(joined) <= MAX_PASSED + 1
    assert at.on() == [1]


def test_only_a_few_are_drawn_in_the_hope_that_they_are_smaller():
    sizes = (2.0, *(7.0 for _ in range(20)))
    at = Gaining(*sizes, slots=4, memory=8.0, sampler="tpe")
    at.estimate(0)
    at.sizes = (5.0, *sizes[1:])  # its process has more than was expected
    at.warm_up(0)
    assert len(at.state.studies["s-1"].trials) == 1 + AHEAD
    for _ in range(10):
        at.estimate(*(n for n in range(1, len(sizes)) if at.is_waiting(n)))
        at.epoch(0)
    assert at.on() == [0]
    assert len(at.state.studies["s-1"].trials) == 1 + AHEAD


def test_nothing_is_drawn_ahead_where_nothing_is_estimated():
    at = Gaining(2.0, *(7.0 for _ in range(20)), slots=4, memory=3.0, sampler="tpe")
    at.warm_up(0, rounds=10)
    assert at.on() == [0]
    assert len(at.state.studies["s-1"].trials) == 1
