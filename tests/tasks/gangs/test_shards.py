"""Shards are cut alike at every width, and train on the mean over the whole batch."""

from __future__ import annotations

import copy

import pytest
import torch
from penstock.base.errors import TrialFailed
from penstock.tasks.contracts.contract import Data, TorchTrainable
from penstock.tasks.contracts.rng import key
from penstock.tasks.gangs.shards import cut, refuse
from penstock.tasks.gangs.tree_sum import split
from penstock.tasks.training.determinism import signature
from penstock.tasks.training.loop import run_epoch, start
from torch import nn
from torch.utils.data import TensorDataset
from user_code.trainees import KeepsCount, Small, points


def train(code, shards, epochs=1, seed=3):
    training = start(code, code.data(), seed, 0, shards)
    results = [run_epoch(training, lambda *_: None) for _ in range(epochs)]
    return training, results[-1].metrics


class Plain(Small):
    """Nothing that depends on the shard but rounding: no dropout, no batch normalisation."""

    def data(self) -> Data:
        x, y = points().tensors
        return Data(TensorDataset(x[:70], y[:70]), TensorDataset(x[70:], y[70:]))

    def model(self):
        return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


class Clipped(Plain):
    def clip(self, model):
        self.clipped = getattr(self, "clipped", 0) + 1
        nn.utils.clip_grad_norm_(model.parameters(), 1e-3)


def test_a_batch_is_cut_in_contiguous_ranges_that_differ_by_one_at_most():
    for examples in range(8, 40):
        ranges = cut(examples, 4, 32)
        assert [place for part in ranges for place in part] == list(range(examples))
        assert max(map(len, ranges)) - min(map(len, ranges)) <= 1


@pytest.mark.parametrize(
    ("examples", "sizes"), [(9, [2, 2, 2, 3]), (3, [3]), (1, [1]), (16, [2] * 8)]
)
def test_a_small_last_batch_has_fewer_shards_but_none_of_one_example(examples, sizes):
    assert sorted(map(len, cut(examples, 8, 64))) == sizes


def test_shards_of_one_example_are_cut_where_whole_batches_have_them():
    assert list(map(len, cut(8, 8, 8))) == [1] * 8


def test_more_members_than_things_leaves_some_without():
    assert [len(part) for part in split(2, 3)] == [0, 1, 1]


def test_one_shard_is_the_plain_loop_bit_for_bit():
    code = Small({"optimizer": "adam"})
    trained, metrics = train(code, 1)
    other = start(code, code.data(), 3, 0)
    train_data, order_key = other.data.train, key("order", 3, 0, 1)
    order = torch.randperm(80, generator=torch.Generator().manual_seed(order_key))
    other.model.train()
    losses = []
    for step, part in enumerate(order.split(20), 1):
        torch.manual_seed(key("step", 3, 0, 1, step, 0))
        x, y = zip(*(train_data[i] for i in part.tolist()), strict=True)
        loss = code.loss(other.model, (torch.stack(x), torch.stack(y)))
        other.optimizer.zero_grad()
        loss.backward()
        other.optimizer.step()
        losses.append(loss.detach())
    other.schedule.step()
    assert other.hash() == trained.hash()
    assert metrics["train_loss"] == 20 * float(torch.stack(losses).double().sum()) / 80


@pytest.mark.parametrize("shards", [2, 3, 8, 20])
def test_the_gradient_is_the_mean_over_the_batch_up_to_rounding(shards):
    whole, metrics = train(Plain({}), 1, epochs=2)
    cut_up, metrics_of_cut = train(Plain({}), shards, epochs=2)
    for mine, theirs in zip(whole.model.parameters(), cut_up.model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    assert metrics == pytest.approx(metrics_of_cut, rel=1e-4)
    assert whole.hash() != cut_up.hash(), "rounding differs, and the signature says so"
    assert signature(whole) != signature(cut_up)
    assert signature(cut_up).startswith(f"S{shards};")


def test_gradients_are_clipped_once_a_step_after_they_were_combined():
    code = Clipped({})
    training, _ = train(code, 4)
    assert code.clipped == 4
    norm = torch.cat([p.grad.flatten() for p in training.model.parameters()]).norm()
    assert norm <= 1e-3 * (1 + 1e-5)
    whole, _ = train(Clipped({}), 1)
    for mine, theirs in zip(whole.model.parameters(), training.model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs)


class OneStep(Small):
    """One batch of 20, without dropout: its statistics can be told by hand."""

    def data(self) -> Data:
        x, y = points().tensors
        return Data(TensorDataset(x[:20], y[:20]), TensorDataset(x[20:], y[20:]))

    def model(self):
        return nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2))


@pytest.mark.parametrize("shards", [2, 4, 8])
def test_batch_norm_normalises_within_its_shard_and_its_statistics_are_means(shards):
    code = OneStep({})
    training, _ = train(code, shards)
    norm = training.model[0]
    generator = torch.Generator().manual_seed(key("order", 3, 0, 1))
    x = training.data.train.tensors[0][torch.randperm(20, generator=generator)]
    mean, var = torch.zeros(4), torch.zeros(4)
    for part in cut(20, shards, 20):
        rows = x[part.start : part.stop]
        mean += rows.mean(0) * len(part) / 20
        var += rows.var(0) * len(part) / 20
    torch.testing.assert_close(norm.running_mean, 0.1 * mean)
    torch.testing.assert_close(norm.running_var, 0.9 + 0.1 * var)
    assert norm.num_batches_tracked == 1, "a step counts once, however many shards it has"


class Frozen(OneStep):
    """Its batch normalisation stays in evaluation mode, as in fine-tuning."""

    def loss(self, model, batch):
        model[0].eval()
        return super().loss(model, batch)

    def model(self):
        model = super().model()
        model[0].train = lambda mode=True: model[0]
        model[0].training = False
        return model


def test_a_frozen_batch_norm_keeps_its_statistics():
    training, _ = train(Frozen({}), 4)
    assert training.model[0].running_mean.eq(0).all()
    assert training.model[0].num_batches_tracked == 0


class Unused(Plain):
    def model(self):
        model = super().model()
        model.register_module("beside", nn.Linear(3, 3))
        model.forward = nn.Sequential(*list(model)[:3]).forward
        return model

    def optimizer(self, model):
        return torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)


def test_a_parameter_that_is_never_used_is_left_alone():
    code = Unused({})
    before = copy.deepcopy(start(code, code.data(), 3, 0).model.beside.state_dict())
    training, _ = train(code, 4)
    assert torch.equal(training.model.beside.weight, before["weight"])
    assert training.model.beside.weight.grad is None


def test_a_buffer_that_cannot_be_combined_over_shards_is_named():
    with pytest.raises(TrialFailed, match=r"changed the buffer seen.*shards=1") as failure:
        train(KeepsCount({}), 2)
    assert failure.value.kind == "inexact"
    assert train(KeepsCount({}), 1)[0].model.seen == 80


def test_in_a_statistical_study_it_is_left_as_shard_0_makes_it():
    code = KeepsCount({})
    loose = start(code, code.data(), 3, 0, 2, statistical=True)
    run_epoch(loose, lambda *_: None)
    assert loose.model.seen == 80 / 2
    order = torch.randperm(80, generator=torch.Generator().manual_seed(key("order", 3, 0, 1)))
    centre = torch.zeros(4)
    for batch in order.split(20):
        centre = 0.9 * centre + 0.1 * points().tensors[0][batch[:10]].mean(0)
    assert torch.equal(loose.model.centre, centre)


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (nn.SyncBatchNorm(4), r"layer 1 \(SyncBatchNorm\) mixes the whole batch"),
        (nn.DataParallel(nn.Linear(4, 4)), r"layer 1 \(DataParallel\) splits batches itself"),
        (nn.Embedding(4, 4, sparse=True), r"layer 1 \(Embedding\) has sparse gradients"),
    ],
)
def test_layers_that_cannot_be_cut_are_refused_by_name(layer, why):
    with pytest.raises(TrialFailed, match=why) as failure:
        refuse(nn.Sequential(nn.Linear(4, 4), layer), 64, 2)
    assert failure.value.kind == "inexact"


class Synchronised(Plain):
    def model(self):
        return nn.SyncBatchNorm.convert_sync_batchnorm(Small({}).model())

    def loss(self, model, batch):
        raise AssertionError("training began")


def test_a_trial_is_refused_before_its_first_step():
    code: TorchTrainable = Synchronised({})
    with pytest.raises(TrialFailed, match="SyncBatchNorm"):
        start(code, code.data(), 3, 0, 2)
    with pytest.raises(TrialFailed, match="batch of 20 cannot be cut in 21 shards"):
        start(Plain({}), Plain({}).data(), 3, 0, 21)
