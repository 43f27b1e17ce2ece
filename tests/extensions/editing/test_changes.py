"""Studies after edits: what changes, in words, and what cannot be changed."""

from __future__ import annotations

import json

import pytest
from penstock import Categorical, Float, Int, UsageError
from penstock.app.spec.conditions import parse_conditions
from penstock.app.spec.space import parameter, parse_space
from penstock.extensions.editing.changes import edited, form_of
from penstock.scheduler.model.study import Edits, StrategySpec, StudySpec, SuperNet
from worlds.drive_world import spec

OF_SUPERNET = StrategySpec("full", max_epochs=1, supernet=SuperNet("t", "u", "h", 1))
SPACE = {
    "lr": Float(0.001, 0.1, log=True),
    "hidden": Int(8, 64, step=8),
    "optimizer": ["sgd", "adam", "rmsprop"],
    "momentum": Float(0.8, 0.99, when={"optimizer": "sgd"}),
}


def study(**fields) -> StudySpec:
    space = parse_space(SPACE)
    return spec(space=space, conditions=parse_conditions(SPACE), sampler="tpe", **fields)


def edit(given=(), assumed=(), of=None, **settings):
    forms = {name: form_of(name, each) for name, each in dict(given).items()}
    return edited(of or study(), forms, dict(assumed), settings)


def ranges(found):
    return {name: str(parameter(text)) for name, text in found.space}


@pytest.mark.parametrize(
    ("given", "after", "words"),
    [
        ({"lr": (1e-4, 0.01)}, "Float(0.0001, 0.01, log=True)", None),
        ({"lr": Float(1e-4, 0.01, log=True)}, "Float(0.0001, 0.01, log=True)", None),
        ({"hidden": (8, 128)}, "Int(8, 128, step=8)", None),
        ({"hidden": Int(8, 64, step=4)}, "Int(8, 64, step=4)", None),
        ({"lr": 0.02}, "Float(0.02, 0.02, log=True)", "fixed at 0.02"),
        ({"hidden": 16}, "Int(16, 16, step=8)", "fixed at 16"),
        ({"optimizer": "adam"}, "['adam']", None),
        ({"optimizer": ["adam", "lion"]}, "['adam', 'lion']", None),
    ],
)
def test_a_parameter_is_widened_narrowed_and_fixed(given, after, words):
    found, [change] = edit(given)
    [name] = given
    assert ranges(found)[name] == after
    assert (change.name, change.after) == (name, words or after)
    assert change.before == str(parameter(dict(parse_space(SPACE))[name]))
    assert found.edits.parameters == (name,)
    others = {each: text for each, text in ranges(study()).items() if each != name}
    assert {each: text for each, text in ranges(found).items() if each != name} == others


def test_a_fixed_parameter_is_free_again_on_the_scale_that_it_had():
    fixed, _ = edit({"lr": 0.02, "hidden": 16})
    freed, changes = edit({"lr": (1e-3, 0.1), "hidden": (8, 64)}, of=fixed)
    assert ranges(freed) == ranges(study())
    assert [each.before for each in changes] == ["fixed at 0.02", "fixed at 16"]


def test_a_parameter_is_added_with_the_value_that_earlier_trials_had():
    found, [change] = edit({"dropout": (0.0, 0.5)}, {"dropout": 0.1})
    assert ranges(found)["dropout"] == "Float(0.0, 0.5)"
    assert found.edits == Edits(parameters=("dropout",), assumed=(("dropout", 0.1),))
    assert change.after == "Float(0.0, 0.5); 0.1 in earlier trials"
    again, _ = edit({"layers": (1, 4), "act": ["relu"]}, {"layers": 2, "act": "relu"}, of=found)
    assert ranges(again)["layers"] == "Int(1, 4)"
    assert again.edits.assumed == (("dropout", 0.1), ("layers", 2), ("act", "relu"))


def test_what_a_parameter_was_before_is_kept():
    first, _ = edit({"optimizer": ["adam", "lion"], "lr": 0.02})
    second, _ = edit({"optimizer": ["lion", "sgd"]}, of=first)
    spaces = [dict(each.space) for each in (study(), first)]
    assert second.edits.past == (
        ("optimizer", tuple(each["optimizer"] for each in spaces)),
        ("lr", (spaces[0]["lr"],)),
    )


def test_limits_weight_and_retries_change_and_a_limit_is_taken_away():
    found, changes = edit(of=study(kwh=2.0), device_hours=4, kwh=None, weight=2, retries=1)
    assert (found.device_hours, found.kwh, found.weight, found.retries) == (4.0, None, 2.0, 1)
    assert [tuple(each) for each in changes] == [
        ("device_hours", "none", "4"),
        ("kwh", "2", "none"),
        ("weight", "1", "2"),
        ("retries", "0", "1"),
    ]
    assert found.edits.fields == ("device_hours", "kwh", "weight", "retries")


@pytest.mark.parametrize(
    "plan",
    [
        StrategySpec("full", max_epochs=3),
        StrategySpec("asha", max_epochs=9),
        StrategySpec("median", max_epochs=5),
        StrategySpec("curve", max_epochs=5),
    ],
    ids=lambda plan: plan.name,
)
def test_a_study_has_more_epochs(plan):
    found, [change] = edit(of=study(strategy=plan), max_epochs=27)
    assert found.strategy.max_epochs == 27
    assert (change.name, change.after) == ("max_epochs", "27")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"given": {"lr": Float(0.001, 0.1)}}, "a Float as before, log=True"),
        ({"given": {"hidden": Float(8, 64)}}, "an? Int as before"),
        ({"given": {"hidden": [8, 16]}}, "an? Int as before"),
        ({"given": {"lr": -1.0}}, "more than 0, because its range is log"),
        ({"given": {"lr": "fast"}}, "a finite number"),
        ({"given": {"hidden": 8.5}}, "a whole number"),
        ({"given": {"lr": (0.1, 0.01)}}, "Float.high"),
        ({"given": {"optimizer": (1, 2)}}, "a list of choices"),
        ({"given": {"optimizer": "lion"}}, "one of .*to fix it"),
        ({"given": {"optimizer": []}}, "at least one value"),
        ({"given": {"dropout": (0.0, 0.5)}}, "dropout is a new parameter: say which value"),
        ({"given": {"dropout": 0.1}, "assumed": {"dropout": 0.1}}, "give its range"),
        ({"given": {"lr@6": (0.0, 1.0)}, "assumed": {"lr@6": 0.1}}, "a piece of a Steps"),
        ({"given": {"a": ["x"]}, "assumed": {"a": "y"}}, r"one of \['x'\]"),
        ({"given": {"n": (1, 3)}, "assumed": {"n": 1.5}}, "a whole number"),
        (
            {"given": {"lr": (1e-4, 0.1)}, "assumed": {"lr": 0.1}},
            "of a parameter that this edit adds",
        ),
        ({"assumed": {"dropout": 0.1}}, "of a parameter that this edit adds"),
        ({"given": {"lr": (0.001, 0.1)}}, "nothing of s would change"),
        ({}, "nothing of s would change"),
        ({"max_epochs": 3}, "nothing of s would change"),
        ({"max_epochs": 2}, "more than 3"),
        ({"weight": 0}, "weight"),
        ({"deadline": "tomorrow"}, "ISO 8601"),
        ({"at_limit": "explode"}, "stop, pause, finish_best"),
        ({"seed": 3}, "one of max_epochs, device_hours"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(given, words):
    with pytest.raises(UsageError, match=words):
        edit(**given)


@pytest.mark.parametrize(
    ("of", "given", "words"),
    [
        ({"contract": "ask"}, {"weight": 2}, "trained by its own script"),
        ({"space": None}, {"given": {"lr": 0.1}}, "says its parameters .* as it runs"),
        ({"sampler": "own"}, {"given": {"lr": 0.01}}, "a sampler of its user's own"),
        ({"strategy": StrategySpec("pbt", 8)}, {"given": {"lr": 0.01}}, "is a population"),
        ({"strategy": StrategySpec("pbt", 8)}, {"max_epochs": 16}, "pbt plans its rungs"),
        ({"strategy": StrategySpec("halving", 8)}, {"max_epochs": 16}, "make a new study, or"),
        ({"strategy": StrategySpec("asha", 10)}, {"max_epochs": 30}, "1, 3, 9, 27, 30, so that"),
        ({"strategy": StrategySpec("full", None)}, {"max_epochs": 5}, "says itself how long"),
        ({"contract": "objective"}, {"max_epochs": 5}, "says itself how long"),
        ({"strategy": OF_SUPERNET}, {"max_epochs": 5}, "an evaluation by its super-net"),
        ({"strategy": OF_SUPERNET}, {"given": {"lr": 0.01}}, "the models of its super-net"),
    ],
)
def test_studies_that_cannot_be_edited_so_say_why(of, given, words):
    fields = {"space": parse_space(SPACE), "sampler": "tpe", **of}
    with pytest.raises(UsageError, match=words):
        edit(of=spec(**fields), **given)


def test_a_form_that_is_no_distribution_of_ours_is_refused():
    for text in ("{}", "not json", json.dumps({"name": "Other", "attributes": {}})):
        with pytest.raises(UsageError, match="a distribution"):
            edited(study(), {"lr": text}, {}, {})
    with pytest.raises(UsageError, match="the condition of a parameter"):
        form_of("momentum", Float(0.8, 0.9, when={"optimizer": "sgd"}))
    assert form_of("a", Categorical([1, 2])) == parse_space({"a": [1, 2]})[0][1]
