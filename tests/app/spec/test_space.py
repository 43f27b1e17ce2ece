"""The search space: what is accepted, what is refused and with which words."""

import json
import math

import optuna
import pytest
from penstock.app.spec.space import Categorical, Float, Int, check_params, grid_values, parse_space
from penstock.base.errors import UsageError

REFUSED = [
    ("an empty range", lambda: Float(1, 1), "Float.high", "above low"),
    ("an inverted range", lambda: Float(2, 1), "Float.high", "above low"),
    ("an inverted whole range", lambda: Int(5, 4), "Int.high", "above low"),
    ("an empty whole range", lambda: Int(5, 5), "Int.high", "above low"),
    ("log of zero", lambda: Float(0, 1, log=True), "Float.low", "above 0"),
    ("log of a negative", lambda: Float(-1, 1, log=True), "Float.low", "above 0"),
    ("whole log of zero", lambda: Int(0, 9, log=True), "Int.low", ">= 1"),
    ("a log that is a word", lambda: Float(1, 2, log="yes"), "Float.log", "True or False"),
    ("not a number", lambda: Float(math.nan, 1), "Float.low", "finite"),
    ("infinity", lambda: Float(0, math.inf), "Float.high", "finite"),
    ("a word for a number", lambda: Float("0", 1), "Float.low", "finite"),
    ("a boolean for a number", lambda: Float(False, 1), "Float.low", "finite"),
    ("a float for a whole number", lambda: Int(1.5, 3), "Int.low", "whole number"),
    ("a boolean for a whole number", lambda: Int(1, True), "Int.high", "whole number"),
    ("a step wider than the range", lambda: Float(0, 1, step=2), "Float.step", "at most"),
    ("a step of zero", lambda: Float(0, 1, step=0), "Float.step", "above 0"),
    ("a step with log", lambda: Float(1, 2, log=True, step=0.5), "Float.step", "log"),
    ("a whole step too wide", lambda: Int(0, 3, step=4), "Int.step", "1 to high - low = 3"),
    ("a whole step of zero", lambda: Int(0, 3, step=0), "Int.step", "1 to"),
    ("a whole step with log", lambda: Int(1, 9, log=True, step=2), "Int.step", "log"),
    ("no choices", lambda: Categorical([]), "choices", "at least one"),
    ("a word for choices", lambda: Categorical("abc"), "choices", "a list"),
    ("equal choices", lambda: Categorical(["a", "a"]), "choices[1]", "once"),
    ("choices equal as numbers", lambda: Categorical([1, True]), "choices[1]", "once"),
    ("a choice that JSON cannot carry", lambda: Categorical([{}]), "choices[0]", "a string"),
    ("a choice that is no number", lambda: Categorical([math.nan]), "choices[0]", "finite"),
    ("no parameters", lambda: parse_space({}), "space", "at least one name"),
    ("a list for a space", lambda: parse_space(["lr"]), "space", "a mapping"),
    ("an empty name", lambda: parse_space({"": [1]}), "name", "not empty"),
    ("a bare constant", lambda: parse_space({"lr": 0.1}), "space['lr']", "[0.1]"),
    ("an empty list", lambda: parse_space({"lr": []}), "choices", "at least one"),
]


@pytest.mark.parametrize(("make", "field", "allowed"), [row[1:] for row in REFUSED],
                         ids=[row[0] for row in REFUSED])  # fmt: skip
def test_what_cannot_be_searched_is_refused_with_field_and_allowed_range(make, field, allowed):
    with pytest.raises(UsageError) as refusal:
        make()
    assert field in str(refusal.value)
    assert allowed in str(refusal.value)


@pytest.mark.parametrize(
    ("ours", "optunas"),
    [
        (Float(0, 1), optuna.distributions.FloatDistribution(0, 1)),
        (Float(1e-5, 1, log=True), optuna.distributions.FloatDistribution(1e-5, 1, log=True)),
        (Float(0.1, 0.9, step=0.2), optuna.distributions.FloatDistribution(0.1, 0.9, step=0.2)),
        (Int(1, 9, step=2), optuna.distributions.IntDistribution(1, 9, step=2)),
        (Int(1, 64, log=True), optuna.distributions.IntDistribution(1, 64, log=True)),
        (Categorical(["a", 1, None]), optuna.distributions.CategoricalDistribution(["a", 1, None])),
    ],
)
def test_a_parameter_is_written_as_the_optuna_distribution_it_means(ours, optunas):
    assert optuna.distributions.json_to_distribution(ours.to_json()) == optunas
    assert parse_space({"x": optunas}) == parse_space({"x": ours})


def test_a_step_that_does_not_divide_the_range_lowers_its_end():
    assert Float(0.1, 0.95, step=0.1).high == 0.9


def test_a_step_as_wide_as_the_range_is_taken_also_where_binary_makes_the_range_narrower():
    assert 0.3 - 0.1 < 0.2
    assert Float(0.1, 0.3, step=0.2).high == 0.3
    assert Int(0, 10, step=3).high == 9


def test_optunas_constant_and_a_list_are_choices():
    space = {"a": optuna.distributions.FloatDistribution(2, 2), "b": [1, 2]}
    texts = dict(parse_space(space))
    assert json.loads(texts["a"])["attributes"] == {"choices": [2.0]}
    assert json.loads(texts["b"])["attributes"] == {"choices": [1, 2]}


def test_a_grid_counts_every_value_without_rounding_noise():
    assert grid_values("x", Float(0.1, 0.5, step=0.1).to_json()) == [0.1, 0.2, 0.3, 0.4, 0.5]
    assert list(grid_values("n", Int(2, 9, step=3).to_json())) == [2, 5, 8]
    with pytest.raises(UsageError, match=r"space\['x'\].*a step"):
        grid_values("x", Float(0, 1).to_json())


def test_a_users_configuration_is_checked_and_put_in_the_order_of_the_space():
    space = parse_space({"lr": Float(0, 1), "n": Int(1, 9, step=2), "act": ["relu", "tanh"]})
    assert check_params(space, {"act": "tanh", "lr": 1}) == (("lr", 1.0), ("act", "tanh"))
    for params, why in [
        ({"nr": 1}, "one of lr, n, act"),
        ({"lr": 2}, "0.0 to 1.0"),
        ({"n": 2}, "multiple of 2"),
        ({"n": 3.5}, "whole number"),
        ({"act": "elu"}, "one of"),
        ({"act": []}, "one of"),
        ([1], "a mapping"),
    ]:
        with pytest.raises(UsageError, match=why):
            check_params(space, params)


def test_without_a_space_any_name_with_a_plain_value_may_be_enqueued():
    assert check_params(None, {"x": 1.5}) == (("x", 1.5),)
    with pytest.raises(UsageError, match="a string, a number"):
        check_params(None, {"x": object()})


def test_a_pair_of_numbers_is_no_list_of_choices():
    """Elsewhere (low, high) means a range, so the error asks which of the two is meant."""
    with pytest.raises(UsageError, match=r"Float\(0, 1\) for a range, or the list \[0, 1\]"):
        parse_space({"x": (0, 1)})
    assert parse_space({"x": ("a", "b")}) == parse_space({"x": ["a", "b"]})


@pytest.mark.parametrize("bad", ["a\x1b[31m", "a\ud800", "a\x00"])
def test_names_and_choices_without_controls_and_halves_of_characters(bad):
    with pytest.raises(UsageError, match=r"a name in space = .* printable"):
        parse_space({bad: Float(0, 1)})
    with pytest.raises(UsageError, match=r"a choice in space\['x'\] = .* control"):
        parse_space({"x": [bad, "b"]})
    assert parse_space({"größe 👍": ["a\tb\nc", "é"]})
