"""``Steps`` in a space: which parameters it stands for, and where it is refused."""

from __future__ import annotations

import itertools

import penstock
import pytest
from penstock import Categorical, Float, Int, Steps
from penstock.app.server.optuna_bridge.samplers import SamplerHost
from penstock.app.server.sampling.explore import explored
from penstock.app.spec.build import make_plan, make_spec
from penstock.app.spec.space import check_params
from penstock.base.errors import UsageError
from user_code.trainees import Small


@penstock.epoch_function
def function(trial):
    pass


def objective(trial):
    return trial.suggest_float("lr", 0, 1)


def spec(space, code=Small, n_trials=None, **plan):
    plan = {"metric": "loss", "strategy": penstock.ASHA(max_epochs=27), "sampler": "grid"} | plan
    return make_spec(make_plan(**plan), "s", "s", code, space, n_trials)


def parameters(spec):
    return dict(spec.space)


LR = {0: [0.1, 0.05], 6: Float(0.001, 0.01, step=0.001), 12: Int(1, 3)}


@pytest.mark.parametrize("code", [Small, function])
def test_steps_are_a_parameter_for_each_piece_in_the_order_of_epochs(code):
    pieces = {12: LR[12], 0: LR[0], 6: LR[6]}
    made = spec({"a": [1], "lr": Steps(pieces), "b": [2]}, code)
    assert [name for name, _ in made.space] == ["a", "lr", "lr@6", "lr@12", "b"]
    plain = spec({"a": [1], "lr": LR[0], "b": LR[6], "c": LR[12]}, code)
    assert list(parameters(made).values())[1:4] == list(parameters(plain).values())[1:]


def test_a_grid_has_all_combinations_of_pieces():
    three = [0.1, 0.01, 0.001]
    made = spec({"lr": Steps({0: three, 6: three, 12: three})})
    assert made.n_trials == 27
    drawn, exhausted, _ = SamplerHost().ask(made, 0, 50, [])
    assert exhausted
    names = ("lr", "lr@6", "lr@12")
    assert [tuple(dict(each)[name] for name in names) for each in drawn] == list(
        itertools.product(three, three, three)
    )


@pytest.mark.parametrize("sampler", ["random", "qmc", "tpe", "gp", "cmaes", "nsga2"])
def test_every_sampler_draws_pieces(sampler):
    made = spec({"lr": Steps(LR), "x": Float(0, 1)}, sampler=sampler, n_trials=9)
    for params in SamplerHost().ask(made, 0, 3, [])[0]:
        assert check_params(made.space, dict(params)) == params
        assert [name for name, _ in params] == ["lr", "lr@6", "lr@12", "x"]


def test_a_condition_holds_for_all_pieces():
    space = {"kind": ["sgd", "adam"], "lr": Steps({0: [1, 2], 3: [3, 4]}, when={"kind": "sgd"})}
    made = spec(space)
    assert {each.name for each in made.conditions} == {"lr", "lr@3"}
    assert made.n_trials == 5, "four with sgd, one with adam"
    with pytest.raises(UsageError, match=r"lr@3.*nothing unless kind = 'sgd'"):
        check_params(made.space, {"kind": "adam", "lr@3": 3}, made.conditions)


def test_a_configuration_of_the_users_names_pieces():
    made = spec({"lr": Steps(LR)}, sampler="tpe", n_trials=3)
    assert check_params(made.space, {"lr@12": 2, "lr": 0.05}) == (("lr", 0.05), ("lr@12", 2))
    with pytest.raises(UsageError, match=r"params\['lr@12'\] = 9 is refused: allowed is 1 to 3"):
        check_params(made.space, {"lr@12": 9})


def test_pbt_explores_all_pieces_of_a_name():
    strategy = penstock.PBT(max_epochs=27, explore=["lr"], resample=0.0)
    pieces = Steps({0: Float(0, 1), 6: Float(0, 1)})
    made = spec({"lr": pieces, "x": Float(0, 1)}, strategy=strategy, sampler="random", n_trials=4)
    source = (("lr", 0.5), ("lr@6", 0.25), ("x", 0.5))
    found = dict(explored(made, 9, source, dict.fromkeys(dict(source), 0.0)))
    assert found["lr"] in (0.4, 0.6)
    assert found["lr@6"] in (0.2, 0.3)
    assert found["x"] == 0.5


REFUSED = [
    ("no mapping", lambda: Steps([0.1]), "Steps = ", "a mapping of epochs to parameters"),
    ("nothing", lambda: Steps({}), "the keys of Steps = []", "0 among them"),
    ("no start", lambda: Steps({6: [1]}), "the keys of Steps = [6]", "0 among them"),
    ("before the start", lambda: Steps({0: [1], -1: [1]}), "a key of Steps = -1", ">= 0"),
    ("half an epoch", lambda: Steps({0: [1], 0.5: [1]}), "a key of Steps = 0.5", "whole number"),
    ("a word", lambda: Steps({0: [1], "6": [1]}), "a key of Steps = '6'", "whole number"),
    ("a boolean", lambda: Steps({0: [1], True: [1]}), "a key of Steps = True", "whole number"),
    ("a bare constant", lambda: Steps({0: [1], 6: 0.1}), "Steps[6] = 0.1", "constant: [0.1]"),
    ("steps in steps", lambda: Steps({0: Steps({0: [1]})}), "Steps[0] = ", "Float, Int"),
    (
        "a condition of one piece",
        lambda: Steps({0: [1], 6: Categorical([1], when={"a": 1})}),
        "Steps[6].when",
        "Steps({...}, when=...)",
    ),
    ("a marked name", lambda: spec({"l@r": Steps({0: [1]})}), "name in space = 'l@r'", "without @"),
    (
        "a piece by hand",
        lambda: spec({"lr": [1], "lr@6": [2]}),
        "name in space = 'lr@6'",
        "a key of Steps({...})",
    ),
    (
        "a piece by hand beside Steps",
        lambda: spec({"lr@6": [2], "lr": Steps({0: [1], 6: [1]})}),
        "name in space = 'lr@6'",
        "a key of Steps({...})",
    ),
    (
        "after the last epoch",
        lambda: spec({"lr": Steps({0: [1], 27: [2]})}),
        "a key of space['lr'] = 27",
        "0 to 26: trials have 27 epochs",
    ),
    (
        "the batch size",
        lambda: spec({"batch_size": Steps({0: [8], 6: [16]})}),
        "space['batch_size']",
        "one batch size",
    ),
    (
        "an objective",
        lambda: spec({"lr": Steps({0: [1]})}, objective, sampler="tpe", n_trials=2),
        "space['lr']",
        "no Steps for an objective",
    ),
]


@pytest.mark.parametrize(("make", "field", "allowed"), [row[1:] for row in REFUSED],
                         ids=[row[0] for row in REFUSED])  # fmt: skip
def test_what_cannot_be_is_refused_with_field_and_allowed_range(make, field, allowed):
    with pytest.raises(UsageError) as refusal:
        make()
    assert field in str(refusal.value)
    assert allowed in str(refusal.value)


def test_an_objective_may_have_any_name_as_in_optuna():
    made = spec({"lr": [1], "lr@6": [2]}, objective, sampler="random", n_trials=1)
    assert [name for name, _ in made.space] == ["lr", "lr@6"]


def test_in_a_refusal_it_stands_as_it_is_written():
    steps = Steps({0: [0.1, 0.05], 6: Float(0.001, 0.01, log=True)})
    assert repr(steps) == "Steps({0: [0.1, 0.05], 6: Float(0.001, 0.01, log=True)})"
    with pytest.raises(
        UsageError, match=r"= Steps\(\{0: \[0\.1, 0\.05\], 6: Float\(0\.001, 0\.01, log"
    ):
        spec({"batch_size": steps})
