"""Common random numbers: trials whose keys do not hold what tells them apart."""

from __future__ import annotations

import pytest
import torch
from penstock.tasks.training import loop
from trainers.trainer_here import Trainer
from trainers.trainer_process import TrainerProcess, segment
from user_code import epoch_functions, trainees

#: Each is the only replicate of its configuration.
SHARED = {"replicate": 0}


def hashes(heard):
    return [m["state_hash"] for m in heard if m["op"] == "epoch"]


def results(heard):
    return [(m["state_hash"], m["metrics"]) for m in heard if m["op"] == "epoch"]


@pytest.mark.parametrize("code", [trainees.Small, trainees.OneByOne, trainees.Recorded])
def test_equal_parameters_give_equal_bits_in_every_epoch_and_without_it_in_none(trainers, code):
    one, other = trainers
    first = results(one.carry_out(segment(code, 1, 3, trial="s-0003", **SHARED)))
    second = results(other.carry_out(segment(code, 1, 3, trial="s-0004", **SHARED)))
    assert first == second
    assert len({state for state, _ in first}) == 3
    own = [hashes(each.carry_out(segment(code, 1, 3, trial=f"s-001{n}")))
           for n, each in enumerate(trainers)]  # fmt: skip
    assert all(a != b for a, b in zip(*own, strict=True))


def test_in_shards_they_are_equal_at_every_width(trainers):
    task = segment(trainees.Small, 1, 3, trial="s-0005", shards=2, **SHARED)
    alone = hashes(trainers[0].carry_out(task))
    for rank, trainer in enumerate(trainers):
        member = segment(
            trainees.Small,
            1,
            3,
            trial="s-0006",
            shards=2,
            rank=rank,
            queues=["cpu.s0", "cpu.s1"],
            **SHARED,
        )
        trainer.run(member, [each.identity for each in trainers])
    assert [hashes(trainer.hear_out()) for trainer in trainers] == [alone, alone]


def test_one_that_is_replayed_from_nothing_arrives_at_the_other_s_bits():
    first = Trainer().train(trainees.Small, 1, 4, trial="s-0001", **SHARED)
    heir = Trainer()
    expect = first[2]["state_hash"]
    fourth = heir.train(trainees.Small, 4, 1, trial="s-0002", expect=expect, **SHARED)
    assert len(heir.replays()) == 3
    assert hashes(fourth) == hashes(first)[3:]


def test_one_whose_trainer_is_killed_goes_on_with_the_bits_of_another(trainers, tmp_path):
    first = hashes(trainers[0].carry_out(segment(trainees.Small, 1, 4, trial="s-0007", **SHARED)))
    killed = TrainerProcess(tmp_path / "log")
    killed.run(segment(trainees.Small, 1, 500, trial="s-0008", **SHARED))
    while killed.hear().get("epoch") != 3:
        pass
    killed.process.kill()
    killed.close()
    rest = segment(trainees.Small, 4, 1, trial="s-0008", fence=2, expect=first[2], **SHARED)
    heard = trainers[1].carry_out(rest)
    assert [m["text"] for m in heard if m["op"] == "progress"] == [
        f"replaying epoch {n} of 3" for n in (1, 2, 3)
    ]
    assert hashes(heard) == first[3:]


def test_other_parameters_meet_the_same_examples_in_the_same_order_and_the_same_noise(capfd):
    def read(number, **changes):
        params = {"lr": 0.01 * (number + 1), "width": 8 + number}
        Trainer().train(trainees.Recorded, 1, 2, trial=f"s-{number:04}", params=params, **changes)
        return [line for line in capfd.readouterr().out.splitlines() if line.startswith("read")]

    first = read(0, **SHARED)
    assert len(first) == 2 * 4
    assert len({*first}) == 8
    assert read(1, **SHARED) == first
    assert not {*read(1)} & {*first}


def test_other_parameters_start_from_the_same_weights():
    def start(number, lr):
        code = trainees.Small({"lr": lr})
        return loop.start(code, code.data(), 7, number).model.state_dict()

    slow, fast = (start(segment(trainees.Small, trial=f"s-{n:04}", **SHARED).key_number, lr)
                  for n, lr in ((1, 0.1), (2, 0.3)))  # fmt: skip
    assert all(torch.equal(slow[name], fast[name]) for name in slow)
    assert not torch.equal(slow["0.weight"], start(1, 0.1)["0.weight"])


@pytest.mark.parametrize(
    ("code", "changes"),
    [(trainees.objective_draws, {}), (epoch_functions.adds, {})],
    ids=["objective", "epoch function"],
)
def test_the_global_generators_of_functions_draw_the_same(trainers, tmp_path, code, changes):
    def drawn(number, **seeding):
        changed = {"store": f"file://{tmp_path}", **changes, **seeding}
        heard = trainers[0].carry_out(segment(code, 1, 3, trial=f"s-{number:04}", **changed))
        return [m["metrics"]["accuracy"] for m in heard if m["op"] == "epoch"]

    first = drawn(21, **SHARED)
    assert len({*first}) == 3
    assert drawn(22, **SHARED) == first
    assert not {*drawn(23)} & {*first}


def test_replicates_draw_numbers_of_their_own():
    found = {
        tuple(hashes(Trainer().train(trainees.Small, trial=f"s-{n:04}", replicate=n % 2)))
        for n in range(4)
    }
    assert len(found) == 2
