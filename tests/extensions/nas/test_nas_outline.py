"""The outline of a model: what is drawn of its graph, and who made which part of it."""

from __future__ import annotations

import json

import pytest
import torch
from penstock import nas
from penstock.extensions.nas.graphs.derivation import described
from penstock.extensions.nas.graphs.outline import MOST, layer_words
from penstock.extensions.nas.pictures.outline import boxes_of
from torch import nn


class Net(nas.ModelSpace):
    """A choice with a residual connection, and sizes that are no part of a picture."""

    def __init__(self, classes=10):
        super().__init__()
        width = nas.choice("width", [4, 8])
        self.stem = nn.Conv2d(1, width, 3, padding=1)
        self.op = nas.LayerChoice(
            {
                "conv": lambda: nn.Conv2d(width, width, 3, stride=2, padding=1, groups=2),
                "residual": lambda: Residual(width),
            },
            label="op",
        )
        self.act = nn.ReLU()
        self.head = nn.Linear(width, classes)

    def example(self):
        return torch.zeros(2, 1, 8, 8)

    def forward(self, x, scale=1.0):
        x = self.act(self.op(self.stem(x)))
        return self.head(x.mean((2, 3)).view(x.shape[0], -1))


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x):
        return x + self.norm(x)


def parts(net):
    _, outline = described(net)
    assert json.loads(json.dumps(outline)) == outline
    return [(each["text"], each["reads"], each["choice"], each["by"]) for each in outline]


def test_a_model_that_makes_choices_says_what_each_put_where():
    net = nas.build(Net, {"width": 4, "op": "residual"})
    before = {name: each.clone() for name, each in net.state_dict().items()}
    assert parts(net) == [
        ("input", [], "", ""),
        ("Conv2d 1→4, 3x3", [0], "", ""),
        ("BatchNorm2d 4", [1], "op = residual", ""),
        ("add", [1, 2], "op = residual", ""),
        ("ReLU", [3], "", ""),
        ("mean", [4], "", ""),
        ("view", [5], "", ""),
        ("Linear 4→10", [6], "", ""),
        ("output", [7], "", ""),
    ]
    assert all(torch.equal(before[name], each) for name, each in net.state_dict().items())
    derivation, _ = described(net)
    assert derivation.log == () and derivation.base == derivation.digest
    again, _ = described(nas.build(Net, {"width": 4, "op": "residual"}))
    other, _ = described(nas.build(Net, {"width": 8, "op": "residual"}))
    assert derivation.digest == again.digest != other.digest


@nas.mutator(match=nn.ReLU)
def activation(site):
    site.replace("GELU")


@nas.mutator(match=lambda site: site.name == "stem")
def widen(site):
    site.update(out_channels=6)
    site.insert("BatchNorm2d", 1)


def test_a_mutated_model_says_which_mutator_made_what_also_when_it_is_replayed():
    params = {"width": 4, "op": "conv"}
    net = nas.build(Net, params, mutators=[activation, widen])
    found = parts(net)
    assert found == [
        ("input", [], "", ""),
        ("Conv2d 1→6, 3x3", [0], "", "widen"),
        ("BatchNorm2d 6", [1], "", "widen, repair"),
        ("Conv2d 6→4, 3x3, stride 2x2, 2 groups", [2], "op = conv", "repair"),
        ("GELU", [3], "", "activation"),
        ("mean", [4], "", ""),
        ("view", [5], "", ""),
        ("Linear 4→10", [6], "", ""),
        ("output", [7], "", ""),
    ]
    replayed = nas.replay(nas.build(Net, params), net.derivation)
    assert parts(replayed) == found
    assert described(replayed)[0] == net.derivation
    assert len(boxes_of(json.dumps(described(net)[1]))) == 7


class Branching(nas.ModelSpace):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Tanh() for _ in range(nas.choice("depth", [1, MOST]))))

    def forward(self, x):
        return self.layers(x)


class Untraceable(Branching):
    def forward(self, x):
        return self.layers(x) if x.sum() > 0 else x


def test_what_cannot_be_traced_or_is_too_large_is_not_drawn():
    assert len(parts(nas.build(Branching, {"depth": 1}))) == 3
    assert parts(nas.build(Branching, {"depth": MOST})) == []
    derivation, outline = described(nas.build(Untraceable, {"depth": 1}))
    assert outline == []
    assert derivation.digest != described(nas.build(Branching, {"depth": 1}))[0].digest


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (nn.Conv2d(8, 16, (3, 5), groups=8), "Conv2d 8→16, 3x5, 8 groups"),
        (nn.MaxPool2d(2), "MaxPool2d, 2, stride 2"),
        (nn.LayerNorm(32), "LayerNorm 32"),
        (nn.Embedding(100, 8), "Embedding 100→8"),
        (nn.LSTM(8, 16), "LSTM 8→16"),
        (nn.GroupNorm(2, 8), "GroupNorm 8"),
        (nn.MultiheadAttention(16, 2), "MultiheadAttention 16"),
        (nn.Dropout(0.1), "Dropout"),
    ],
)
def test_a_layer_has_a_few_words(layer, words):
    assert layer_words(layer) == words
