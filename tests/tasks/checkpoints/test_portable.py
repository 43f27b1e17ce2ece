"""Allowed values in a user's checkpoint come back as they were; others are named."""

from __future__ import annotations

import datetime
import enum
from collections import OrderedDict, defaultdict

import numpy as np
import pytest
import torch
from penstock.base.errors import UsageError
from penstock.tasks.checkpoints import checkpoint
from penstock.tasks.checkpoints.portable import pack, unpack
from penstock.tasks.checkpoints.state import state_hash


def there_and_back(state, tmp_path):
    packed = pack(state)
    uri = checkpoint.Store(f"file://{tmp_path}").save(packed, 1)
    return unpack(checkpoint.load(uri, state_hash(packed)))


def test_a_trained_model_and_its_optimiser_go_on_as_if_nothing_had_happened(tmp_path):
    def step(model, optimizer, schedule):
        optimizer.zero_grad()
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        schedule.step()

    def made():
        model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2).eval())
        optimizer = torch.optim.Adam(model.parameters())
        return model, optimizer, torch.optim.lr_scheduler.MultiStepLR(optimizer, [1, 2])

    trained, fresh = made(), made()
    step(*trained)
    state = {str(number): part.state_dict() for number, part in enumerate(trained)}
    for part, saved in zip(fresh, there_and_back(state, tmp_path).values(), strict=True):
        part.load_state_dict(saved)
    step(*trained)
    step(*fresh)
    for ours, theirs in zip(fresh, trained, strict=True):
        assert state_hash(ours.state_dict()) == state_hash(theirs.state_dict())


def test_arrays_come_back_as_arrays_and_numbers_as_pythons(tmp_path):
    arrays = {
        "dense": np.arange(6.0).reshape(2, 3),
        "turned": np.arange(6).reshape(2, 3).T[::-1],
        "swapped": np.arange(3, dtype=">i4"),
        "nothing": np.zeros((0, 4), np.float32),
        "scalar": np.array(True),
        "complex": np.array([1j]),
    }
    plain = {"a": [1, -(10**30), 2.5, None, True], 7: ("x", b"y", {"z": float("inf")})}
    state = {"arrays": [arrays, (np.uint8([255]),)], "plain": plain, "t": np.float64(0.1)}
    back = there_and_back(state, tmp_path)
    assert back["plain"] == plain
    assert (type(back["t"]), back["t"]) == (float, 0.1)
    for name, array in arrays.items():
        found = back["arrays"][0][name]
        assert (type(found), found.dtype) == (np.ndarray, array.dtype.newbyteorder("="))
        np.testing.assert_array_equal(found, array)
    assert back["arrays"][1][0].dtype == np.uint8
    back["arrays"][0]["dense"] += 1  # it can be written


def test_a_tensor_stays_a_tensor_beside_an_array_of_the_same_numbers(tmp_path):
    state = OrderedDict(
        tensor=torch.ones(2), array=np.ones(2), weight=torch.nn.Parameter(torch.ones(1))
    )
    back = there_and_back(state, tmp_path)
    assert {name: type(value) for name, value in back.items()} == {
        "tensor": torch.Tensor, "array": np.ndarray, "weight": torch.Tensor,
    }  # fmt: skip


class Colour(enum.StrEnum):
    RED = "red"


REFUSED = [
    (3, "checkpoint = int is refused"),
    ({}, "checkpoint = {} is refused"),
    (None, "checkpoint = None is refused"),
    ({"when": datetime.date(2026, 1, 1)}, "checkpoint['when'] is a datetime.date"),
    ({"a": [{"b": {1, 2}}]}, "checkpoint['a'][0]['b'] is a builtins.set"),
    ({"model": torch.nn.Linear(1, 1)}, "checkpoint['model'] is a torch.nn.modules.linear.Linear"),
    ({"colour": Colour.RED}, "checkpoint['colour'] is a "),
    ({"d": defaultdict(list)}, "checkpoint['d'] is a collections.defaultdict"),
    ({(1, 2): 3}, "checkpoint has the key (1, 2)"),
    ({"deep": {2.5: 3}}, "checkpoint['deep'] has the key 2.5"),
    ({"names": np.array(["a"])}, "checkpoint['names'] is an array of <U1"),
    ({"objects": np.array([object()])}, "checkpoint['objects'] is an array of object"),
    ({"masked": np.ma.array([1], mask=[True])}, "checkpoint['masked'] is a numpy.ma"),
    ({"when": np.datetime64("2026-01-01")}, "checkpoint['when'] is a numpy.datetime64"),
    ({"sparse": torch.eye(2).to_sparse()}, "checkpoint['sparse'] is a tensor that is sparse"),
]


@pytest.mark.parametrize(("state", "words"), REFUSED)
def test_what_cannot_be_stored_is_refused_by_its_key(state, words):
    with pytest.raises(UsageError) as refusal:
        pack(state)
    assert words in str(refusal.value)
    assert "allowed" in str(refusal.value)
