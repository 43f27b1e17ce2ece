"""A value of ``Steps`` is in force from its epoch on, with the bits of a plain loop."""

from __future__ import annotations

import itertools

import pytest
import torch
from patience import PATIENCE
from penstock.base.errors import TrialFailed
from penstock.base.pieces import entering, in_force
from penstock.tasks.checkpoints.state import state_hash
from penstock.tasks.contracts.pieces import Pieces
from penstock.tasks.contracts.rng import key
from penstock.tasks.training import loop
from penstock.tasks.training.determinism import configure
from penstock.tasks.training.seeding import seed_phase, seed_torch
from trainers.trainer_here import Trainer
from trainers.trainer_process import TrainerProcess, known, segment
from user_code import trainees

SGD = {
    "lr": 0.05, "lr@2": 0.01, "lr@3": 0.002, "weight_decay": 0.0, "weight_decay@3": 0.1,
    "weight": 1.0, "weight@2": 0.5, "dropout": 0.3, "dropout@2": 0.6,
}  # fmt: skip
EPOCHS = 5
SEED = 7
FENCES = itertools.count(1)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


@pytest.fixture(scope="module", params=["sgd", "adam"])
def params(request):
    return SGD | {"optimizer": request.param}


def plain_loop(params, epochs=EPOCHS):
    """The hashes of a loop without any of Penstock's, whose user changes rates by hand."""
    configure(deterministic=True)
    cpu, now = torch.device("cpu"), {}
    code = trainees.Stepped(in_force(params, 0))
    data = code.data().train
    seed_phase(cpu, "init", SEED, 0)
    model = code.model()
    optimizer = code.optimizer(model)
    x, y = (each[list(data.indices)] for each in data.dataset.tensors)
    found = []
    for epoch in range(1, epochs + 1):
        now |= entering(params, epoch - 1)
        for group in optimizer.param_groups:
            group["lr"], group["weight_decay"] = now["lr"], now["weight_decay"]
        generator = torch.Generator().manual_seed(key("order", SEED, 0, epoch))
        order = torch.randperm(len(x), generator=generator)
        model.train()
        for step, rows in enumerate(order.split(code.batch_size), 1):
            seed_torch(cpu, key("step", SEED, 0, epoch, step, 0))
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x[rows]), y[rows]) * now["weight"]
            loss.backward()
            optimizer.step()
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        found.append(state_hash(state | {"schedule": None}))
    return found


@pytest.fixture(scope="module")
def expected(params, one_thread):
    return plain_loop(params)


def hashes(heard):
    return [message["state_hash"] for message in heard if message["op"] == "epoch"]


def task(code, first=1, n=1, **changes):
    return segment(code, first, n, **{"fence": next(FENCES), "seed": SEED, **changes})


def test_steps_have_the_bits_of_a_plain_loop_that_changes_rates_by_hand(params, expected):
    assert hashes(Trainer().train(trainees.Stepped, 1, EPOCHS, params=params)) == expected
    held = {name: value for name, value in params.items() if "@" not in name}
    assert hashes(Trainer().train(trainees.Stepped, 1, 3, params=held))[2] != expected[2]


@pytest.mark.parametrize("first", [2, 3, 4, 5])
def test_segments_of_a_warm_trial_have_the_same_bits(params, expected, first):
    trainer = Trainer()
    found = hashes(trainer.train(trainees.Stepped, 1, first - 1, params=params))
    n = EPOCHS + 1 - first
    found += hashes(trainer.train(trainees.Stepped, first, n, params=params, expect=found[-1]))
    assert found == expected


@pytest.mark.parametrize("first", [3, 4, 5])
def test_a_trial_that_goes_on_from_a_checkpoint_has_the_same_bits(
    params, expected, first, tmp_path
):
    source, before = Trainer(), first - 1
    store = f"file://{tmp_path}"
    source.train(trainees.Stepped, 1, before, params=params, final=True, store=store)
    said = source.durable.get(timeout=PATIENCE)
    parent = {name: said[name] for name in ("epoch", "uri", "state_hash")}
    n, other = EPOCHS + 1 - first, Trainer()
    found = other.train(
        trainees.Stepped, first, n, params=params, expect=expected[before - 1], parents=[parent]
    )
    assert hashes(found) == expected[before:]
    assert other.replays() == []


def test_a_trainer_that_is_killed_is_replayed_to_the_same_bits(params, expected, tmp_path):
    with TrainerProcess(tmp_path / "one") as trainer:
        trainer.run(task(trainees.Stepped, 1, EPOCHS, params=params))
        heard = trainer.hear_until("epoch") + trainer.hear_until("epoch")
        trainer.process.kill()
        trainer.process.wait()
    assert hashes(heard) == expected[:2]
    with TrainerProcess(tmp_path / "other") as trainer:
        again = task(trainees.Stepped, 3, 3, params=params, expect=expected[1])
        heard = trainer.carry_out(again)
    assert hashes(heard) == expected[2:]
    assert [m["text"] for m in heard if m["op"] == "progress"] == [
        "replaying epoch 1 of 2", "replaying epoch 2 of 2",
    ]  # fmt: skip


def test_a_gang_of_two_has_the_bits_of_one_device_also_where_one_comes_later(params, tmp_path):
    sharded = {"params": params, "shards": 2}
    with TrainerProcess(tmp_path / "0") as head, TrainerProcess(tmp_path / "1") as other:
        alone = head.carry_out(task(trainees.Stepped, 1, EPOCHS, trial="s-1000", **sharded))
        head.say(op="release", trial="s-1000")
        found = head.carry_out(task(trainees.Stepped, 1, 2, trial="s-1000", **sharded))
        members = [head.identity, other.identity]
        together = task(
            trainees.Stepped, 3, 3, trial="s-1000", queues=["cpu.0", "cpu.1"],
            **sharded, **known(head, found),
        )  # fmt: skip
        for rank, trainer in enumerate([head, other]):
            trainer.run(together.model_copy(update={"rank": rank}), members)
        more = [trainer.hear_out() for trainer in (head, other)]
    assert hashes(found + more[0]) == hashes(alone)
    assert hashes(more[1]) == hashes(more[0])


@pytest.mark.extension("lanes")
def test_trials_that_take_turns_in_a_lane_have_each_their_own_pieces(params, expected, tmp_path):
    later = {**params, "lr@2": 0.03}
    tasks = [
        task(trainees.Stepped, 1, EPOCHS, trial=f"s-000{n}", number=0, params=each)
        for n, each in enumerate([params, later])
    ]
    with TrainerProcess(tmp_path / "log", seats=2) as lane:
        for each in tasks:
            lane.run(each)
        heard = [lane.hear() for _ in tasks]
        while sum(message.get("closes", False) for message in heard) < len(tasks):
            heard.append(lane.hear())
    one, other = (hashes(m for m in heard if m.get("trial") == each.trial) for each in tasks)
    assert one == expected
    assert other == plain_loop(later)
    assert one[:2] == other[:2], "one key and one first piece: the same trial so far"
    assert not set(one[2:]) & set(other[2:])


def test_a_forked_trial_goes_on_under_its_own_piece_in_force(params):
    source = loop.start(
        code := trainees.Stepped(in_force(params, 0)), code.data(), SEED, 0, pieces=Pieces(params)
    )
    for _ in range(3):
        loop.run_epoch(source, lambda *_: None, evaluated=False)
    own = params | {"lr": 0.9, "lr@2": 0.8, "lr@4": 0.7, "weight_decay@3": 0.2}
    del own["lr@3"]
    heir = loop.start(
        code := trainees.Stepped(in_force(own, 0)), code.data(), SEED, 1, pieces=Pieces(own)
    )
    heir.inherit(source.state(), 3)
    rates = [[group["lr"] for group in heir.optimizer.param_groups]]
    decays = [group["weight_decay"] for group in heir.optimizer.param_groups]
    for _ in range(2):
        loop.run_epoch(heir, lambda *_: None, evaluated=False)
        rates.append([group["lr"] for group in heir.optimizer.param_groups])
    assert rates == [[0.8], [0.8], [0.7]]
    assert decays == [0.2]


@pytest.mark.parametrize("way", ["params", "get", "in", "now"])
def test_reading_a_later_piece_is_refused_as_inexact(way):
    with pytest.raises(
        TrialFailed, match=r"reads 'lr@2'.* before 3: .*self\.now\('lr'\)"
    ) as refusal:
        Trainer().train(trainees.Early, params=SGD | {"way": way})
    assert refusal.value.kind == "inexact"


def test_params_show_what_is_in_force_from_the_start_and_nothing_else():
    trainer = Trainer()
    first = hashes(trainer.train(trainees.Stepped, 1, 3, params=SGD))
    warm = trainer.segments._warm.get("s-0000").training.code
    assert dict(warm.params) == in_force(SGD, 0)
    assert warm.now("lr") == SGD["lr@2"], "the third epoch was at work last"
    with pytest.raises(KeyError):
        warm.now("rate")
    assert first == plain_loop(SGD, 3)


@pytest.mark.parametrize(
    ("code", "changes", "words"),
    [
        (trainees.TwoRates, {}, "'lr' changes by Steps.* begin with 0.005, 0.05 and not with 0.05"),
        (trainees.Cosine, {}, "'lr' changes by Steps and by the CosineAnnealingLR"),
    ],
)
def test_an_option_that_a_piece_could_not_set_is_refused_before_the_first_step(
    code, changes, words
):
    with pytest.raises(TrialFailed, match=words) as refusal:
        Trainer().train(code, params=SGD | changes)
    assert refusal.value.kind == "inexact"
    assert "set the groups yourself" in str(refusal.value)


@pytest.mark.parametrize("code", [trainees.TwoRates, trainees.Cosine])
def test_what_is_not_the_option_of_a_piece_stays_as_the_users_code_has_it(code):
    decaying = {name: value for name, value in SGD.items() if not name.startswith("lr@")}
    trainer = Trainer()
    trainer.train(code, 1, 4, params=decaying)
    training = trainer.segments._warm.get("s-0000").training
    rates = [group["lr"] for group in training.optimizer.param_groups]
    assert rates == ([0.005, 0.05] if code is trainees.TwoRates else [pytest.approx(0.0125)])
    assert {group["weight_decay"] for group in training.optimizer.param_groups} == {0.1}


def test_an_epoch_function_reads_what_is_in_force_also_where_it_is_called_again(tmp_path):
    from user_code import epoch_functions as functions

    params, store = {"lr": 0.3, "lr@2": 0.2, "lr@3": 0.1}, f"file://{tmp_path}/store"
    with TrainerProcess(tmp_path / "one") as one, TrainerProcess(tmp_path / "other") as other:
        heard = one.carry_out(task(functions.follows_steps, 1, 3, params=params, store=store))
        again = task(functions.follows_steps, 4, 1, params=params, store=store, **known(one, heard))
        heard += other.carry_out(again)
        early = other.carry_out(task(functions.reads_early, trial="s-0009", params=params))[-1]
    said = [message["metrics"] for message in heard if message["op"] == "epoch"]
    assert [each["accuracy"] for each in said] == [0.3, 0.3, 0.2, 0.1]
    assert {each["before"] for each in said} == {0.3}
    assert (early["op"], early["kind"]) == ("failed", "inexact")
