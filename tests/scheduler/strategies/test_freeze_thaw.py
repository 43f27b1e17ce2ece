"""Freeze-thaw: its choices, the floor below them, and what must not break it."""

import json
import math
from functools import cache
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from penstock.app.extensions import PLUGS
from penstock.app.ledger.codec import state_from_json, state_to_json
from penstock.scheduler.engine.engine import Engine
from penstock.scheduler.model.study import StrategySpec
from penstock.scheduler.strategies.asha import Asha
from penstock.scheduler.strategies.base import rungs
from penstock.scheduler.strategies.curve_ensemble import forecasts, learned
from penstock.scheduler.strategies.freeze_thaw import SCOUTS, SHARE, WORST, FreezeThaw
from worlds.drive_world import World, check_invariants, spec

PLAN = StrategySpec("freeze_thaw", max_epochs=27)


def freeze_thaw(n_trials, max_epochs):
    return FreezeThaw(n_trials, max_epochs, Asha(n_trials, 3, rungs(1, max_epochs, 3)))


def asha(n_trials, max_epochs):
    return Asha(n_trials, 3, rungs(1, max_epochs, 3))


def ranked(score):
    """Return the score that counts at a rung: one that is no number is the worst."""
    return score if math.isfinite(score) else WORST


def trained(strategy, curve_of, *, seconds=lambda trial: None, failing=()):
    """Yield each epoch, (trial, epoch), that a strategy trains on one device, in order."""
    at, made = {}, 0
    while True:
        pull = strategy.pull(1, 0)
        entries = list(pull.group)
        if pull.ask:
            names = tuple(f"t{made + n:03d}" for n in range(pull.ask))
            made += pull.ask
            entries += strategy.proposed(names, exhausted=False)
        if not entries:
            return
        for entry in entries:
            if entry.trial in failing and entry.epochs > 2:
                strategy.abandoned(entry.trial)
                continue
            while at.get(entry.trial, 0) < entry.epochs:
                at[entry.trial] = at.get(entry.trial, 0) + 1
                yield entry.trial, at[entry.trial]
            if isinstance(strategy, FreezeThaw):
                strategy.cost(entry.trial, seconds(entry.trial))
            epochs = range(1, entry.epochs + 1)
            curve = {epoch: curve_of(entry.trial, epoch) for epoch in epochs}
            strategy.reached(entry.trial, entry.epochs, curve)


def power_law(seed):
    """Curves that rise to different ends, with some noise."""

    @cache
    def curve_of(trial, epoch):
        of_trial = Random(f"{seed} {trial}")
        end, rate, begin = of_trial.random(), of_trial.uniform(0.2, 1.5), of_trial.random()
        noise = 0.01 * Random(f"{seed} {trial} {epoch}").gauss(0.0, 1.0)
        return end - 0.3 * begin * epoch**-rate + noise

    return curve_of


def overfitting(seed):
    def curve_of(trial, epoch):
        peak = Random(f"{seed} {trial}").uniform(1, 9)
        return peak * epoch / 9 * math.exp(1 - epoch / peak)

    return curve_of


def noisy(seed):
    return cache(lambda trial, epoch: Random(f"{seed} {trial} {epoch}").gauss(0.0, 1.0))


def jumping(seed):
    def curve_of(trial, epoch):
        jump = Random(f"{seed} {trial}").randint(2, 20)
        return 0.1 if epoch < jump else 0.9 - 0.01 * jump

    return curve_of


def exploding(seed):
    def curve_of(trial, epoch):
        number = int(trial[1:])
        if number % 4 == 1:
            return math.nan if epoch > 2 else -1.0
        return -(10.0 ** min(300, 30 * number * epoch)) if number % 5 == 2 else -1.0 / epoch

    return curve_of


ODD = {
    "power": power_law,
    "overfitting": overfitting,
    "noisy": noisy,
    "jumping": jumping,
    "exploding": exploding,
    "ties": lambda seed: lambda trial, epoch: 0.5,
    "falling": lambda seed: lambda trial, epoch: -float(epoch),
}
COSTS = {
    "alike": lambda trial: 1.0,
    "unknown": lambda trial: None,
    "a hundredfold": lambda trial: 100.0 if int(trial[1:]) % 3 else 1.0,
}


# -- the floor -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("seed", range(2))
def test_all_that_asha_trains_is_trained_in_three_times_the_time_and_an_epoch(kind, seed):
    curve_of = ODD[kind](seed)
    floor = list(trained(asha(40, 27), lambda *step: ranked(curve_of(*step))))
    found = list(trained(freeze_thaw(40, 27), curve_of))
    at = {step: n for n, step in enumerate(found, start=1)}
    assert len(at) == len(found), "no epoch is trained twice"
    for n, step in enumerate(floor, start=1):
        assert at[step] <= SHARE * n + 1, f"ASHA trains {step} as its epoch {n}"


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("cost", COSTS)
def test_it_comes_to_an_end_with_one_trial_trained_to_the_last_epoch(kind, cost):
    found = list(trained(freeze_thaw(30, 9), ODD[kind](0), seconds=COSTS[cost]))
    assert len(found) == len(set(found))
    assert {trial for trial, _ in found} == {f"t{n:03d}" for n in range(30)}
    assert max(epoch for _, epoch in found) == 9


def test_trials_of_one_epoch_are_all_trained_once():
    found = list(trained(freeze_thaw(7, 1), noisy(0)))
    assert found == [(f"t{n:03d}", 1) for n in range(7)]


def test_without_a_model_it_is_asha():
    ties = ODD["ties"](0)
    strategy = freeze_thaw(30, 9)
    assert list(trained(strategy, ties))[: len(list(trained(asha(30, 9), ties)))] == list(
        trained(asha(30, 9), ties)
    )
    assert strategy.prior is None


def test_device_time_counts_not_epochs():
    """A third of the time is the floor's, also where epochs differ a hundredfold."""
    strategy = freeze_thaw(60, 27)
    seconds = COSTS["a hundredfold"]
    for n, _ in enumerate(trained(strategy, power_law(1), seconds=seconds)):
        if n > 50 and not strategy.finalist and strategy.asked < 60:
            assert strategy.on_floor * SHARE >= strategy.spent - SHARE * 100.0


# -- the model -------------------------------------------------------------------------------------


def test_it_is_near_the_best_after_fewer_epochs_than_asha():
    """Over ten studies: slow and fast power laws, and curves that jump at some epoch."""
    ours = theirs = 0
    for curves in (power_law, jumping):
        for seed in range(5):
            curve_of = curves(seed)
            near = max(curve_of(f"t{n:03d}", 27) for n in range(60)) - 0.03

            def first(strategy, curve_of=curve_of, near=near):
                steps = enumerate(trained(strategy, curve_of), start=1)
                return next(n for n, step in steps if curve_of(*step) > near)

            ours += first(freeze_thaw(60, 27))
            theirs += first(asha(60, 27))
    assert ours < 0.9 * theirs


def late(seed):
    """Curves of which half begin well and stay as they are; those that begin badly end best."""

    def curve_of(trial, epoch):
        draw = Random(f"{seed} {trial}").random()
        return 0.5 + 0.1 * draw if draw > 0.5 else draw + (1.0 - draw) * (1.0 - 1.0 / epoch)

    return curve_of


@pytest.mark.parametrize("seed", range(5))
def test_trials_that_begin_badly_and_end_well_are_found(seed):
    """Scouts' curves show that such trials pay."""
    curve_of = late(seed)
    found = [curve_of(*step) for step in trained(freeze_thaw(60, 27), curve_of)]
    assert max(found[:400]) > 0.95


def test_a_tenth_of_the_time_is_the_scouts():
    strategy = freeze_thaw(200, 9)
    for n, _ in enumerate(trained(strategy, power_law(1))):
        if strategy.prior is not None and not strategy.finalist and n < 400:
            assert strategy.on_scouts <= strategy.spent / SCOUTS + 1.0
    assert strategy.on_scouts > 0.0


def test_a_trial_is_not_chosen_twice_and_many_slots_have_different_ones():
    strategy = freeze_thaw(40, 27)
    steps = trained(strategy, power_law(0))
    for _ in range(60):
        next(steps)
    under_way = list(strategy.running)
    group = strategy.pull(12, 0).group
    assert len({entry.trial for entry in group} | set(under_way)) == len(group) + len(under_way)


def test_what_is_expected_is_as_wide_as_gains_are_and_narrows():
    curve_of = power_law(3)
    curves = {
        f"t{n:03d}": [curve_of(f"t{n:03d}", epoch) for epoch in range(1, 1 + (27, 9, 3, 1)[n % 4])]
        for n in range(40)
    }
    prior = learned(curves, 27)
    assert prior is not None
    inside = []
    for n in range(40, 140):
        whole = [curve_of(f"t{n:03d}", epoch) for epoch in range(1, 28)]
        deviations = []
        for length in (1, 3, 9):
            last = forecasts(whole[:length], prior, 27)[-1]
            assert last.epoch == 27
            deviations.append(last.deviation)
            inside.append(abs(last.mean - whole[-1]) < 2.0 * last.deviation)
        assert deviations[2] < deviations[0]
    assert sum(inside) / len(inside) > 0.85


SCORES = (
    st.floats(-1e12, 1e12) | st.integers(0, 2) | st.floats(allow_nan=False, allow_infinity=False)
)


@given(st.lists(st.lists(SCORES, min_size=1, max_size=12), max_size=8))
@example([[0.0, 0.0, 0.0, 2e-287], [0.0, 1.0]])  # squares of so small a rise are 0
@example([[0.0, 0.0], [0.0, 2e-287]])
@example([[0.0, 1e200], [0.0, 1.0]])
@settings(deadline=None)
def test_any_finite_curves_give_finite_forecasts_or_no_prior(given_curves):
    curves = {str(n): [float(each) for each in of] for n, of in enumerate(given_curves)}
    prior = learned(curves, 12) if curves else None
    for curve in curves.values():
        found = forecasts(curve, prior, 12) if prior is not None else []
        assert all(math.isfinite(each.mean) and each.deviation >= 0.0 for each in found)


def test_a_score_too_large_to_compute_with_has_no_forecasts():
    curves = {str(n): [0.1 * n, 0.2 * n, 0.3 * n] for n in range(1, 4)}
    prior = learned(curves, 12)
    assert prior is not None
    assert forecasts([0.1, 0.2], prior, 12)
    assert forecasts([0.1, 1e200], prior, 12) == []


# -- its state -------------------------------------------------------------------------------------


def _score(number, epoch):
    return power_law(5)(f"t{number:03d}", epoch)


def test_a_snapshot_in_the_middle_changes_no_decision():
    world, again = World(_score), World(_score)
    for each in (world, again):
        each.submit(spec(PLAN, n_trials=20))
        each.join("cpu.a.0", "cpu.a.1")
    for n in range(80):
        world.run_segment()
        again.run_segment()
        if n % 7 == 0:
            text = state_to_json(again.engine.state)
            assert "freeze_thaw" in text
            again.engine = Engine(state_from_json(text), plugs=PLUGS)
        assert state_to_json(again.engine.state) == state_to_json(world.engine.state)
    check_invariants(world.engine)


def test_a_study_under_the_engine_ends_and_trials_go_on_from_where_they_paused():
    world = World(_score)
    world.submit(spec(PLAN, n_trials=20))
    world.join("cpu.a.0", "cpu.a.1", "cpu.a.2")
    world.run()
    assert world.finish.status == "complete"
    assert max(world.epochs_by_trial().values()) == 27
    assert len(world.epochs_by_trial()) == 20


@pytest.mark.parametrize("seed", range(4))
def test_trials_that_fail_are_not_gone_on_with(seed):
    failing = {f"t{n:03d}" for n in range(30) if Random(f"{seed} {n}").random() < 0.3}
    found = list(trained(freeze_thaw(30, 9), power_law(seed), failing=failing))
    assert max(epoch for trial, epoch in found if trial in failing) <= 2
    assert max(epoch for _, epoch in found) == 9


def test_results_of_trials_that_its_user_sent_on_count():
    strategy = freeze_thaw(10, 9)
    names = tuple(f"t{n}" for n in range(10))
    strategy.pull(10, 0)
    strategy.proposed(names, exhausted=False)
    for n, name in enumerate(names):
        strategy.reached(name, 1, {1: 0.1 * n})
    strategy.reached("t0", 9, {epoch: 0.1 * epoch for epoch in range(1, 10)})
    strategy.reached("t1", 4, {epoch: 0.05 * epoch for epoch in range(1, 5)})
    assert len(strategy.curves["t0"]) == 9
    assert strategy.best == pytest.approx(0.9)
    assert all(entry.trial != "t0" for entry in strategy.pull(10, 0).group)


def test_a_grid_that_is_exhausted_ends_with_fewer_trials():
    strategy = freeze_thaw(50, 9)
    strategy.pull(4, 0)
    strategy.proposed(("t0", "t1", "t2"), exhausted=True)
    for n in range(3):
        strategy.reached(f"t{n}", 1, {1: float(n)})
    pulls = []
    while (pull := strategy.pull(1, 0)).group:
        (entry,) = pull.group
        pulls.append(entry)
        strategy.reached(entry.trial, entry.epochs, dict.fromkeys(range(1, entry.epochs + 1), 1.0))
    assert not pull.ask
    assert pulls[-1].epochs == 9


def test_its_state_is_plain_values():
    strategy = freeze_thaw(20, 9)
    list(trained(strategy, power_law(2)))
    text = json.dumps([strategy.curves, strategy.expected, strategy.newcomers])
    assert math.isfinite(sum(map(len, json.loads(text)[0].values())))
