"""Each strategy against a hand-worked example of its paper's rule."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.app.ledger.codec import state_from_json, state_to_json
from penstock.base.errors import UsageError
from penstock.scheduler.model.study import StrategySpec
from penstock.scheduler.model.trial_group import Entry, Pull
from penstock.scheduler.strategies.asha import Asha
from penstock.scheduler.strategies.base import STRATEGIES, rungs
from penstock.scheduler.strategies.halving import SuccessiveHalving
from penstock.scheduler.strategies.hyperband import Hyperband, brackets
from penstock.scheduler.strategies.learning_curve import EXPONENTS, probability_above
from penstock.scheduler.strategies.registry import make_strategy
from worlds.drive_world import World, check_invariants, spec


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


def test_synchronous_halving_waits_until_nobody_can_overtake():
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
    groups = [halving.reached(trial, 1, {1: 0.5}) for trial in order]
    assert groups == [(), (), (Entry("t0", 3),)]


def test_a_trial_that_is_certain_to_be_among_the_best_goes_on_at_once():
    """Of 6 the best 3 go on. With 4 there, 2 are to come: the best one is third at worst."""
    halving = SuccessiveHalving(n_trials=6, eta=2, levels=(1, 2, 4))
    halving.proposed(tuple("abcdef"), exhausted=False)
    scores = {"a": 0.1, "b": 0.9, "c": 0.3, "d": 0.4, "e": 0.2, "f": 0.8}
    groups = [halving.reached(trial, 1, {1: score}) for trial, score in scores.items()]
    assert groups == [(), (), (), (Entry("b", 2),), (Entry("d", 2),), (Entry("f", 2),)]
    # One of these three goes on: the best of two might still be overtaken.
    assert halving.reached("b", 2, {2: 0.5}) == ()
    assert halving.reached("d", 2, {2: 0.6}) == ()
    assert halving.abandoned("f") == (Entry("d", 4),)
    assert not halving.over
    halving.reached("d", 4, {4: 0.7})
    assert halving.over


@given(st.lists(st.integers(0, 6), min_size=1, max_size=30), st.integers(2, 4), st.randoms())
def test_early_promotion_promotes_the_same_trials_in_any_order(marks, eta, chance):
    levels = (1, 2, 5)
    names = tuple(f"t{n:02d}" for n in range(len(marks)))
    score = dict(zip(names, marks, strict=True))
    fails = {name for name in names if chance.random() < 0.15}
    halving = SuccessiveHalving(len(marks), eta, levels)
    running = list(halving.proposed(names, exhausted=False))
    reached: dict[int, set[str]] = {level: set() for level in levels}
    while running:
        entry = running.pop(chance.randrange(len(running)))
        if entry.trial in fails and entry.epochs == 1:
            running += halving.abandoned(entry.trial)
            continue
        reached[entry.epochs].add(entry.trial)
        running += halving.reached(entry.trial, entry.epochs, {entry.epochs: score[entry.trial]})
    alive = sorted(set(names) - fails, key=lambda name: (-score[name], name))
    size = len(names)
    for level in levels:
        assert reached[level] == set(alive[:size])
        size = max(1, size // eta)
    assert halving.over


def test_hyperband_runs_the_brackets_of_the_paper():
    """R = 81, eta = 3: table 1 of Li et al. 2018, bracket by bracket, one at a time."""
    levels = (1, 3, 9, 27, 81)
    band = Hyperband(143, 3, levels, overlap=False)
    table = {81: 1, 34: 3, 15: 9, 8: 27, 5: 81}  # n_i and r_i of each bracket's first rung
    number = 0
    for size, first in table.items():
        assert band.pull(4, 0) == Pull(ask=size)
        assert band.pull(4, 0) == Pull(), "the next bracket waits for this one"
        names = tuple(f"t{number + n:03d}" for n in range(size))
        number += size
        running = list(band.proposed(names, exhausted=False))
        assert {entry.epochs for entry in running} == {first}
        while running:
            entry = running.pop(0)
            curve = {entry.epochs: float(entry.trial[1:])}
            running += band.reached(entry.trial, entry.epochs, curve)
    assert band.pull(4, 0) == Pull()


@pytest.mark.parametrize("n_trials", [1, 2, 5, 27, 100, 143, 150, 200])
def test_trials_that_are_too_few_for_a_round_are_spread_over_its_brackets(n_trials):
    full = {4: 81, 3: 34, 2: 15, 1: 8, 0: 5}
    found = list(brackets(5, 3, n_trials, proportional=True))
    assert sum(size for _, size in found) == n_trials
    begun = found[n_trials // 143 * 5 :]
    assert [s for s, _ in begun] == [4, 3, 2, 1, 0][: len(begun)]
    rest = n_trials % 143
    assert all(abs(size - rest * full[s] / 143) < 1.5 for s, size in begun)
    band = Hyperband(n_trials, 3, (1, 3, 9, 27, 81), overlap=True, proportional=True)
    assert [band.pull(4, 0).ask for _ in found] == [size for _, size in found]
    assert band.pull(4, 0) == Pull()


def test_overlapping_brackets_begin_when_a_slot_is_idle_and_keep_their_trials_apart():
    band = Hyperband(10, 3, (1, 3), overlap=True)
    assert (band.pull(4, 0), band.pull(4, 0)) == (Pull(ask=3), Pull(ask=2))
    assert band.proposed(("a", "b", "c"), exhausted=False) == tuple(Entry(n, 1) for n in "abc")
    assert band.proposed(("d", "e"), exhausted=False) == (Entry("d", 3), Entry("e", 3))
    band.reached("d", 3, {3: 9.0})
    band.reached("a", 1, {1: 0.1})
    band.reached("b", 1, {1: 0.3})
    assert band.reached("c", 1, {1: 0.2}) == (Entry("b", 3),)


def test_pasha_opens_a_rung_only_where_rankings_disagree():
    """eta 2, rungs 1, 2, 4, 8; two of four reach epoch 2, where they have changed places."""
    pasha = make_strategy(spec(StrategySpec("pasha", max_epochs=8, eta=2), n_trials=4))
    assert pasha.pull(4, 0) == Pull(ask=4)
    pasha.proposed(tuple("abcd"), exhausted=False)
    for name, score in zip("abcd", (0.4, 0.3, 0.2, 0.1), strict=True):
        pasha.reached(name, 1, {1: score})
    assert pasha.pull(4, 0) == Pull((Entry("a", 2), Entry("b", 2)))
    pasha.reached("a", 2, {1: 0.4, 2: 0.5})
    assert pasha.asha.levels == (1, 2), "alone it is ranked first on both rungs"
    assert pasha.pull(4, 0) == Pull(), "b is on its way"
    pasha.reached("b", 2, {1: 0.3, 2: 0.6})
    assert pasha.asha.levels == (1, 2, 4), "first it was a, now it is b"
    assert pasha.pull(4, 0) == Pull((Entry("b", 4),))
    pasha.reached("b", 4, {1: 0.3, 2: 0.6, 3: 0.65, 4: 0.7})
    assert pasha.pull(4, 0) == Pull((Entry("b", 8),)), "the best one is trained to the end"
    pasha.reached("b", 8, {8: 0.8})
    assert pasha.pull(4, 0) == Pull()


def test_pasha_takes_what_is_within_the_noise_for_the_same_rank():
    """b and a cross twice, 0.05 apart in the end: their order at the rungs says nothing."""
    pasha = make_strategy(spec(StrategySpec("pasha", max_epochs=9, eta=3), n_trials=2))
    pasha.pull(2, 0)
    pasha.proposed(("a", "b"), exhausted=False)
    pasha.asha.scores = [{"a": 0.42, "b": 0.40}, {}]
    pasha.asha.promoted = [["a", "b"], []]
    pasha.reached("a", 3, {1: 0.42, 2: 0.50, 3: 0.60})
    pasha.reached("b", 3, {1: 0.40, 2: 0.55, 3: 0.55})
    assert pasha.noise == [pytest.approx(0.05)]
    assert pasha.asha.levels == (1, 3)
    pasha.asha.scores[0]["b"] = 0.30  # further apart than the noise
    pasha.asha.scores[1]["b"] = 0.65
    assert not pasha._stable()


def test_median_stopping_by_hand():
    """Averages so far at epoch 2: a 0.5, b 0.3, median 0.4; c's best, 0.35, is below it."""
    rule = make_strategy(spec(StrategySpec("median", max_epochs=3), n_trials=4))
    rule.proposed(tuple("abcd"), exhausted=False)
    assert rule.reached("a", 1, {1: 0.4}) == (Entry("a", 2),)
    assert rule.reached("a", 2, {1: 0.4, 2: 0.6}) == (Entry("a", 3),)
    assert rule.reached("b", 2, {1: 0.3, 2: 0.3}) == ()
    assert rule.reached("c", 2, {1: 0.35, 2: 0.3}) == ()
    assert rule.reached("d", 2, {1: 0.1, 2: 0.4}) == (Entry("d", 3),)
    assert rule.reached("a", 3, {3: 0.7}) == ()


def test_curve_stopping_stops_what_will_not_get_there():
    rule = make_strategy(spec(StrategySpec("curve", max_epochs=50, min_epochs=5), n_trials=3))
    rule.proposed(tuple("abc"), exhausted=False)

    def curve(end, rate, to):
        return {e: end - 0.5 * e**-rate for e in range(1, to + 1)}

    assert rule.reached("a", 5, curve(0.9, 0.7, 5)) == (Entry("a", 10),), "nothing to compare with"
    assert rule.reached("a", 50, curve(0.9, 0.7, 50)) == ()
    assert rule.reached("b", 5, curve(0.7, 0.7, 5)) == ()
    assert rule.reached("c", 5, curve(1.1, 0.3, 5)) == (Entry("c", 10),), "worse now, better later"


@given(end=st.floats(0.5, 1.0), rate=st.sampled_from(EXPONENTS), seen=st.integers(6, 20))
def test_a_power_law_without_noise_is_foretold(end, rate, seen):
    truth = {e: end - 0.4 * e**-rate for e in range(1, 51)}
    curve = {e: truth[e] for e in range(1, seen + 1)}
    assert probability_above(curve, 50, truth[50] - 0.02) > 0.9
    assert probability_above(curve, 50, truth[50] + 0.02) < 0.1


def test_three_points_foretell_nothing():
    assert probability_above({1: 0.1, 2: 0.2, 3: 0.3}, 9, 0.5) is None


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_ends_its_study_in_the_engine_and_survives_a_snapshot(name):
    world = World(score=lambda number, epoch: (number * 7 % 11) * (1 - 0.5**epoch))
    world.submit(spec(StrategySpec(name, max_epochs=9), n_trials=20))
    world.join("cpu.a.0", "cpu.a.1", "cpu.a.2")
    while world.open:
        world.run_segment()
        check_invariants(world.engine)
        text = state_to_json(world.engine.state)
        assert state_to_json(state_from_json(text)) == text
    assert world.finish.status == "complete"
    epochs = world.epochs_by_trial()
    assert len(epochs) > 20 if name == "pbt" else len(epochs) == 20
    assert max(epochs.values()) == 9


def test_asha_promotes_as_in_a_hand_worked_run_with_one_worker():
    """eta 2, levels 1, 2, 4.

    Rung 0 gets t0 (.9) and t1 (.5): of two the best floor(2/2) = 1 may go on: t0. Then t2 (.95)
    arrives: of three the best one is t2, not promoted yet: it goes on. Now rung 1 holds t0 and t2,
    whose best is t2: it goes on to the last rung before the bottom rung grows again.
    """
    asha = Asha(n_trials=5, eta=2, levels=(1, 2, 4))
    assert asha.pull(1, 0) == Pull(ask=1)
    asha.reached("t0", 1, {1: 0.9})
    assert asha.pull(1, 0) == Pull(ask=1), "floor(1/2) = 0: nobody may go on"
    asha.reached("t1", 1, {1: 0.5})
    assert asha.pull(1, 0) == Pull(group=(Entry("t0", 2),))
    asha.reached("t0", 2, {2: 0.91})
    assert asha.pull(1, 0) == Pull(ask=1), "t0 went on already, and rung 1 holds one trial"
    asha.reached("t2", 1, {1: 0.95})
    assert asha.pull(1, 0) == Pull(group=(Entry("t2", 2),))
    asha.reached("t2", 2, {2: 0.97})
    assert asha.pull(1, 0) == Pull(group=(Entry("t2", 4),))
    asha.reached("t2", 4, {4: 0.98})
    assert asha.pull(1, 0) == Pull(ask=1), "the last rung promotes nobody"


def started(asha, scores):
    """Have trials reach the lowest rung, in order."""
    for trial, score in scores.items():
        asha.pull(1, 0)
        asha.reached(trial, 1, {1: score})


def test_the_best_trial_that_still_gains_much_goes_ahead_of_a_rung():
    """eta 3, levels 1, 3, 9: one that waited would wait for two others at rung 3."""
    started(asha := Asha(n_trials=27, eta=3, levels=(1, 3, 9), ahead=True), LOW)
    assert asha.pull(1, 0) == Pull(group=(Entry("b", 3),)), "by the paper's rule"
    asha.reached("b", 3, {3: 0.7})
    assert asha.pull(1, 0) == Pull(group=(Entry("b", 9),))
    asha.reached("d", 3, {3: 0.9})
    assert asha.pull(1, 0) == Pull(ask=1), "one trial of a rung can go ahead"


LOW = {"a": 0.3, "b": 0.5, "c": 0.4}


@pytest.mark.parametrize(
    ("why", "score", "n_trials"),
    [("it gains little", 0.52, 27), ("its rung promotes one trial only", 0.7, 12)],
)
def test_a_trial_waits_for_others_at_its_rung(why, score, n_trials):
    started(asha := Asha(n_trials=n_trials, eta=3, levels=(1, 3, 9), ahead=True), LOW)
    asha.pull(1, 0)
    asha.reached("b", 3, {3: score})
    assert asha.pull(1, 0) == Pull(ask=1), why


def test_a_trial_that_is_not_the_best_so_far_does_not_go_ahead():
    started(asha := Asha(n_trials=27, eta=3, levels=(1, 3, 9), ahead=True), LOW)
    asha.pull(1, 0)
    asha.reached("late", 1, {1: 0.8})
    asha.reached("b", 3, {3: 0.7})
    assert asha.pull(2, 0) == Pull(group=(Entry("late", 3),), ask=1)


def test_nothing_goes_ahead_on_infinite_results():
    low = {"a": -math.inf, "b": 0.5, "c": 0.4}
    started(asha := Asha(n_trials=27, eta=3, levels=(1, 3, 9), ahead=True), low)
    asha.pull(1, 0)
    asha.reached("b", 3, {3: 0.7})
    assert asha.pull(1, 0) == Pull(ask=1)


@given(
    curves=st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=6, max_size=60),
    eta=st.integers(2, 4),
    seed=st.integers(0, 99),
)
def test_one_that_goes_ahead_costs_at_most_its_own_promotion(curves, eta, seed):
    """One that was overtaken takes the place of the last one that the paper's rule promotes."""
    rng, levels = Random(seed), (1, 2, 4)
    asha = Asha(n_trials=len(curves), eta=eta, levels=levels, ahead=True)
    names, running = 0, []
    while True:
        pull = asha.pull(rng.randrange(1, 4), 0)
        running += [(entry.trial, entry.epochs) for entry in pull.group]
        running += [(str(number), 1) for number in range(names, names + pull.ask)]
        names += pull.ask
        if not running:
            break
        trial, epoch = running.pop(rng.randrange(len(running)))
        values = dict(zip(levels, map(float, curves[int(trial)]), strict=True))
        asha.reached(trial, epoch, {each: values[each] for each in levels if each <= epoch})
    for level, scores in enumerate(asha.scores[:-1]):
        best = sorted(scores, key=scores.__getitem__, reverse=True)[: len(scores) // eta]
        early = asha.went_ahead[level] if level < len(asha.went_ahead) else ""
        missing = [trial for trial in best if trial not in asha.promoted[level]]
        assert missing == ([best[-1]] if missing else []), "all but perhaps the last one go on"
        assert not missing or early not in ("", *best)


def test_certain_promotions_are_those_that_no_later_result_can_undo():
    """eta 2, four trials: two of them go on, and of those one."""
    asha = Asha(n_trials=4, eta=2, levels=(1, 2, 4))
    asha.proposed(("a", "b", "c", "d"), exhausted=True)
    for trial, score in {"a": 0.9, "b": 0.8, "c": 0.7}.items():
        asha.reached(trial, 1, {1: score})
    assert asha.pull(4, 0, early=0) == Pull(group=(Entry("a", 2),)), "d may be better than b"
    asha.reached("a", 2, {2: 0.9})
    assert asha.pull(4, 0, early=0) == Pull()
    asha.reached("d", 1, {1: 0.6})
    assert asha.pull(4, 0, early=0) == Pull(group=(Entry("b", 2),))
    asha.reached("b", 2, {2: 0.95})
    assert asha.pull(4, 0, early=0) == Pull(group=(Entry("b", 4),))
    assert asha.pull(4, 0) == Pull()


def test_so_many_as_are_allowed_go_on_before_it_is_certain():
    asha = Asha(n_trials=20, eta=2, levels=(1, 2))
    for number in range(8):
        asha.pull(1, 0, early=0)
        asha.reached(str(number), 1, {1: float(number)})
    assert asha.pull(3, 0, early=1) == Pull(group=(Entry("7", 2),), ask=2)
    assert asha.pull(3, 0, early=0) == Pull(ask=3)
    assert len(asha.pull(3, 0).group) == 3


@given(
    scores=st.lists(st.integers(0, 5), min_size=2, max_size=40),
    eta=st.integers(2, 4),
    seed=st.integers(0, 99),
)
def test_with_certain_promotions_alone_asha_is_successive_halving(scores, eta, seed):
    """Each rung has ``floor(n / eta)`` trials, whatever the order in which they are trained."""
    rng, levels = Random(seed), (1, 2, 4)
    asha = Asha(n_trials=len(scores), eta=eta, levels=levels)
    names = tuple(map(str, range(len(scores))))
    asha.pull(len(scores), 0, early=0)
    running = [Entry(name, 1) for name in names]
    reached = dict.fromkeys(levels, 0)
    while running:
        entry = running.pop(rng.randrange(len(running)))
        trial, level = entry.trial, entry.epochs
        reached[level] += 1
        asha.reached(trial, level, {level: float(scores[int(trial)])})
        running += asha.pull(rng.randrange(1, 5), 0, early=0).group
        if not running:
            running += asha.pull(9, 0, early=0).group
    size = len(scores)
    for level in levels:
        assert reached[level] == size
        size //= eta


def test_until_a_trial_is_trained_to_the_end_no_seat_gets_one_that_curves_may_stop():
    found = {}
    for rule in ("median", "curve"):
        made = make_strategy(spec(StrategySpec(rule, max_epochs=9), n_trials=20))
        asked = made.pull(2, 0).ask, made.pull(4, 0, early=0).ask
        made.reached("a", 9, {epoch: 0.1 * epoch for epoch in range(1, 10)})
        found[rule] = *asked, made.pull(4, 0, early=0).ask
    assert found == {"median": (2, 4, 4), "curve": (2, 0, 4)}


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
        asha.reached(name, 1, {1: 0.5})
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
