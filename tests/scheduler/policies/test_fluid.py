"""StaticFluid and DynamicFluid by hand, with the faults that the formula has."""

from __future__ import annotations

from penstock.scheduler.model.snapshot import Candidate, Snapshot
from penstock.scheduler.policies.fluid import dynamic_fluid, static_fluid

#: Linear up to four devices.
LINEAR = tuple((width, 1 / width) for width in range(1, 5))


def trial(name, epochs, width=0, level=1.0, shape=LINEAR):
    return Candidate(name, "s", 0, epochs, 0.0, level, width, 4, level=level, shape=shape)


def snapshot(waiting, devices, running=(), resize=0.0):
    return Snapshot(0.0, tuple(waiting), devices, tuple(running), devices, devices, resize)


def test_a_trial_gets_the_share_of_devices_that_its_work_has():
    plan = static_fluid(snapshot([trial("a", 30), trial("b", 10), trial("c", 10)], 5))
    assert plan.widths == {"a": 3, "b": 1, "c": 1}
    assert plan.order == ("a", "b", "c")


def test_rounding_down_strands_a_device():
    plan = static_fluid(snapshot([trial(name, 10) for name in "abcd"], 5))
    assert sum(plan.widths.values()) == 4


def test_the_lower_bound_asks_for_more_devices_than_there_are():
    plan = static_fluid(snapshot([trial("long", 100), *(trial(f"t{k}", 1) for k in range(10))], 4))
    assert plan.widths["long"] == 3
    assert sum(plan.widths.values()) == 13


def test_a_trial_that_has_begun_keeps_its_width_under_the_static_rule_only():
    left = [trial("a", 9, width=1)]
    assert static_fluid(snapshot([], 4, running=left)).widths == {"a": 1}
    assert dynamic_fluid(snapshot([], 4, running=left)).widths == {"a": 4}


def test_growing_has_to_gain_more_than_its_price():
    """Nine epochs of a second: 9 s on one device, 2.25 s on four."""
    left = [trial("a", 9, width=1)]
    assert dynamic_fluid(snapshot([], 4, running=left, resize=6.7)).widths == {"a": 4}
    assert dynamic_fluid(snapshot([], 4, running=left, resize=6.8)).widths == {"a": 1}


def test_shrinking_saves_nothing_where_speed_is_linear():
    """w h(w) is the same at every width, so any price forbids it (the paper's line 6)."""
    both = [trial("a", 4, width=4), trial("b", 4, width=1)]
    assert dynamic_fluid(snapshot([], 4, running=both, resize=0.1)).widths["a"] == 4


def test_shrinking_pays_where_more_devices_gain_little():
    flat = ((1, 1.0), (2, 0.9), (3, 0.88), (4, 0.87))
    both = [trial("a", 10, width=4, shape=flat), trial("b", 30, width=1)]
    assert dynamic_fluid(snapshot([], 4, running=both, resize=0.1)).widths["a"] == 1
