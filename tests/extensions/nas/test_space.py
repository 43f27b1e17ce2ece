"""The choices of a model as a space: what the dry run finds, under which conditions, how many."""

from __future__ import annotations

import subprocess
import sys
from itertools import product

import pytest
import torch
from penstock import Float, Steps, UsageError, nas
from penstock.app.spec.conditions import parse_conditions, without_inactive
from penstock.app.spec.space import parse_space
from torch import nn


def model(ask):
    """A class of model that makes the choices that ``ask`` does."""

    class Asking(nas.ModelSpace):
        def __init__(self, **arguments):
            super().__init__()
            self.part = ask(**arguments)

    return Asking


def whens(space):
    return {label: each.when for label, each in space.items()}


def choices_in(label, *, of):
    """A function that makes the module of a candidate with a choice of its own."""

    def make():
        nas.choice(label, of)
        return nn.Identity()

    return make


def nested():
    inner = {"x": choices_in("deep", of=[1, 2]), "y": nn.Identity}
    outer = {"a": lambda: nas.LayerChoice(inner, label="inner"), "b": choices_in("b", of=[3, 4, 5])}
    return nas.LayerChoice(outer, label="outer")


def test_choices_in_candidates_depend_on_them_however_deep():
    space = nas.space(model(nested))
    assert whens(space) == {
        "outer": None, "inner": {"outer": ["a"]}, "deep": {"inner": ["x"]}, "b": {"outer": ["b"]},
    }  # fmt: skip
    assert nas.size(space) == (2 + 1) + 3


def test_a_block_and_its_choices_are_there_where_the_depth_is_large_enough():
    def ask():
        return nas.Repeat(lambda at: choices_in(f"k{at}", of=[3, 5])(), (1, 3), "depth")

    space = nas.space(model(ask))
    assert whens(space) == {
        "depth": None,
        "k0": None,
        "k1": {"depth": [2, 3]},
        "k2": {"depth": [3]},
    }
    assert nas.size(space) == 2 + 4 + 8
    schedule = Steps({0: [0.1, 0.01], 3: [0.01]}, when={"depth": [1, 2]})
    assert nas.size(space | {"lr": schedule}) == 2 * (2 + 4) + 8


def test_a_choice_reached_on_several_ways_is_there_on_each_of_them():
    def ask():
        candidates = {name: choices_in("width", of=[1, 2]) for name in "ab"}
        return nas.LayerChoice(candidates | {"c": nn.Identity}, label="op")

    assert whens(nas.space(model(ask))) == {"op": None, "width": {"op": ["a", "b"]}}


def test_what_python_decides_by_a_value_is_found_however_long_the_chain():
    def ask():
        if nas.choice("se", [False, True]):
            ratio = nas.choice("ratio", [2, 4, 8])
            if ratio == 8 and nas.choice("act", ["relu", "gelu"]) == "gelu":
                nas.choice("tanh", [True, False])
        for at in range(nas.choice("depth", [1, 2, 3])):
            nas.choice(f"k{at}", [3, 5])

    space = nas.space(model(ask))
    assert whens(space) == {
        "se": None, "depth": None, "k0": None, "ratio": {"se": [True]}, "act": {"ratio": [8]},
        "tanh": {"act": ["gelu"]}, "k1": {"depth": [2, 3]}, "k2": {"depth": [3]},
    }  # fmt: skip
    assert nas.size(space) == (1 + 2 + (1 + 2)) * (2 + 4 + 8)


def test_a_value_may_decide_within_a_candidate():
    def gated():
        if nas.choice("gate", [0, 1, 2]):
            nas.choice("bias", [True, False])
        return nn.Identity()

    def ask():
        return nas.LayerChoice({"gated": gated, "plain": nn.Identity}, label="op")

    assert whens(nas.space(model(ask))) == {
        "op": None, "gate": {"op": ["gated"]}, "bias": {"gate": [1, 2]},
    }  # fmt: skip


def either():
    if nas.choice("a", [0, 1]) == 1 or nas.choice("b", [0, 1, 2]) == 2:
        nas.choice("c", [0, 1])


def both():
    if (nas.choice("a", [0, 1]), nas.choice("b", [0, 1, 2])) == (1, 2):
        nas.choice("c", [0, 1])


def unless():
    kind = nas.choice("kind", ["x", "y", "z"])
    nas.choice("late" if kind == "y" else "early", [1, 2])
    return nas.Repeat(lambda at: choices_in(f"{kind}{at}", of=[1, 2])(), (0, 2), "n")


@pytest.mark.parametrize("ask", [nested, either, both, unless])
def test_every_configuration_of_the_space_can_be_built(ask):
    space = nas.space(model(ask))
    conditions = parse_conditions(space)
    for values in product(*(each.choices for each in space.values())):
        params = without_inactive(dict(zip(space, values, strict=True)), conditions)
        built = nas.build(model(ask), params)  # refuses what params lacks
        assert built.architecture.items() <= params.items()


def test_one_of_two_conditions_is_covered_by_none():
    assert whens(nas.space(model(either)))["c"] is None  # `b` is asked for only where a is 0
    assert whens(nas.space(model(both)))["c"] == {"a": [1], "b": [2]}


@pytest.mark.parametrize("pair", [*product(range(3), range(3))])
def test_two_values_that_matter_only_together_are_found(pair):
    def ask():
        if (nas.choice("a", [0, 1, 2]), nas.choice("b", [0, 1, 2])) == pair:
            nas.choice("c", [0, 1])

    assert whens(nas.space(model(ask)))["c"] == {"a": [pair[0]], "b": [pair[1]]}


def test_code_sees_one_candidate_alone_while_its_choices_are_found():
    def ask():
        layer = nas.LayerChoice([nn.ReLU, choices_in("deep", of=[1, 2])], label="op")
        blocks = nas.Repeat(lambda _: nn.ReLU(), (0, 3), "depth")
        assert [*layer.children()] == [layer.chosen]
        nas.choice("places", ["first", "last"])  # seen, so there are many walks
        lengths.add(len(blocks))

    lengths = set()
    assert whens(nas.space(model(ask)))["deep"] == {"op": [1]}
    assert lengths == {0, 1, 2, 3}


def test_a_dry_run_takes_as_many_walks_as_there_are_values_and_not_their_product():
    def ask():
        walks.append(None)
        for at in range(nas.choice("depth", list(range(9)))):
            nas.choice(f"kernel{at}", [3, 5, 7])
            nas.choice(f"width{at}", [1, 2, 3])

    walks = []
    space = nas.space(model(ask))
    assert whens(space)["width7"] == {"depth": [8]}
    assert len(space) == 1 + 2 * 8
    assert len(walks) < 250


def test_candidates_that_differ_with_another_value_are_refused():
    def ask():
        nas.choice("heads", [nas.choice("width", [16, 32]) // 8, 1])

    with pytest.raises(UsageError, match="the candidates of 'heads'"):
        nas.space(model(ask))


def test_arguments_go_to_the_class():
    space = nas.space(model(lambda most: nas.choice("n", list(range(most)))), most=4)
    assert space["n"].choices == (0, 1, 2, 3)


def test_a_space_of_choices_is_joined_with_hyperparameters():
    space = nas.space(model(nested)) | {"lr": Float(1e-4, 1e-1, log=True, when={"outer": "a"})}
    assert [name for name, _ in parse_space(space)] == ["outer", "inner", "deep", "b", "lr"]
    assert {each.name for each in parse_conditions(space)} == {"inner", "deep", "b", "lr"}
    with pytest.raises(UsageError, match="'grid'"):
        nas.size(space)


def test_a_dry_run_takes_no_memory_for_weights():
    def ask():
        nas.choice("n", [1, 2])
        return nn.Linear(10**6, 10**6)  # 4 TB

    assert list(nas.space(model(ask))) == ["n"]


def test_a_model_that_reads_its_tensors_is_run_with_values():
    def ask():
        rates = torch.linspace(0, 1, 3)
        return nas.choice("rate", [rate.item() for rate in rates])

    assert nas.space(model(ask))["rate"].choices == (0.0, 0.5, 1.0)


def test_a_dry_run_leaves_no_trace_in_random_numbers():
    def ask():
        torch.linspace(0, 1, 3).tolist()  # needs the CPU, where weights draw
        nas.choice("n", [1, 2])
        return nn.Linear(3, 3)

    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    nas.space(model(ask))
    assert torch.equal(torch.rand(1), expected)


def test_the_error_of_a_candidate_says_which_one_it_was():
    def ask():
        return nas.LayerChoice({"good": nn.Identity, "bad": lambda: 1 / 0}, label="op")

    with pytest.raises(ZeroDivisionError) as caught:
        nas.space(model(ask))
    assert caught.value.__notes__ == ["in candidate 'bad' of 'op'"]


def test_a_model_without_choices_and_candidates_that_no_space_holds_are_refused():
    with pytest.raises(UsageError, match="makes choices in __init__"):
        nas.space(model(lambda: None))
    with pytest.raises(UsageError, match=r"Categorical.choices\[0\]"):
        nas.space(model(lambda: nas.choice("k", [(3, 3), (5, 5)])))


def test_nas_is_imported_without_torch_until_a_name_is_used():
    program = (
        "import sys; from penstock import nas; assert 'torch' not in sys.modules;"
        "assert nas.ValueChoice is nas.choice and 'torch' not in sys.modules;"
        "nas.ModelSpace; assert 'torch' in sys.modules"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("name", nas.__all__)
def test_each_name_of_nas_is_there_and_says_what_it_is(name):
    assert getattr(nas, name).__doc__


def test_an_unknown_name_of_nas_is_an_ordinary_error():
    with pytest.raises(AttributeError, match="no attribute 'ValueChoise'"):
        _ = nas.ValueChoise
