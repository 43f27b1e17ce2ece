"""Conditional spaces: which parameters are there, and who draws them how."""

import itertools

import pytest
from penstock import Categorical, Float, Int
from penstock.app.server.optuna_bridge.samplers import SamplerHost
from penstock.app.spec.conditions import parse_conditions, without_inactive
from penstock.app.spec.space import check_params, grid_size, parse_space
from penstock.base.errors import UsageError
from penstock.scheduler.model.study import Code, StrategySpec, StudySpec
from penstock.scheduler.model.trial import Trial, TrialState

SPACE = {
    "layers": [1, 2],
    "optimizer": ["adam", "sgd"],
    "width": Int(1, 3, when={"layers": 2}),
    "momentum": Float(0.5, 0.9, step=0.4, when={"optimizer": ["sgd"]}),
    "nesterov": Categorical([True, False], when={"optimizer": "sgd", "layers": [1, 2]}),
    "decay": Float(0.0, 1.0, step=0.5, when={"nesterov": True}),
}


def spec(sampler, space=SPACE, **fields):
    return StudySpec(
        id="s", name="s", contract="torch", code=Code("m:a", "/", "0" * 64), metric="loss",
        direction="minimize", n_trials=100, space=parse_space(space), sampler=sampler,
        strategy=StrategySpec("full", max_epochs=1), conditions=parse_conditions(space), **fields,
    )  # fmt: skip


def trial(number, params, value=None, notes=""):
    done = value is not None
    return Trial(
        id=f"s-{number:04d}", study="s", number=number, params=params, created_at=0.0, notes=notes,
        state=TrialState.COMPLETED if done else TrialState.RUNNING, value=value,
        values={1: value} if done else {},
    )  # fmt: skip


def complete(params):
    """Return True if ``params`` has exactly the expected parameters."""
    names = {"layers", "optimizer"}
    names |= {"width"} if params["layers"] == 2 else set()
    names |= {"momentum", "nesterov"} if params["optimizer"] == "sgd" else set()
    return set(params) == names | ({"decay"} if params.get("nesterov") else set())


def test_a_grid_has_each_combination_that_can_be_and_no_other():
    seen, exhausted, _ = SamplerHost().ask(spec("grid"), 0, 500, [])
    # adam: 1 + 3 widths. sgd: as many times 2 momenta times (3 decays with nesterov, 1 without).
    assert len(seen) == len(set(seen)) == 4 + 4 * 2 * 4
    assert grid_size(parse_space(SPACE), parse_conditions(SPACE)) == len(seen)
    assert exhausted and all(complete(dict(params)) for params in seen)
    assert seen[0] == (("layers", 1), ("optimizer", "adam"))
    long = {"a": ["x", "y"], "n": Int(0, 10**9, when={"a": "y"}), "m": Int(0, 10**9)}
    assert grid_size(parse_space(long), parse_conditions(long)) == (10**9 + 1) * (10**9 + 2)


@pytest.mark.parametrize("sampler", ["random", "qmc"])
def test_an_order_free_sampler_gives_one_table_however_the_asks_are_cut(sampler):
    whole, *_ = SamplerHost().ask(spec(sampler), 0, 40, [])
    assert all(complete(dict(params)) for params in whole)
    first, *_ = SamplerHost().ask(spec(sampler), 0, 15, [])
    trials = [trial(k, params) for k, params in enumerate(first)]
    rest, *_ = SamplerHost().ask(spec(sampler), 1, 25, trials)
    assert first + rest == whole
    always = {name: given for name, given in SPACE.items() if name in ("layers", "optimizer")}
    if sampler == "random":  # what is left out is drawn all the same: it shifts nobody
        plain, *_ = SamplerHost().ask(spec(sampler, always), 0, 40, [])
        assert [p[:2] for p in plain] == [p[:2] for p in whole]


@pytest.mark.parametrize("sampler", ["tpe", "bohb", "nsga2"])
def test_what_learns_draws_what_is_there_and_learns_within_the_branch(sampler):
    space = {
        "kind": ["a", "b"],
        "x": Float(-10, 10, when={"kind": "a"}),
        "y": Float(-10, 10, when={"kind": "b"}),
    }
    options = '{"population_size": 10, "mutation_prob": 0.2}' if sampler == "nsga2" else "{}"
    made = spec(sampler, space, sampler_options=options)
    host, trials = SamplerHost(), []
    for index in range(30):
        answer = host.ask(made, index, 2, trials)
        for k, params in enumerate(answer.trials):
            given = dict(params)
            assert list(given) == ["kind", "x" if given["kind"] == "a" else "y"]
            value = abs(given["x"] - 4) if "x" in given else 20.0 + abs(given["y"])
            notes = answer.notes[k] if answer.notes else ""
            trials.append(trial(len(trials), params, value, notes))
    late = [dict(t.params) for t in trials[30:]]
    assert sum(params["kind"] == "a" for params in late) > 20
    if sampler == "tpe":
        errors = sorted(abs(params["x"] - 4) for params in late if "x" in params)
        assert errors[len(errors) // 2] < 3.0, "an even draw is 5.8 from 4 on average"


def test_enqueued_values_settle_what_is_there():
    space, conditions = parse_space(SPACE), parse_conditions(SPACE)
    wish = check_params(space, {"optimizer": "sgd", "momentum": 0.5}, conditions)
    for sampler in ("grid", "random", "tpe"):
        [params], *_ = SamplerHost().ask(spec(sampler), 0, 1, [], [wish])
        given = dict(params)
        assert (given["optimizer"], given["momentum"]) == ("sgd", 0.5)
        assert complete(given)
    for params in ({"momentum": 0.5}, {"optimizer": "adam", "momentum": 0.5}):
        with pytest.raises(UsageError, match=r"nothing unless optimizer = 'sgd' is given with it"):
            check_params(space, params, conditions)


def test_a_child_of_what_is_not_there_is_not_there_either():
    conditions = parse_conditions(SPACE)
    for layers, optimizer, nesterov in itertools.product([1, 2], ["adam", "sgd"], [True, False]):
        whole = {
            "layers": layers, "optimizer": optimizer, "width": 1, "momentum": 0.5,
            "nesterov": nesterov, "decay": 0.5,
        }  # fmt: skip
        assert complete(without_inactive(whole, conditions))


@pytest.mark.parametrize(
    ("when", "field", "words"),
    [
        ({"x": 1}, "space['b'].when = 'x'", "a list of choices above it: a"),
        ({"c": 1}, "space['b'].when = 'c'", "above it: a"),
        ({"a": 3}, "space['b'].when['a'] = 3", "one or several of [1, 2]"),
        ({"a": [1, 3]}, "space['b'].when['a'] = 3", "one or several of [1, 2]"),
        ({"a": []}, "space['b'].when['a'] = []", "one or several of [1, 2]"),
        ({}, "space['b'].when = {}", "a mapping of a parameter's name"),
        ("a == 1", "space['b'].when = 'a == 1'", "a mapping of a parameter's name"),
    ],
)
def test_a_condition_that_cannot_be_is_refused(when, field, words):
    space = {"a": [1, 2], "b": Float(0, 1, when=when), "c": [1]}
    with pytest.raises(UsageError) as refusal:
        parse_conditions(space)
    assert field in str(refusal.value)
    assert words in str(refusal.value)


def test_a_condition_on_what_comes_below_says_that_nothing_is_above():
    with pytest.raises(UsageError, match="a list of choices above it: there is none"):
        parse_conditions({"b": Float(0, 1, when={"a": 1}), "a": [1, 2]})
