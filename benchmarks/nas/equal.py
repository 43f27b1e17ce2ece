"""Frequency of configurations with equal architectures, and of those with equal bits.

Random configurations of the digits example's space and of the three published ones, each built with
one seed. Two have the same *architecture* if their canonical digests are equal. Their trials can be
merged only if the *bits* are equal: equal modules with equal names, made in one order, so that each
parameter gets the same random numbers.
"""

from __future__ import annotations

import hashlib
import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from random import Random
from typing import Any

import torch
from penstock import nas
from penstock.app.spec.conditions import parse_conditions, without_inactive
from penstock.extensions.nas.graphs.capture import captured
from penstock.extensions.nas.graphs.digests import described, digest
from torch import nn

from testkit.nas_spaces import Darts, MnasNet, NasBench201

EXAMPLE = Path(__file__).parents[2] / "examples" / "nas_digits.py"
#: Arguments of the class, an input's shape, and how many configurations.
SPACES: dict[str, tuple[type[nas.ModelSpace], dict[str, Any], tuple[int, ...], int]] = {
    "nas_bench_201": (NasBench201, {"width": 4, "cells": 1}, (2, 3, 8, 8), 100),
    "darts": (Darts, {}, (2, 3, 16, 16), 40),
    "mnasnet": (MnasNet, {"width": 0.25}, (2, 3, 32, 32), 40),
}


def equal() -> dict[str, Any]:
    """Configurations, different architectures among them, and different bits."""
    found = {}
    spaces = {"digits": (_example(), dict[str, Any](), (2, 1, 8, 8), 150), **SPACES}
    for name, (model, arguments, shape, count) in spaces.items():
        architectures, bits = set[str](), set[str]()
        several = _different(nas.space(model, **arguments), count)
        for params in several:
            torch.manual_seed(0)
            net = nas.build(model, params, **arguments)
            bits.add(_bits(net))
            architectures.add(digest(net, captured(net, torch.zeros(shape)).graph))
        found[f"equal.{name}.configurations"] = len(several)
        found[f"equal.{name}.architectures"] = len(architectures)
        found[f"equal.{name}.bits"] = len(bits)
    return found


def _different(space: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """``count`` configurations of ``space``, no two of them the same."""
    chance, conditions = Random(0), parse_conditions(space)
    found: dict[str, dict[str, Any]] = {}
    while len(found) < count:
        drawn = {label: chance.choice(each.choices) for label, each in space.items()}
        params = without_inactive(drawn, conditions)
        found[json.dumps(params, sort_keys=True)] = params
    return [*found.values()]


def _bits(net: nn.Module) -> str:
    """A digest of what the modules are, and of the tensors that they begin with, by name."""
    hashed = hashlib.sha256(json.dumps(described(net), default=repr).encode())
    for name, tensor in net.state_dict().items():
        hashed.update(name.encode() + tensor.numpy().tobytes())
    return hashed.hexdigest()


def _example() -> type[nas.ModelSpace]:
    """The model of ``examples/nas_digits.py``."""
    spec = spec_from_file_location("nas_digits", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    sys.modules["nas_digits"] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
    found: type[nas.ModelSpace] = module.Net
    return found
