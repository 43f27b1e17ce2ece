"""Races of system configurations: who wins, who is put out, and how surely."""

import random
from math import exp, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.base.errors import UsageError
from penstock.extensions.system_tuning.races.arm import MAX_WINDOWS, student_quantile
from penstock.extensions.system_tuning.races.racing import PROBING, Race, check_probing
from penstock.profiling.knobs.knobs import (
    KNOBS,
    MAX_CONFIGS,
    SlotClass,
    check_exact,
    check_knobs,
    config_text,
    knob_values,
    merged,
    part,
    system_configs,
)
from scipy.stats import t

ONE, TWO = (("threads", 1),), (("memory_format", "channels_last"),)


def run(race, seconds, noise=0.03, seed=0, rounds=MAX_WINDOWS):
    """Windows of all that are open, round by round; returns how many there were."""
    draw, count = random.Random(seed), 0
    for _ in range(rounds):
        for config in race.open():
            race.observe(config, seconds[config] * exp(draw.gauss(0, noise)))
            count += 1
        race.judge()
        if race.over:
            break
    return count


def race_of(*configs, probing="race"):
    race = Race(probing)
    race.enter(configs)
    return race


def test_a_configuration_that_is_faster_wins():
    race = race_of(ONE, TWO)
    windows = run(race, {ONE: 0.7, TWO: 1.1})
    assert race.over
    assert race.chosen == ONE
    assert windows < 2 * MAX_WINDOWS  # it is known before all windows are used up
    assert race.arms[0].speedup == pytest.approx(1 / 0.7, rel=0.05)
    assert race.arms[1].out


def test_nobody_wins_against_a_default_that_is_the_fastest():
    race = race_of(ONE, TWO)
    run(race, {ONE: 1.0, TWO: 1.3})
    assert race.over
    assert race.chosen == ()


def test_a_gain_too_small_to_be_worth_it_is_none():
    race = race_of(ONE)
    run(race, {ONE: 0.995}, noise=0.002)
    assert race.over
    assert race.chosen == ()


def test_noise_alone_seldom_wins():
    wins = sum(bool(run_one(seed).chosen) for seed in range(400))
    assert wins <= 0.05 * 400


def test_means_alone_take_noise_for_a_gain_more_often_than_bounds_do():
    halved = sum(bool(run_one(seed, "bandit").chosen) for seed in range(200))
    raced = sum(bool(run_one(seed).chosen) for seed in range(200))
    assert raced <= 10 < 40 < halved


def run_one(seed, probing="race"):
    race = race_of(ONE, TWO, probing=probing)
    run(race, {ONE: 1.0, TWO: 1.0}, noise=0.1, seed=seed)
    return race


def test_two_that_are_alike_end_in_a_decision():
    race = race_of(ONE, TWO)
    run(race, {ONE: 0.5, TWO: 0.5})
    assert race.over
    assert race.chosen in (ONE, TWO)


def test_what_fails_is_out_with_all_that_contain_it():
    both = merged(ONE, TWO)
    race = race_of(ONE, TWO, both)
    race.mark_infeasible(ONE, "no memory")
    assert [bool(arm.infeasible) for arm in race.arms] == [True, False, True]
    assert race.open() == (TWO,)
    run(race, {TWO: 0.5})
    assert race.chosen == TWO
    race.mark_infeasible(TWO, "no memory either")
    assert race.chosen == ()


def test_new_arms_open_a_race_anew():
    race = race_of(ONE)
    run(race, {ONE: 2.0})
    assert race.over
    race.enter([TWO, ONE, ()])
    assert not race.over
    assert race.open() == (TWO,)


def test_halving_gives_the_better_half_twice_the_windows():
    eight = [(("loader_workers", n),) for n in range(1, 9)]
    race = race_of(*eight, probing="bandit")
    run(race, {config: 0.9 - 0.05 * place for place, config in enumerate(eight)}, noise=0.001)
    assert race.over
    assert race.chosen == eight[-1]
    assert [arm.n for arm in race.arms] == [3] * 4 + [6] * 2 + [12] * 2
    assert all(arm.out for arm in race.arms[:-1])


def test_halving_keeps_the_default_where_nothing_beats_it():
    race = race_of(ONE, TWO, probing="bandit")
    assert run(race, {ONE: 1.0, TWO: 1.4}, noise=0.001) == 6
    assert race.over
    assert race.chosen == ()


def test_the_grid_takes_the_shortest_of_one_epoch_each():
    race = race_of(ONE, TWO, merged(ONE, TWO), probing="grid")
    race.observe(ONE, 0.99)
    race.observe(TWO, 1.2)
    race.judge()
    assert not race.over
    race.observe(merged(ONE, TWO), 1.1)
    race.judge()
    assert race.over
    assert race.chosen == ONE  # by a hair, as published: one reading each, and no bound


def test_the_grid_without_a_shorter_epoch_stays_with_the_default():
    race = race_of(ONE, probing="grid")
    race.observe(ONE, 1.01)
    race.judge()
    assert race.over
    assert race.chosen == ()


@pytest.mark.parametrize("probing", PROBING)
def test_by_every_strategy_what_cannot_run_is_out_and_the_rest_goes_on(probing):
    race = race_of(ONE, TWO, probing=probing)
    race.mark_infeasible(ONE, "no memory")
    assert race.open() == (TWO,)
    run(race, {TWO: 0.5})
    assert race.chosen == TWO


@pytest.mark.parametrize("given", ["racing", "", None, 3, ["race"]])
def test_an_unknown_strategy_is_refused_with_those_there_are(given):
    with pytest.raises(UsageError, match=r"system\.probing = .*race, bandit, bayesian, grid"):
        check_probing(given)
    assert check_probing("grid") == "grid"


@given(st.integers(2, 60), st.floats(0.9, 0.9999))
def test_students_quantile_is_scipys(freedom, probability):
    assert student_quantile(probability, freedom) == pytest.approx(
        t.ppf(probability, freedom), rel=1e-9
    )


def test_an_interval_needs_three_windows():
    race = race_of(ONE)
    race.observe(ONE, 0.5)
    race.observe(ONE, 0.5)
    assert race.arms[0].interval(0.05) == (-inf, inf)


@given(st.integers(1, 64), st.sampled_from(["cpu", "cuda"]))
def test_arms_are_few_distinct_and_never_the_default(cores, kind):
    found = system_configs(SlotClass(kind, cores), ("exact", "rounding", "numerics"), tuple(KNOBS))
    assert 0 < len(found) <= MAX_CONFIGS
    assert len(set(found)) == len(found)
    assert all(found)
    assert all(dict(config).get("threads", 0) < cores for config in found)


def test_usual_arms_leave_out_what_has_to_be_named():
    usual = system_configs(SlotClass("cpu", 4), ("rounding", "numerics"), None)
    assert {name for config in usual for name, _ in config} == {"threads", "memory_format"}
    named = system_configs(SlotClass("cpu", 4), ("rounding", "numerics"), ("compile", "autocast"))
    assert {name for config in named for name, _ in config} == {"compile", "autocast"}


def test_parts_of_a_configuration():
    config = merged(ONE, (("loader_workers", 2),))
    assert part(config, "exact") == (("loader_workers", 2),)
    assert part(config, "rounding", "numerics") == ONE
    assert config_text(config) == "loader_workers 2, threads 1"
    assert config_text(()) == "the default"


@pytest.mark.parametrize("given", ["thread", ["threads", "colour"], [1], "gpu_power"])
def test_unknown_knobs_are_refused(given):
    with pytest.raises(UsageError, match=r"system\.knobs = .* allowed is one or a list of threads"):
        check_knobs(given, probes=True)


def test_numerics_are_refused_where_bits_count():
    with pytest.raises(UsageError, match="no autocast in a bitwise study"):
        check_exact(["threads", "autocast"])
    assert check_knobs(["autocast"], probes=True) == ("autocast",)
    check_exact(["threads"])
    check_exact(None)
    assert check_knobs(None, probes=True) is None


@pytest.mark.parametrize("name", ["threads", "autocast"])
def test_what_could_never_be_turned_is_refused_where_nothing_is_tried(name):
    with pytest.raises(UsageError, match=f"no {name} where nothing is tried"):
        check_knobs(["loader_workers", name], probes=False)
    assert check_knobs("loader_workers", probes=False) == ("loader_workers",)
    with pytest.raises(UsageError, match="allowed is one or a list of"):
        check_knobs([], probes=True)


def test_settings_of_a_whole_device_that_a_study_of_0_2_named_are_replayed():
    named = ("affinity", "cpu_frequency", "gpu_power")
    assert [name for name, _ in knob_values(SlotClass("cpu", 4), ["exact"], named)] == [*named[:2]]
    assert knob_values(SlotClass("cuda", 4), ["exact"], named) == (("gpu_power", (80, 60)),)
    for kind in ("cpu", "cuda"):
        assert knob_values(SlotClass(kind, 4, alone=False), ["exact"], named) == ()
