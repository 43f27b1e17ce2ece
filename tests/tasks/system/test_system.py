"""Knobs in a trainer: the exact ones change no bit, the others show in the signature."""

import os

import pytest
import torch
from patience import PATIENCE
from penstock.base.errors import TrialFailed
from penstock.profiling.devices.signature import machine_of
from penstock.profiling.knobs.knobs import merged
from penstock.tasks.training import loop
from penstock.tasks.training.backward import _piece
from penstock.tasks.training.data import length
from penstock.tasks.training.determinism import signature
from torch import nn
from trainers.trainer_here import Trainer
from user_code import trainees
from user_code.system_trainees import (
    LAST,
    ONE,
    Drawn,
    Hungry,
    Noisy,
    Pictures,
    epochs,
    training,
)


@pytest.fixture(autouse=True)
def two_threads(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    yield
    torch.set_num_threads(1)


@pytest.mark.parametrize("shards", [1, 2])
def test_loader_workers_change_no_bit_of_data_that_draws_at_random(shards):
    alone = epochs(training(shards=shards))
    assert epochs(training(shards=shards, loader_workers=2)) == alone
    assert len({state for _, state in alone}) == 2


def test_what_was_turned_shows_in_the_signature_and_the_machines_part_does_not_change():
    usual = Trainer().train(Pictures, 1, 1)[0]["signature"]
    turned = Trainer().train(Pictures, 1, 1, system=merged(ONE, LAST))[0]["signature"]
    assert ";threads2;solo;" in usual
    assert ";threads1of2;solo.channels_last;" in turned
    assert machine_of(usual) == machine_of(turned)


def test_a_trial_with_turned_knobs_is_replayed_and_resumed_to_the_same_bits():
    system = merged(ONE, LAST)
    at = Trainer()
    whole = at.train(Pictures, 1, 3, system=system, final=True)
    durable = at.durable.get(timeout=PATIENCE)
    parents = [{k: durable[k] for k in ("epoch", "uri", "state_hash")}]
    last = whole[-1]["state_hash"]
    replayed = Trainer().train(Pictures, 3, 1, system=system, expect=whole[1]["state_hash"])
    assert replayed[0]["state_hash"] == last
    after = Trainer().train(Pictures, 4, 1, system=system, expect=last, parents=parents)
    assert (
        after[0]["state_hash"]
        == at.train(Pictures, 4, 1, system=system, expect=last)[0]["state_hash"]
    )


class Plain(trainees.Small):
    """No layer that looks at the whole batch; ``cores`` are those of the thread in each loss."""

    batch_size = 10

    def model(self):
        return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))

    def loss(self, model, batch):
        self.cores = [*getattr(self, "cores", []), len(os.sched_getaffinity(0))]
        return super().loss(model, batch)


@pytest.fixture
def every_core(monkeypatch):
    found = os.sched_getaffinity(0)
    if len(found) < 2:
        pytest.skip("affinity is about more than one core")
    monkeypatch.setenv("OMP_NUM_THREADS", str(len(found)))
    return len(found)


def test_a_pinned_trial_takes_its_steps_on_one_core_and_has_the_same_bits(every_core):
    alone = epochs(training(Plain))
    run = training(Plain, affinity="one core")
    assert epochs(run) == alone
    steps = -(-length(run.data.train) // 10)
    assert run.code.cores.count(1) == 2 * steps  # of both epochs; it is free while it validates
    assert len(os.sched_getaffinity(0)) == every_core


class Free(Noisy):
    """Examples that say how many cores their reader may use."""

    def __getitem__(self, i):
        x, y = trainees.points()[i]
        return x * 0 + len(os.sched_getaffinity(0)), y


class Seen(Drawn):
    """Its loss keeps what its examples say."""

    def data(self):
        return trainees.Data(Free(), Free())

    def loss(self, model, batch):
        self.seen = {*getattr(self, "seen", ()), *batch[0].flatten().tolist()}
        return super().loss(model, batch)


def test_loader_workers_of_a_pinned_trial_are_free(every_core):
    run = training(Seen, affinity="one core", loader_workers=1)
    run.code.seen = set()
    loop._train(run, lambda *_: None)
    assert run.code.seen == {float(every_core)}


def test_a_slot_that_shares_its_cores_refuses_to_pin(every_core, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", str(every_core - 1))
    with pytest.raises(TrialFailed, match="the trial has no core of its own") as raised:
        epochs(training(Plain, affinity="one core"), 1)
    assert raised.value.kind == "system"


@pytest.mark.parametrize("parts", [2, 4])
def test_micro_batches_have_the_batchs_gradient_but_for_rounding(parts):
    whole, cut = training(Plain), training(Plain, micro_batch=parts)
    [(usual, _)], [(found, _)] = epochs(whole, 1), epochs(cut, 1)
    assert found == pytest.approx(usual, rel=1e-4)
    for one, two in zip(whole.model.parameters(), cut.model.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-6)
    assert len(cut.code.cores) > parts * len(whole.code.cores) / 2  # it did go by parts
    assert f"solo.micro{parts};" in signature(cut)


@pytest.mark.parametrize(
    ("code", "shards", "words"),
    [(Pictures, 1, "normalises over the whole batch"), (Plain, 2, "shards")],
)
def test_micro_batches_are_refused_where_they_would_be_another_training(code, shards, words):
    with pytest.raises(TrialFailed, match=words) as raised:
        training(code, shards=shards, micro_batch=2)
    assert raised.value.kind == "system"


def test_a_batch_of_dicts_and_lists_is_cut_and_what_cannot_be_is_told():
    batch = {"x": torch.arange(4), "names": ["a", "b", "c", "d"], "both": (torch.zeros(4, 2),)}
    cut = _piece(batch, range(1, 3), 4)
    assert cut["x"].tolist() == [1, 2]
    assert cut["names"] == ["b", "c"]
    assert cut["both"][0].shape == (2, 2)
    with pytest.raises(TrialFailed, match="a float in it cannot be cut"):
        _piece({"x": 1.0}, range(2), 4)


def test_a_trial_over_its_limit_fails_and_the_trainer_serves_the_next_one():
    at = Trainer()
    at.train(Pictures, 1, 1, trial="s-0001")
    with pytest.raises(TrialFailed, match="its memory limit is 4 GiB") as raised:
        at.train(Hungry, 1, 1, system=ONE, memory_limit=4 << 30)
    assert raised.value.kind == "memory"
    assert not at.segments.keeps("s-0001")  # it would have counted, too
    [after] = at.train(Pictures, 1, 1, trial="s-0002")
    assert after["epoch"] == 1


def test_autocast_computes_in_other_numbers():
    run = training(Pictures, autocast="bfloat16")
    seen = []
    run.code.loss = lambda model, batch: (
        seen.append(model(batch[0]).dtype),
        nn.functional.cross_entropy(model(batch[0]), batch[1]),
    )[1]
    epochs(run, 1)
    assert torch.bfloat16 in seen
