"""Figures of a model before it is trained: parameters, operations, latency."""

from __future__ import annotations

import time

import pytest
import torch
from penstock import UsageError, nas
from torch import nn


class Branching(nn.Module):
    """Its code reads a value, so it cannot run without one."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x) if x.sum() >= 0 else x


class Sleeper(nn.Module):
    """A pass takes a hundredth of a second, in training a second."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x):
        time.sleep(1 if self.training else 0.01)
        return self.norm(x) + torch.rand(3)


#: Layer, shape of the input, operations: two for each multiply-add.
KNOWN = [
    (nn.Linear(3, 4), (2, 3), 2 * 2 * 3 * 4),
    (nn.Conv2d(3, 4, 3, padding=1), (1, 3, 8, 8), 2 * 8 * 8 * 3 * 3 * 3 * 4),
    (nn.Conv2d(4, 4, 3, padding=1, groups=4), (1, 4, 8, 8), 2 * 8 * 8 * 3 * 3 * 4),
    (nn.Conv2d(4, 8, 3, stride=2, padding=1), (1, 4, 8, 8), 2 * 4 * 4 * 3 * 3 * 4 * 8),
    (nn.LSTM(3, 4, batch_first=True), (2, 5, 3), 2 * 2 * 5 * (3 + 4) * 16),
    # Projections of query, key, value and output, the products of attention, and two layers.
    (
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
        (2, 5, 8),
        2 * (10 * 8 * 32 + 2 * 2 * 2 * 5 * 5 * 4 + 2 * 10 * 8 * 16),
    ),
    (nn.Sequential(nn.BatchNorm1d(3), nn.ReLU(), nn.Dropout()), (2, 3), 0),
]


@pytest.mark.parametrize(("layer", "shape", "known"), KNOWN)
@pytest.mark.parametrize("wrap", [nn.Sequential, Branching])
def test_a_multiply_add_is_two_operations_wherever_the_model_runs(layer, shape, known, wrap):
    assert nas.flops(wrap(layer), torch.ones(shape)) == known


def test_a_model_without_weights_is_counted_as_the_one_with_them():
    made = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 2))
    with torch.device("meta"):
        bare = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 2))
    example = torch.zeros(1, 1, 8, 8)
    assert nas.flops(bare, example) == nas.flops(made, example) == 2 * (36 * 9 * 4 + 144 * 2)
    assert nas.parameters(bare) == nas.parameters(made) == 40 + 8 + 290


def test_shared_parameters_count_once_and_frozen_ones_do_not():
    layer, frozen = nn.Linear(3, 3), nn.Linear(3, 3).requires_grad_(False)
    assert nas.parameters(nn.Sequential(layer, layer, frozen)) == 12


def test_the_models_own_example_is_the_default_and_may_be_several_inputs():
    class Two(nas.ModelSpace):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(nas.choice("size", [3, 5]), 2)

        def example(self):
            return torch.zeros(1, self.layer.in_features), torch.zeros(1)

        def forward(self, x, y):
            return self.layer(x) + y

    assert nas.flops(nas.build(Two, {"size": 5})) == 20
    assert nas.latency(nas.build(Two, {"size": 5}), runs=1).shapes == ((1, 5), (1,))


@pytest.mark.parametrize("measure", [nas.flops, nas.latency])
def test_nothing_of_the_model_and_of_random_numbers_changes(measure):
    net = Sleeper()
    net.norm.eval()  # alone
    before = [each.clone() for each in net.state_dict().values()]
    torch.manual_seed(5)
    first = torch.rand(2)
    torch.manual_seed(5)
    measure(net, torch.rand(4, 3, generator=torch.Generator().manual_seed(0)))
    assert torch.rand(2).equal(first)
    assert net.training
    assert not net.norm.training
    assert all(a.equal(b) for a, b in zip(before, net.state_dict().values(), strict=True))


def test_latency_is_the_median_of_passes_in_evaluation_and_says_what_it_measured():
    found = nas.latency(Sleeper(), torch.rand(4, 3), runs=7, warm_up=1)
    assert 10 <= found.quartiles[0] <= found.ms <= found.quartiles[1] < 1000
    assert (found.device, found.threads) == ("cpu", torch.get_num_threads())
    assert f"median of 7, quartiles {found.quartiles[0]:.3g}" in str(found)
    assert "4 x 3 on cpu" in str(found)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"runs": 0}, "runs"),
        ({"warm_up": -1}, "warm_up"),
        ({"example": None}, "example"),
        ({"example": (4, 3)}, r"example = \(4, 3\) .*such as torch\.zeros"),
    ],
)
def test_what_cannot_be_measured_is_refused_by_name(arguments, named):
    with pytest.raises(UsageError, match=named):
        nas.latency(Sleeper(), **{"example": torch.rand(4, 3)} | arguments)


def test_latency_needs_weights():
    with pytest.raises(UsageError, match="meta"):
        nas.latency(nn.Linear(3, 3, device="meta"), torch.rand(1, 3))


def test_a_class_is_no_model():
    for figure in (nas.parameters, nas.captured, lambda net: nas.flops(net, torch.rand(4, 3))):
        with pytest.raises(UsageError, match=r"Sleeper.* that was made"):
            figure(Sleeper)


def test_what_the_model_raises_is_raised():
    with pytest.raises(RuntimeError):
        nas.flops(nn.Linear(3, 3), torch.rand(1, 4))
