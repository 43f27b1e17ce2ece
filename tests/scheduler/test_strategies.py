"""Each strategy against a hand-worked example of its paper's rule."""

import pytest
from drive_world import World, spec
from penstock.profiling.errors import UsageError
from penstock.scheduler.asha import Asha
from penstock.scheduler.halving import SuccessiveHalving
from penstock.scheduler.strategy import Entry, Pull, make_strategy, rungs
from penstock.scheduler.study import StrategySpec


def test_rungs_are_geometric_and_end_at_the_last_epoch():
    assert rungs(1, 27, 3) == (1, 3, 9, 27)
    assert rungs(1, 10, 3) == (1, 3, 9, 10)
    assert rungs(4, 4, 2) == (4,)


def test_synchronous_halving_of_27_by_3_trains_27_9_and_3_trials():
    """n_k = floor(27 / 3**k) at r_k = 3**k epochs: 27 at 1, 9 at 3, 3 at 9."""
    world = World()
    world.submit(spec(StrategySpec("halving", max_epochs=9), n_trials=27))
    world.join("cpu.a.0", "cpu.a.1")
    world.run()
    by_epochs = sorted(world.epochs_by_trial().values(), reverse=True)
    assert by_epochs == [9] * 3 + [3] * 6 + [1] * 18
    best = {f"s-1-{n:04d}" for n in (24, 25, 26)}
    assert {t for t, n in world.epochs_by_trial().items() if n == 9} == best
    assert world.finish.status == "complete"


def test_synchronous_halving_waits_for_the_whole_rung():
    world = World()
    world.submit(spec(StrategySpec("halving", max_epochs=3), n_trials=3))
    world.join("cpu.a.0")
    world.run_segment()
    world.run_segment()
    assert all(d.segment.first == 1 for d in world.open.values())
    world.run_segment()
    assert [d.segment.trial for d in world.open.values()] == ["s-1-0002"]


@pytest.mark.parametrize("order", [("t1", "t0", "t2"), ("t2", "t1", "t0")])
def test_synchronous_halving_breaks_ties_by_number_whoever_arrived_first(order):
    halving = SuccessiveHalving(n_trials=3, eta=3, levels=(1, 3))
    halving.proposed(("t0", "t1", "t2"), exhausted=False)
    groups = [halving.reached(trial, 1, 0.5) for trial in order]
    assert groups == [(), (), (Entry("t0", 3),)]


def test_asha_promotes_as_in_a_hand_worked_run_with_one_worker():
    """eta 2, levels 1, 2, 4.

    Rung 0 gets t0 (.9) and t1 (.5): of two the best floor(2/2) = 1 may go on: t0. Then t2 (.95)
    arrives: of three the best one is t2, not promoted yet: it goes on. Now rung 1 holds t0 and t2,
    whose best is t2: it goes on to the last rung before the bottom rung grows again.
    """
    asha = Asha(n_trials=5, eta=2, levels=(1, 2, 4))
    assert asha.pull(1, 0) == Pull(ask=1)
    asha.reached("t0", 1, 0.9)
    assert asha.pull(1, 0) == Pull(ask=1), "floor(1/2) = 0: nobody may go on"
    asha.reached("t1", 1, 0.5)
    assert asha.pull(1, 0) == Pull(group=(Entry("t0", 2),))
    asha.reached("t0", 2, 0.91)
    assert asha.pull(1, 0) == Pull(ask=1), "t0 went on already, and rung 1 holds one trial"
    asha.reached("t2", 1, 0.95)
    assert asha.pull(1, 0) == Pull(group=(Entry("t2", 2),))
    asha.reached("t2", 2, 0.97)
    assert asha.pull(1, 0) == Pull(group=(Entry("t2", 4),))
    asha.reached("t2", 4, 0.98)
    assert asha.pull(1, 0) == Pull(ask=1), "the last rung promotes nobody"


def test_asha_trains_the_expected_epochs_and_finishes():
    world = World()
    world.submit(spec(StrategySpec("asha", max_epochs=9), n_trials=27))
    world.join("cpu.a.0", "cpu.a.1")
    world.run()
    epochs = world.epochs_by_trial()
    assert len(epochs) == 27
    assert max(epochs.values()) == 9
    assert world.finish.status == "complete"


def test_equal_scores_are_promoted_in_order_of_arrival():
    asha = Asha(n_trials=3, eta=3, levels=(1, 3))
    for name in ("a", "b", "c"):
        asha.pull(1, 0)
        asha.reached(name, 1, 0.5)
    assert asha.pull(1, 0).group == (Entry("a", 3),)


def test_full_budget_asks_ahead_only_where_order_does_not_matter():
    full = make_strategy(spec(n_trials=10))
    assert full.pull(2, 0) == Pull(ask=2)
    assert full.pull(2, 10) == Pull(ask=8)


def test_an_exhausted_sampler_ends_the_asking():
    full = make_strategy(spec(n_trials=10))
    full.pull(4, 0)
    full.proposed(("a",), exhausted=True)
    assert full.pull(4, 0) == Pull()


@pytest.mark.parametrize("name", ["hyperbandit", "", "ASHA"])
def test_an_unknown_strategy_is_refused_with_the_names_there_are(name):
    with pytest.raises(UsageError, match="full, halving, asha"):
        make_strategy(spec(StrategySpec(name, max_epochs=3)))
