"""Figures of mutated and repaired models, compared with counts that know no mutators."""

from __future__ import annotations

from functools import cache
from random import Random

import pytest
import torch
from penstock import Data, TorchTrainable, UsageError, nas
from penstock.extensions.nas.models.counting import counted
from torch import nn
from torch.utils.data import TensorDataset
from torch.utils.flop_counter import FlopCounterMode

from testkit.nas_mutations import mutation
from testkit.nas_nets import WIDTH, DenseLike, MnasLike, ResLike

IMAGES = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(1))


class Widened(TorchTrainable):
    """A net of another width than its class's, with other activations and a layer more."""

    net = MnasLike

    def data(self):
        points = TensorDataset(IMAGES, torch.arange(3))
        return Data(points, points)

    def model(self):
        return nas.build(self.net, self.params, mutators=MUTATORS, width=WIDTH)

    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), lr=0.1)

    def loss(self, model, batch):
        return nn.functional.cross_entropy(model(batch[0]), batch[1])


class WidenedResLike(Widened):
    net = ResLike


@nas.mutator(match=lambda site: site.name == "stem.0")
def widen(site):
    site.update(out_channels=site.choose("width", [8, 12, 20]))


@nas.mutator(match=nn.ReLU)
def activation(site):
    site.replace(site.choose("act", ["ReLU", "SiLU"]))


@nas.mutator(match=lambda site: site.name == "body.2.branch.0.0")
def deepen(site):
    if site.choose("deep", [True, False]):
        site.insert("Conv2d", 1, 12, 1)


MUTATORS = [widen, activation, deepen]
PARAMS = [
    {"width": width, "act": act, "deep": deep}
    for width, act, deep in ((8, "ReLU", False), (12, "SiLU", True), (20, "ReLU", True))
]


@cache
def drawn(net):
    """Four models that random mutations made of ``net``, as the benchmark draws them."""
    chance, found = Random(f"figures of {net.__name__}"), []
    while len(found) < 4:
        try:
            model = nas.build(net, {}, mutators=mutation(net, chance), width=WIDTH)
        except UsageError:
            continue
        if model.derivation.log:
            found.append(model)
    return found


def learned(model):
    """Return how many numbers get a gradient in a step."""
    model.train()
    model.zero_grad()
    model(IMAGES).square().sum().backward()
    return sum(each.grad.numel() for each in model.parameters() if each.grad is not None)


def of_torch(model):
    """torch's count of a pass with real numbers, layer by layer as they are called."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model.eval()(IMAGES)
    return counter.get_total_flops()


def by_hand(model):
    """Two for each multiply-add of the convolutions and linear layers that a pass calls."""
    found = []

    def note(layer, inputs, output):
        shape = layer.weight.shape  # a number of the output takes all but the first of it
        found.append(2 * output.numel() * shape[1:].numel())

    layers = [each for each in model.modules() if isinstance(each, nn.Conv2d | nn.Linear)]
    hooks = [each.register_forward_hook(note) for each in layers]
    with torch.no_grad():
        model.eval()(IMAGES)
    for each in hooks:
        each.remove()
    return sum(found)


@pytest.mark.parametrize("net", [MnasLike, ResLike, DenseLike])
def test_what_random_mutations_made_is_counted_as_it_is(net):
    for model in drawn(net):
        log = "\n".join(map(str, model.derivation.log))
        assert nas.parameters(model) == learned(model), log
        assert nas.flops(model, IMAGES) == of_torch(model) == by_hand(model), log


@pytest.mark.parametrize("code", [Widened, WidenedResLike])
@pytest.mark.parametrize("params", PARAMS)
def test_the_trainer_counts_the_model_that_mutators_make(code, params):
    trainable = code(params)
    model = trainable.model()
    one = (IMAGES[:1].to("meta"), torch.zeros(1, dtype=torch.long, device="meta"))
    found, choices = counted(trainable, params, one)
    assert choices == sorted(params)
    assert found.parameters == nas.parameters(model) == learned(model)
    assert found.flops == nas.flops(model, IMAGES[:1]) == of_torch(model) // 3
    assert found.operators > 20


def test_what_is_chosen_changes_the_counts():
    figures = {
        (nas.parameters(model), nas.flops(model, IMAGES))
        for model in (Widened(params).model() for params in PARAMS)
    }
    assert len(figures) == 3
