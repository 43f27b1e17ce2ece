"""Operators of real steps: what a model calls is what its fingerprint says."""

from __future__ import annotations

import pytest
import torch
from penstock.tasks.system.operators import family, operator_calls
from torch import nn


def step_of(model, *inputs):
    def step():
        out = model(*inputs)
        out = out[0] if isinstance(out, tuple) else out
        out.square().mean().backward()

    step()
    return step


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("aten::addmm", "matmul"),
        ("aten::mkldnn_convolution", "convolution"),
        ("aten::convolution_backward", "convolution"),
        ("aten::mkldnn_rnn_layer", "recurrent"),
        ("aten::add_", "elementwise"),
        ("aten::threshold_backward", "elementwise"),
        ("aten::sum", "reduction"),
        ("aten::max_pool2d_with_indices", "reduction"),
        ("aten::max", "reduction"),
        ("aten::copy_", "memory"),
        ("aten::t", "memory"),
        ("Optimizer.step#SGD.step", "other"),
        ("autograd::engine::evaluate_function: AddmmBackward0", "other"),
    ],
)
def test_operators_are_told_by_their_names(operator, expected):
    assert family(operator) == expected


def test_a_profiled_step_leaves_the_same_state():
    def run(around):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step():
            model(torch.ones(4, 8)).sum().backward()
            optimizer.step()

        around(step)
        step()
        return [parameter.tolist() for parameter in model.parameters()]

    assert run(operator_calls) == run(lambda step: step())


def test_the_same_step_has_the_same_calls_and_another_model_has_others():
    dense = step_of(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)), torch.ones(4, 8))
    calls, _ = operator_calls(dense)
    assert operator_calls(dense)[0] == calls
    assert calls["matmul"] >= 4
    assert calls["convolution"] == 0
    convolving, _ = operator_calls(step_of(nn.Conv1d(2, 3, 2), torch.ones(1, 2, 8)))
    assert convolving["convolution"] > 0
    assert convolving["recurrent"] == 0
