"""Captured and opaque parts of a model, with reasons, and the mistakes that tracing must avoid."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from penstock import UsageError, nas
from torch import nn
from torch.nn import functional


def model(forward, *, example=None, **parts):
    """A module with these parts and this ``forward(self, x)``."""

    class Made(nn.Module):
        def __init__(self):
            super().__init__()
            for name, part in parts.items():
                setattr(self, name, part)

        def example(self):
            return torch.randn(2, 4) if example is None else example

    Made.forward = forward
    return Made()


def inside(forward, **parts):
    """A module whose part ``inner`` has this ``forward``, between two layers."""
    return model(
        lambda self, x: self.last(self.inner(self.first(x))),
        first=nn.Linear(4, 4), inner=model(forward, **parts), last=nn.Linear(4, 2),
    )  # fmt: skip


def branches(self, x):
    return x if x.sum() > 0 else -x


def makes_noise(self, x):
    return x + torch.randn(4)


def skips_at_random(self, x):
    return x if torch.rand(1) < 0.5 else x * 2


def draws_in_python(self, x):
    return x * random.choice([1.0, 2.0])


def draws_in_numpy(self, x):
    return x * float(np.random.rand())


def counts(self, x):
    self.calls = 1
    return x


def freezes(self, x):
    with torch.no_grad():
        return x * 2


def rounds_down(self, x):
    with torch.autocast("cpu", torch.bfloat16):
        return functional.linear(x, self.weight).float()


def branches_on_the_mode(self, x):
    return x * 2 if self.training else x


def reads_a_tensor(self, x):
    return x + self.constant


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def straight_through(self, x):
    return Straight.apply(x)


@pytest.mark.parametrize(
    ("forward", "why"),
    [
        (branches, "control flow"),
        (makes_noise, "aten.randn"),
        (skips_at_random, "aten.rand"),
        (draws_in_python, "outside of torch"),
        (draws_in_numpy, "outside of torch"),
        (counts, "sets self.calls"),
        (freezes, "no_grad or autocast"),
        (branches_on_the_mode, "control flow"),
        (straight_through, ""),
    ],
)
def test_a_part_that_cannot_be_traced_is_opaque_with_the_reason_and_no_other(forward, why):
    net = inside(forward)
    found = nas.captured(net)
    assert list(found.opaque) == ["inner"]
    assert why in found.opaque["inner"]
    assert list(found.layers) == ["first", "inner", "last"]
    assert f"inner: opaque, {found.opaque['inner']}" in str(found)
    assert type(net).__mro__[1] is nn.Module
    assert net.training and net.inner.training


def test_a_tensor_that_is_no_buffer_and_autocast_are_opaque():
    found = nas.captured(inside(reads_a_tensor, constant=torch.ones(4)))
    assert "no parameter or buffer" in found.opaque["inner"]
    found = nas.captured(inside(rounds_down, weight=nn.Parameter(torch.ones(4, 4))))
    assert "autocast" in found.opaque["inner"]


@pytest.mark.parametrize("forward", [branches, makes_noise])
def test_a_model_that_cannot_be_traced_at_all_is_opaque_and_not_refused(forward):
    found = nas.captured(model(forward))
    assert found.graph is None
    assert list(found.opaque) == [""]
    assert "the model: opaque, " in str(found)


def test_what_was_traced_within_an_opaque_part_is_forgotten():
    def forward(self, x):
        x = self.deep(self.layer(x)) + self.weight
        return x if x.sum() > 0 else -x

    net = inside(
        forward, deep=model(branches), layer=nn.Linear(4, 4), weight=nn.Parameter(torch.ones(4))
    )
    found = nas.captured(net)
    assert list(found.opaque) == ["inner"]
    assert list(found.layers) == ["first", "inner", "last"]


def test_parts_of_torch_are_layers_also_those_with_control_flow():
    def forward(self, x):
        states, (last, _) = self.lstm(self.encoder(x))
        return self.head(states[:, -1] + last[-1])

    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    net = model(
        forward, example=torch.randn(2, 5, 8), lstm=nn.LSTM(8, 8, batch_first=True),
        encoder=nn.TransformerEncoder(layer, 1), head=nn.Linear(8, 2),
    )  # fmt: skip
    found = nas.captured(net)
    assert not found.opaque
    assert found.layers == {"encoder": "TransformerEncoder", "lstm": "LSTM", "head": "Linear"}


def test_the_mode_is_read_when_the_model_runs():
    def forward(self, x):
        return functional.dropout(x, 0.5, self.training)

    net = nas.captured(inside(forward))
    assert not net.opaque
    assert "training" in str(net.graph)


def test_a_parameter_and_a_buffer_are_read_when_the_model_runs():
    def forward(self, x):
        return x * self.scale.exp() + self.shift * 2

    net = model(forward, scale=nn.Parameter(torch.zeros(4)))
    net.register_buffer("shift", torch.zeros(4))
    found = nas.captured(net)
    assert not found.opaque
    with torch.no_grad():
        net.shift += 1
    graph = torch.fx.GraphModule(net, found.graph)
    assert torch.equal(graph(torch.zeros(1, 4)), net(torch.zeros(1, 4)))


def test_an_argument_that_the_example_leaves_out_has_its_default():
    def forward(self, x, mask=None):
        return x if mask is None else x * mask

    found = nas.captured(model(forward))
    assert [each.name for each in found.graph.nodes] == ["x", "output"]
    both = nas.captured(model(forward), torch.ones(2, 4), torch.ones(2, 4))
    assert [each.name for each in both.graph.nodes][:2] == ["x", "mask"]


def test_a_graph_that_gives_other_numbers_is_not_used():
    calls = []

    def forward(self, x):
        calls.append(None)  # once while it is traced, and never in the graph
        return x * len(calls)

    found = nas.captured(model(forward))
    assert found.graph is None
    assert "other numbers" in found.opaque[""]


def test_capture_leaves_no_trace_in_the_model_and_in_random_numbers():
    net = model(
        lambda self, x: self.drop(self.norm(x)), norm=nn.BatchNorm1d(4), drop=nn.Dropout()
    ).train()
    net.norm.eval()
    inputs = torch.randn(2, 4)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    state = torch.get_rng_state(), random.getstate()
    nas.captured(net, inputs)
    assert (torch.equal(torch.get_rng_state(), state[0]), random.getstate()) == (True, state[1])
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert net.training
    assert not net.norm.training


def test_a_model_without_an_example_is_refused_with_what_to_write():
    with pytest.raises(UsageError, match=r"no example\(\).*torch.zeros") as caught:
        nas.captured(nn.Linear(2, 2))
    assert caught.value.field == "example"
    assert nas.captured(nn.Sequential(nn.Linear(2, 2)), torch.ones(2, 2)).layers == {"0": "Linear"}
