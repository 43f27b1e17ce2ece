"""Calls of operators by family: the same at every load, and another model's are others."""

from __future__ import annotations

import torch
from penstock.tasks.operator_calls import operator_calls
from torch import nn


def step_of(model, inputs):
    return lambda: model(inputs).sum().backward()


def test_the_same_step_has_the_same_calls_and_another_model_has_others():
    dense = step_of(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)), torch.ones(4, 8))
    (first, _), (second, _) = operator_calls(dense), operator_calls(dense)
    # What a first step does besides (it makes the gradients) is not done again.
    assert operator_calls(dense)[0] == second
    assert first["matmul"] >= 4
    assert first["convolution"] == 0
    convolving, _ = operator_calls(step_of(nn.Conv1d(2, 3, 2), torch.ones(1, 2, 8)))
    assert convolving["convolution"] > 0
    assert convolving["recurrent"] == 0
