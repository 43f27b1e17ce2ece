"""Exploration: what a forked trial's parameters become, in their ranges and on their ladders."""

from dataclasses import replace

import pytest
from penstock.app.server.optuna_bridge.samplers import SamplerHost
from penstock.app.server.sampling.explore import explored
from penstock.app.spec.space import Categorical, Float, Int, check_params, parse_space
from penstock.scheduler.model.study import Code, StrategySpec, StudySpec

SPACE = {
    "lr": Float(1e-4, 1e-1, log=True),
    "dropout": Float(0.0, 0.5),
    "momentum": Float(0.1, 0.9, step=0.1),
    "hidden": Int(1, 256, log=True),
    "layers": Int(2, 10, step=2),
    "batch_size": [16, 32, 64],
    "act": ["relu", "tanh"],
    "flag": [False, True],
}
SOURCE = {
    "lr": 0.01,
    "dropout": 0.2,
    "momentum": 0.5,
    "hidden": 100,
    "layers": 6,
    "batch_size": 32,
    "act": "relu",
    "flag": False,
}
SPEC = StudySpec(
    id="s",
    name="s",
    contract="torch",
    code=Code("m:a", "", ""),
    metric="loss",
    direction="minimize",
    n_trials=4,
    space=parse_space(SPACE),
    strategy=StrategySpec("pbt", max_epochs=9, resample=0.0),
)


def explore(number, source=SOURCE, seed=0, **changes):
    spec = replace(SPEC, seed=seed, strategy=replace(SPEC.strategy, **changes))
    drawn = SamplerHost().explore(spec, number, tuple(source.items()))
    assert check_params(spec.space, dict(drawn)) == drawn, "in range and on the ladder"
    return dict(drawn)


def values(name, **changes):
    return {explore(number, **changes)[name] for number in range(60)}


def test_a_number_is_multiplied_by_one_of_two_factors():
    assert {round(value, 12) for value in values("lr")} == {0.008, 0.012}
    assert {round(value, 12) for value in values("dropout")} == {0.16, 0.24}
    assert values("hidden") == {80, 120}


def test_a_ladder_is_climbed_by_a_step_at_least():
    assert values("layers") == {4, 8}, "0.8 * 6 is nearer to 4 than to 6, and 1.2 * 6 to 8"
    assert values("momentum") == {0.4, 0.6}
    assert values("hidden", source=SOURCE | {"hidden": 2}) == {1, 3}


def test_the_range_has_an_end():
    assert values("lr", source=SOURCE | {"lr": 0.095}) == {0.095 * 0.8, 0.1}
    assert values("layers", source=SOURCE | {"layers": 10}) == {8, 10}


def test_choices_that_are_numbers_in_order_have_neighbours_and_others_stay():
    assert values("batch_size") == {16, 64}
    assert values("batch_size", source=SOURCE | {"batch_size": 64}) == {32, 64}
    assert values("act") == {"relu"}
    assert values("flag") == {False}
    [text] = [text for name, text in parse_space({"n": Categorical([3, 1, 2])})]
    spec = replace(SPEC, space=(("n", text),))
    assert explored(spec, 0, (("n", 1),), {"n": 2}) == (("n", 1),), "not in order"


def test_a_zero_is_drawn_anew_for_no_factor_changes_it():
    assert len(values("dropout", source=SOURCE | {"dropout": 0.0})) > 50


def test_parameters_are_drawn_anew_with_the_given_probability():
    changed = [explore(number, resample=0.25)["lr"] for number in range(400)]
    factors = sum(round(value, 12) in {0.008, 0.012} for value in changed)
    assert 265 < factors < 335
    assert values("act", resample=1.0) == {"relu", "tanh"}


def test_only_what_is_to_be_explored_changes():
    found = explore(5, explore=("lr",))
    assert found["lr"] != SOURCE["lr"]
    assert found | {"lr": 0.01} == SOURCE


@pytest.mark.parametrize("number", [4, 5])
def test_a_trials_number_and_the_studys_seed_say_what_it_becomes(number):
    assert explore(number, resample=0.5) == explore(number, resample=0.5)
    assert explore(number, resample=0.5) != explore(number, resample=0.5, seed=1)
    assert explore(number, resample=0.5) != explore(number + 2, resample=0.5)
