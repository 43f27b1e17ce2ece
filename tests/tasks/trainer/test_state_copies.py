"""A trial begins with another one's state: from a copy in memory, here or in another trainer."""

from __future__ import annotations

import pytest
import torch
from penstock.tasks.trainer.state_copies import StateCopies
from trainers.trainer_process import segment
from user_code import trainees

SHARED = {"replicate": 0}


def epochs(heard):
    return [(m["epoch"], m["state_hash"], m["metrics"]) for m in heard if m["op"] == "epoch"]


@pytest.mark.parametrize("where", [0, 1], ids=["here", "in another trainer"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_trial_goes_on_where_another_was_and_nothing_is_replayed(trainers, where, optimizer):
    params = {"optimizer": optimizer, "lr": 0.01 + where / 100}
    whole = {"params": params, **SHARED}
    first = trainers[0].carry_out(
        segment(trainees.Small, 1, 4, copies=[2], trial="s-0001", **whole)
    )
    _, parting, *rest = epochs(first)
    state = {"expect": parting[1], "holder": trainers[0].identity}
    for trial in ("s-0002", "s-0003"):  # a copy is not used up
        task = segment(trainees.Small, 3, 2, trial=trial, **whole, **state)
        heard = trainers[where].carry_out(task)
        assert not [m for m in heard if m["op"] in ("replayed", "replaying")]
        assert epochs(heard) == rest
    task = segment(trainees.Small, 5, 1, trial="s-0001", expect=rest[-1][1], **whole)
    assert not [m for m in trainers[0].carry_out(task) if m["op"] == "replayed"], "it is untouched"


def test_a_state_that_is_not_there_is_computed_again(trainers):
    one, _ = trainers
    whole = {"params": {"lr": 0.2}, **SHARED}
    first = epochs(one.carry_out(segment(trainees.Small, 1, 4, trial="s-0004", **whole)))
    state = {"expect": first[1][1], "holder": one.identity}
    heard = one.carry_out(segment(trainees.Small, 3, 2, trial="s-0005", **whole, **state))
    assert [m for m in heard if m["op"] == "replayed"]
    assert epochs(heard) == first[2:]


def test_a_paused_trial_with_the_same_state_is_as_good_as_a_copy(trainers):
    one, _ = trainers
    whole = {"params": {"lr": 0.3}, **SHARED}
    first = epochs(one.carry_out(segment(trainees.Small, 1, 2, trial="s-0006", **whole)))
    state = {"expect": first[1][1], "holder": one.identity}
    heard = one.carry_out(segment(trainees.Small, 3, 1, trial="s-0007", **whole, **state))
    assert not [m for m in heard if m["op"] == "replayed"]


def test_the_oldest_copies_go_when_there_is_no_more_memory_for_them():
    copies = StateCopies(lambda held: 2 * 4 * 100)
    live = torch.zeros(100)
    for epoch in (1, 2, 3):
        live.fill_(epoch)
        copies.keep(f"s{epoch % 2}", f"h{epoch}", epoch, {"model": {"w": live}})
    assert copies.find("h1", 1) is None
    assert copies.find("h2", 3) is None, "another epoch's"
    assert copies.find("h2", 2)["model"]["w"].unique().tolist() == [2.0]
    assert copies.find("h3", 3)["model"]["w"].unique().tolist() == [3.0]
    copies.drop("s1")
    assert copies.find("h3", 3) is None
    assert copies.find("h2", 2) is not None, "another study's"


def test_with_its_study_a_copy_goes(trainers):
    one, _ = trainers
    whole = {"params": {"lr": 0.4}, **SHARED}
    first = epochs(
        one.carry_out(segment(trainees.Small, 1, 4, copies=[2], trial="s-0008", **whole))
    )
    state = {"expect": first[1][1], "holder": one.identity}
    one.say(op="release", trial="s-0008")
    kept = one.carry_out(segment(trainees.Small, 3, 1, trial="s-0009", **whole, **state))
    assert not [m for m in kept if m["op"] == "replayed"], "others may begin there"
    one.say(op="release", trial="s-0009", study="s")
    gone = one.carry_out(segment(trainees.Small, 3, 1, trial="s-0010", **whole, **state))
    assert [m for m in gone if m["op"] == "replayed"]
