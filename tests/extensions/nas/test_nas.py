"""Models with choices: what is built of a configuration, and what is refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from penstock import UsageError, nas
from torch import nn

#: The layers that were made.
MADE = []


class Net(nas.ModelSpace):
    """A choice of a value, a depth and layers."""

    def __init__(self, classes=10):
        super().__init__()
        width = nas.choice("width", [4, 8])
        self.stem = nn.Linear(3, width * 2)
        self.body = nas.Repeat(lambda place: self.block(place, width * 2), (1, 3), "depth")
        self.head = nn.Linear(width * 2, classes)

    def block(self, place, width):
        def linear():
            MADE.append(f"linear{place}")
            return nn.Linear(width, width)

        return nas.LayerChoice({"linear": linear, "skip": nn.Identity()}, label=f"op{place}")

    def forward(self, x):
        return self.head(self.body(self.stem(x)))


PARAMS = {"width": 8, "depth": 2, "op0": "linear", "op1": "skip", "lr": 0.1}


def one(make, params):
    """Return the object that ``make`` makes in a model, under ``params``."""

    class Holder(nas.ModelSpace):
        def __init__(self):
            super().__init__()
            self.held = make()

    return nas.build(Holder, params).held


def test_a_model_has_what_was_chosen_and_names_that_say_so():
    net = nas.build(Net, PARAMS, classes=5)
    assert list(net.state_dict()) == [
        "stem.weight", "stem.bias", "body.0.linear.weight", "body.0.linear.bias",
        "head.weight", "head.bias",
    ]  # fmt: skip
    assert net.stem.weight.shape == (16, 3)
    assert net(torch.ones(2, 3)).shape == (2, 5)
    assert net.architecture == {"width": 8, "depth": 2, "op0": "linear", "op1": "skip"}


def test_what_is_not_chosen_is_never_made():
    MADE.clear()
    nas.build(Net, PARAMS | {"op0": "skip", "op1": "linear", "op2": "linear"})
    assert MADE == ["linear1"]  # op2 is beyond the depth


def test_its_weights_load_into_another_model_of_the_same_choices():
    one, other = nas.build(Net, PARAMS), nas.build(Net, PARAMS)
    other.load_state_dict(one.state_dict())
    assert torch.equal(one(torch.ones(1, 3)), other(torch.ones(1, 3)))


def test_the_model_is_plain_pytorch():
    net = nas.build(Net, PARAMS)
    traced = torch.fx.symbolic_trace(net)
    assert torch.equal(traced(torch.ones(2, 3)), net(torch.ones(2, 3)))


@pytest.mark.parametrize("absent", ["width", "depth", "op1"])
def test_a_choice_that_params_lack_is_refused_by_name(absent):
    params = {name: value for name, value in PARAMS.items() if name != absent}
    with pytest.raises(UsageError, match=f"params has no {absent!r}") as caught:
        nas.build(Net, params)
    assert caught.value.field == absent


def test_a_value_that_is_no_candidate_is_refused():
    with pytest.raises(UsageError, match=r"params\['width'\] = 5 .*one of \[4, 8\]"):
        nas.build(Net, PARAMS | {"width": 5})


def test_one_label_with_different_candidates_is_refused_by_name():
    class Two(nas.ModelSpace):
        def __init__(self):
            super().__init__()
            nas.choice("width", [1, 2])
            nas.choice("width", [1, 2, 3])

    with pytest.raises(UsageError, match="the candidates of 'width'"):
        nas.build(Two, {"width": 1})
    with pytest.raises(UsageError, match="the candidates of 'width'"):
        nas.space(Two)


def test_the_same_label_is_the_same_choice():
    def make():
        return nn.ModuleList(nas.LayerChoice([nn.ReLU, nn.Tanh], label="act") for _ in range(2))

    assert [type(each.chosen) for each in one(make, {"act": 1})] == [nn.Tanh, nn.Tanh]


def test_a_choice_outside_of_build_is_refused_with_what_to_do():
    with pytest.raises(UsageError, match=r"'width' is made where nobody answers.*nas.build"):
        Net()
    nas.build(Net, PARAMS)
    with pytest.raises(UsageError, match="nobody answers"):
        nas.choice("width", [1])


def test_threads_build_models_of_their_own():
    def width(value):
        return [nas.build(Net, PARAMS | {"width": value}).stem.out_features for _ in range(50)]

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(width, [4, 8])) == [[8] * 50, [16] * 50]


@pytest.mark.parametrize("key", ["", "a.b", "forward", "chosen", "key", "training"])
def test_a_candidate_has_a_name_that_a_module_can_have(key):
    with pytest.raises(UsageError, match="a candidate's name in 'op'"):
        one(lambda: nas.LayerChoice({key: nn.ReLU()}, label="op"), {"op": key})


def test_a_candidate_that_makes_no_module_and_one_that_fails_are_named():
    def fails():
        return nn.Linear("wide", 1)

    candidates = {"none": lambda: None, "fails": fails}
    with pytest.raises(UsageError, match="candidate 0 of 'op' = 'ReLU'"):
        one(lambda: nas.LayerChoice(["ReLU", "GELU"], label="op"), {"op": 0})
    with pytest.raises(UsageError, match="candidate 'none' of 'op'"):
        one(lambda: nas.LayerChoice(candidates, label="op"), {"op": "none"})
    with pytest.raises(TypeError) as caught:
        one(lambda: nas.LayerChoice(candidates, label="op"), {"op": "fails"})
    assert caught.value.__notes__ == ["in candidate 'fails' of 'op'"]


@pytest.mark.parametrize(
    ("depth", "label"),
    [
        (-1, ""),
        ((2, 1), "d"),
        ((-1, 1), "d"),
        ((0, 1), ""),
        (1.5, "d"),
        ((1, 2, 3), "d"),
        (None, "d"),
    ],
)
def test_a_depth_that_is_none_is_refused(depth, label):
    with pytest.raises(UsageError):
        one(lambda: nas.Repeat(lambda _: nn.ReLU(), depth, label), {"d": 1})


def test_a_block_that_would_be_shared_is_refused():
    with pytest.raises(UsageError, match="a function of the index"):
        one(lambda: nas.Repeat(nn.Linear(1, 1), 3), {})


def test_a_repeat_of_no_block_passes_its_input_on():
    repeat = one(lambda: nas.Repeat(lambda _: nn.Linear(1, 1), (0, 2), "d"), {"d": 0})
    assert len(repeat) == 0
    assert repeat(5) == 5


@pytest.mark.parametrize(
    ("reduction", "expected"), [("sum", [[4.0]]), ("mean", [[2.0]]), ("concat", [[1.0, 3.0]])]
)
def test_inputs_are_chosen_and_reduced(reduction, expected):
    def make():
        return nas.InputChoice(3, 2, reduction=reduction, label="from")

    inputs = [torch.tensor([[float(number)]]) for number in (1, 2, 3)]
    assert one(make, {"from": "0+2"})(inputs).tolist() == expected


def test_one_input_is_chosen_by_its_number_and_none_is_reduced():
    single = one(lambda: nas.InputChoice(3, label="from"), {"from": 2})
    assert single([1, 2, 3]) == 3
    several = one(lambda: nas.InputChoice(3, 2, reduction="none", label="from"), {"from": "1+2"})
    assert several([1, 2, 3]) == [2, 3]
    with pytest.raises(ValueError, match="2 inputs for a choice of 3"):
        several([1, 2])


@pytest.mark.parametrize(
    "arguments",
    [{"n_chosen": 0}, {"n_chosen": 4}, {"n_chosen": None}, {"n_chosen": 1.0}, {"reduction": "max"}],
)
def test_a_choice_of_inputs_that_is_none_is_refused(arguments):
    with pytest.raises(UsageError, match="'from'"):
        one(lambda: nas.InputChoice(3, **arguments, label="from"), {"from": 0})


class Scale(nn.Module):
    """Multiplies, and counts what reads an input of the cell apart."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor


CELL = {
    "c.0.op0": "same", "c.0.op1": "ten",
    "c.1.inputs": "0+2", "c.1.op0": "ten", "c.1.op1": "ten",
}  # fmt: skip


def cell():
    operations = {"same": lambda _: nn.Identity(), "ten": lambda at: Scale(10 if at < 2 else 100)}
    return nas.Cell(operations, 2, label="c")


def test_a_cell_is_the_graph_that_was_chosen():
    built = one(cell, CELL)
    a, b = torch.tensor([[1.0]]), torch.tensor([[2.0]])
    first = 1 + 2 * 10
    assert built(a, b).tolist() == [[first, 1 * 10 + first * 100]]
    with pytest.raises(ValueError, match="1 inputs for a cell with 2"):
        built(a)


def test_cells_with_one_label_are_alike_and_have_weights_of_their_own():
    def make():
        operations = {"linear": lambda _: nn.Linear(1, 1), "skip": lambda _: nn.Identity()}
        return nn.ModuleList(
            nas.Cell(operations, 1, inputs_per_node=1, label="c") for _ in range(2)
        )

    cells = one(make, {"c.0.inputs": 1, "c.0.op0": "linear"})
    assert list(cells.state_dict()) == [
        f"{place}.nodes.0.op0_1.linear.{name}" for place in (0, 1) for name in ("weight", "bias")
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        {"nodes": 0}, {"nodes": "2"}, {"inputs_per_node": 3}, {"inputs_per_node": None},
        {"operations": [nn.ReLU]}, {"operations": {}},
    ],
)  # fmt: skip
def test_a_cell_that_is_none_is_refused(arguments):
    given = {"operations": {"skip": lambda _: nn.Identity()}, "nodes": 1} | arguments
    with pytest.raises(UsageError):
        one(lambda: nas.Cell(**given, label="c"), {})


@pytest.mark.parametrize("model", [nn.Linear, lambda: None, 3])
def test_only_a_class_of_model_spaces_is_built(model):
    with pytest.raises(UsageError, match=r"derives from nas\.ModelSpace"):
        nas.build(model, {})


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"params": None}, "params = None"),
        ({"params": ["width"]}, "params = "),
        ({"mutators": len}, "mutators = .*nas.mutator"),
        ({"mutators": [len]}, "mutators = .*nas.mutator"),
        ({"repair": "branch"}, "repair = 'branch' .*nas.Repair"),
    ],
)
def test_what_a_model_is_built_of_is_refused_by_name(arguments, named):
    with pytest.raises(UsageError, match=named):
        nas.build(Net, **{"params": PARAMS} | arguments)
