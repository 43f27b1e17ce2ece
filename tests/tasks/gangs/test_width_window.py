"""Real trainers measure a trial's steps on one device and together, and its bits stay its own."""

from __future__ import annotations

import time
from contextlib import ExitStack
from itertools import count

import pytest
from penstock.tasks.gangs import gang
from trainers.trainer_process import TrainerProcess, known
from trainers.trainer_process import segment as plain_segment
from user_code.trainees import OneByOne, Raises, RaisesIn, Small

FENCES = count(100)


@pytest.fixture(scope="module")
def trainers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trainers")
    with ExitStack() as stack:
        made = [TrainerProcess(folder / name) for name in ("0", "1", "2")]
        yield [stack.enter_context(trainer) for trainer in made]


def window(trainers, code, widths=(1, 2, 3), *, epochs=100.0, first=1, last=None, **changes):
    """Run a window; return each member's last message. Member ``last`` is told to stop at last."""
    members = [trainer.identity for trainer in trainers]
    queues = tuple(f"cpu.{rank}" for rank in range(len(members)))
    fields = {"shards": 4, "widths": widths, "width_epochs": epochs, "fence": next(FENCES)}
    task = plain_segment(code, first, **{**fields, "queues": queues, **changes})
    for rank, trainer in enumerate(trainers):
        trainer.run(task.model_copy(update={"rank": rank}), members)
    ends = []
    for rank, trainer in enumerate(trainers):
        if rank == last:
            trainer.say(op="stop")
        ends.append(trainer.hear_until("widths", "failed", "broken", "stopped")[-1])
    return ends


def test_each_width_is_measured_and_every_member_leaves(trainers):
    leader, *others = window(trainers, Small)
    assert [width for width, _ in leader["seconds"]] == [1, 2, 3]
    assert all(0 < seconds < 60 for _, seconds in leader["seconds"])
    assert leader["steps"] == 4, "80 examples in batches of 20"
    assert leader["met"]
    assert 0 < leader["meeting"] < 60
    assert [each["op"] for each in others] == ["widths"] * 2
    assert all(not each["seconds"] for each in others)


def test_a_warm_trial_is_as_it_was_and_goes_on_with_the_same_bits(trainers):
    one = trainers[0]
    trial = {"trial": "s-0001", "shards": 4}
    [first] = one.carry_out(plain_segment(Small, 1, **trial))
    window(trainers, Small, first=2, trial="s-0001", expect=first["state_hash"])
    [second] = one.carry_out(plain_segment(Small, 2, **trial, **known(one, [first])))
    alone = one.carry_out(plain_segment(Small, 1, 2, trial="s-0001", shards=4, fence=9))
    assert [each["state_hash"] for each in alone] == [first["state_hash"], second["state_hash"]]


def test_an_epoch_of_too_few_steps_for_the_time_is_not_measured(trainers):
    leader, *_ = window(trainers, Small, epochs=0.9)  # not 4 steps
    assert (leader["seconds"], leader["met"]) == ([], False)


def test_members_that_come_too_late_are_not_waited_for(trainers):
    """They hear of it by their worker: as soon as the attempt is closed they are fenced off."""
    two = trainers[:2]
    members = [trainer.identity for trainer in two]
    task = plain_segment(
        OneByOne, shards=4, widths=(1, 2), width_epochs=9.0, fence=next(FENCES), queues=("a", "b")
    )
    two[0].run(task, members)
    leader = two[0].hear_until("widths")[-1]
    assert [width for width, _ in leader["seconds"]] == [1]
    assert not leader["met"]
    assert leader["meeting"] > 0
    two[1].run(task.model_copy(update={"rank": 1}), members)
    two[1].say(op="stop")
    assert two[1].hear_until("stopped", "broken")


def test_a_member_that_fails_lets_the_others_go_and_their_trial_stays_warm(trainers):
    """It fails in the gang of two of three, in which the first one waits for it."""
    one, two, _ = trainers
    trial = {"trial": "s-0002", "shards": 4, "params": {"pid": two.process.pid}}
    [first] = one.carry_out(plain_segment(RaisesIn, 1, **trial))
    began = time.monotonic()
    ends = window(trainers, RaisesIn, first=2, expect=first["state_hash"], last=2, **trial)
    assert [each["op"] for each in ends] == ["broken", "failed", "stopped"]
    assert time.monotonic() - began < gang.TIMEOUT / 2
    heard = one.carry_out(plain_segment(RaisesIn, 2, **trial, **known(one, [first])))
    assert [each["op"] for each in heard] == ["epoch"], "it had to be trained again"


def test_what_the_users_code_raises_is_said_as_of_any_segment(trainers):
    leader, *_ = window(trainers[:1], Raises, widths=(1,))
    assert leader["op"] == "failed"
