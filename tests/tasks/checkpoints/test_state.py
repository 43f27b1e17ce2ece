"""Hashes, copies and seeds depend on bits and names, on nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest
import torch
from penstock.tasks.checkpoints.state import copy_state, state_bytes, state_hash
from penstock.tasks.contracts.rng import key


def state():
    return {
        "model": {"w": torch.arange(6.0).reshape(2, 3), "n": torch.tensor(3)},
        "optimizer": {"state": {0: {"step": 1.5}, 1: {"step": None}}, "groups": [{"lr": 0.1}]},
        "schedule": {"milestones": Counter({2: 1}), "betas": (0.9, True), "name": "cos"},
    }


def test_a_key_is_the_same_in_every_process():
    code = "from penstock.tasks.contracts.rng import key; print(key('step', 7, 1, 2))"
    other = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert int(other.stdout) == key("step", 7, 1, 2)


def test_keys_tell_names_apart_and_fit_a_generator():
    keys = [key("a", 1, 2), key("a", 12), key("a", 1, 2, 0), key("b", 1, 2)]
    assert len(set(keys)) == 4
    assert all(0 <= k < 2**63 for k in keys)


def test_the_order_of_keys_does_not_count():
    backwards = {name: state()[name] for name in reversed(state())}
    assert state_hash(backwards) == state_hash(state())


def test_a_hash_is_the_same_in_every_version():
    """A ledger outlives the program that wrote it: another hash makes its trials diverge."""
    assert state_hash(state()) == "04441c020d01615ce5071b03863d1223"


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s["model"]["w"].view(-1)[5].add_(1e-6),
        lambda s: s["model"].update(w=s["model"]["w"].reshape(3, 2)),
        lambda s: s["model"].update(n=torch.tensor(3.0)),
        lambda s: s["optimizer"]["groups"][0].update(lr=0.1 + 1e-17 * 10),
        lambda s: s["optimizer"]["state"][1].update(step=0.0),
        lambda s: s["schedule"].update(betas=(0.9, 1)),
        lambda s: s["schedule"].update(name="co"),
        lambda s: s.pop("schedule"),
    ],
)
def test_any_other_bit_type_or_shape_is_another_hash(change):
    changed = state()
    change(changed)
    assert state_hash(changed) != state_hash(state())


def test_layout_in_memory_does_not_count():
    w = torch.arange(6.0).reshape(2, 3)
    assert state_hash(w.t().contiguous().t()) == state_hash(w)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.bool, torch.complex64])
def test_every_kind_of_tensor_has_a_hash(dtype):
    assert state_hash(torch.ones(3, dtype=dtype)) != state_hash(torch.zeros(3, dtype=dtype))


def test_what_has_no_stable_bits_is_refused_by_name():
    with pytest.raises(TypeError, match="holds a object"):
        state_hash({"schedule": object()})


def test_a_copy_is_equal_and_shares_no_memory():
    original = state()
    copied = copy_state(original)
    before = state_hash(copied)
    original["model"]["w"].zero_()
    assert state_hash(copied) == before == state_hash(state())
    assert isinstance(copied["schedule"]["milestones"], Counter)


def test_bytes_counts_tensors():
    assert state_bytes(state()) == 6 * 4 + 8
