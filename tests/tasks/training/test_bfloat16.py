"""Trials in bfloat16: what stays in float32, and the same bits however they are trained."""

from __future__ import annotations

import inspect
import subprocess
import sys
import textwrap
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from penstock.tasks.system.precision import Bfloat16
from penstock.tasks.training import loop
from torch import nn
from torch.utils.checkpoint import checkpoint
from trainers.trainer_here import Trainer
from trainers.trainer_process import TrainerProcess, hashes, hear_all, known, segment
from user_code import trainees
from user_code.system_trainees import LAST, Pictures, epochs, training

BF16 = (("autocast", "bfloat16"),)
CPU = torch.device("cpu")
SYSTEMS = [(), BF16, tuple(sorted(LAST + BF16))]


class Words(trainees.Small):
    """Embeddings, attention and LayerNorm; its weights are used twice."""

    batch_size = 16

    def data(self):
        x = torch.randint(0, 12, (48, 6), generator=torch.Generator().manual_seed(3))
        data = torch.utils.data.TensorDataset(x, (x.sum(1) > 33).long())
        return trainees.Data(data, data)

    def model(self):
        return WordsModel()


class WordsModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(12, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.head = nn.Linear(16, 2)

    def forward(self, x):
        h = self.layer(self.layer(self.embed(x)))
        return F.log_softmax(self.head(h.mean(1)), -1)


#: Losses that people write, of scores in bfloat16.
LOSSES = {
    "cross entropy": F.cross_entropy,
    "cross entropy, smoothed": lambda h, y: F.cross_entropy(h, y, label_smoothing=0.1),
    "log_softmax and nll": lambda h, y: F.nll_loss(F.log_softmax(h, -1), y),
    "by hand": lambda h, y: -torch.softmax(h, -1)[range(6), y].log().mean(),
    "squares": lambda h, y: F.mse_loss(h, h.detach() * 2),
    "squares by hand": lambda h, y: ((h - h.detach() * 2) ** 2).mean(),
    "absolute": lambda h, y: F.l1_loss(h, h.detach() * 2),
    "smooth": lambda h, y: F.smooth_l1_loss(h, h.detach() * 2),
    "huber": lambda h, y: F.huber_loss(h, h.detach() * 2),
    "binary": lambda h, y: F.binary_cross_entropy_with_logits(h, (h > 0).to(h.dtype)),
    "divergence": lambda h, y: F.kl_div(F.log_softmax(h, -1), F.softmax(h.detach() * 2, -1)),
    "divergence from normal": lambda h, y: -0.5 * (1 + h - h.pow(2) - h.exp()).sum(),
    "connectionist": lambda h, y: F.ctc_loss(
        F.log_softmax(h, -1)[:, None], torch.tensor([[1, 2]]), torch.tensor([6]), torch.tensor([2])
    ),
    "cosine": lambda h, y: F.cosine_embedding_loss(h, h * 2, torch.ones(6)),
    "triplet": lambda h, y: F.triplet_margin_with_distance_loss(h, h * 2, h * 3),
    "contrastive": lambda h, y: (h.logsumexp(-1) - F.normalize(h)[:, 0]).sum(),
    "mean of scores": lambda h, y: -h.mean(),
}


@pytest.mark.filterwarnings("ignore:reduction")
@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_is_computed_in_float32(name):
    torch.manual_seed(0)
    layer, x, y = nn.Linear(8, 5), torch.randn(6, 8), torch.tensor([0, 1, 2, 3, 4, 0])
    with Bfloat16(CPU):
        h = layer(x)
        loss = LOSSES[name](h, y)
    assert (h.dtype, loss.dtype) == (torch.bfloat16, torch.float32)
    wide = LOSSES[name](h.detach().float(), y)
    torch.testing.assert_close(
        loss.detach(), wide, rtol=5e-3 if "divergence" in name else 1e-4, atol=1e-4
    )
    loss.backward()
    assert layer.weight.grad.dtype == torch.float32


NORMS = [
    (lambda: nn.BatchNorm2d(8), (32, 8, 6, 6)),
    (lambda: nn.GroupNorm(2, 8), (32, 8, 6, 6)),
    (lambda: nn.InstanceNorm2d(8, affine=True), (32, 8, 6, 6)),
    (lambda: nn.LayerNorm(64), (64, 64)),
    (lambda: nn.RMSNorm(64), (64, 64)),
]


@pytest.mark.parametrize(("norm", "shape"), NORMS)
def test_a_norm_has_float32s_statistics_and_gradients(norm, shape):
    torch.manual_seed(0)
    x, g = (torch.randn(shape) * 3 + 5).bfloat16(), torch.randn(shape).bfloat16()
    found = []
    for narrow in (True, False):
        layer = norm()
        with Bfloat16(CPU) if narrow else torch.enable_grad():
            made = layer(x if narrow else x.float())
        made.backward(g.to(made.dtype))
        found.append([made.float(), *(p.grad for p in layer.parameters()), *layer.buffers()])
    torch.testing.assert_close(found[0][0], found[1][0], rtol=2**-8, atol=1e-6)  # once rounded
    torch.testing.assert_close(found[0][1:], found[1][1:], rtol=1e-4, atol=1e-4)


def test_a_trials_own_autocast_is_as_torchs_whatever_ran_before_in_its_process():
    def own():
        torch.manual_seed(0)
        layer, scores = torch.nn.LayerNorm(5), torch.nn.Linear(8, 5)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            made = layer(scores(torch.randn(6, 8))).log_softmax(-1)
        made.sum().backward()
        return [made, layer.weight.grad]

    with Bfloat16(CPU):
        assert own()[0].dtype == torch.float32
    made, gradient = own()
    assert made.dtype == torch.bfloat16
    # The sums of a gradient depend on the number of threads.
    threads = f"import torch\ntorch.set_num_threads({torch.get_num_threads()})\n"
    script = threads + textwrap.dedent(inspect.getsource(own)) + "print(*own())"
    fresh = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert fresh.stdout == f"{made} {gradient}\n"


def test_code_of_other_trials_has_torchs_autocast_after_a_segment_in_bfloat16():
    Trainer().train(Pictures, 1, 1, system=BF16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.ones(2).bfloat16().log_softmax(-1).dtype == torch.bfloat16


def test_cast_weights_are_not_kept():
    weight = nn.Parameter(torch.ones(2, 2))
    x = torch.ones(1, 2)
    with Bfloat16(CPU):
        before = F.linear(x, weight)
        with torch.no_grad():
            weight.mul_(3)
        assert F.linear(x, weight).tolist() == (3 * before).tolist()


class Checkpointed(Words):
    """A part of its model is computed again in the backward pass."""

    def model(self):
        return CheckpointedModel()


class CheckpointedModel(WordsModel):
    def forward(self, x):
        h = checkpoint(self.layer, self.embed(x), use_reentrant=False)
        return F.log_softmax(self.head(h.mean(1)), -1)


@pytest.mark.parametrize("code", [Pictures, Words, Checkpointed])
def test_an_epoch_is_repeated_to_the_bit_and_has_float32s_state(code):
    first = training(code, autocast="bfloat16")
    both = epochs(first)
    assert epochs(training(code, autocast="bfloat16")) == both
    assert both != epochs(training(code))
    state = first.optimizer.state_dict()["state"].values()
    tensors = [*first.model.state_dict().values(), *(t for each in state for t in each.values())]
    kinds = {each.dtype for each in tensors if isinstance(each, torch.Tensor)}
    assert kinds <= {torch.float32, torch.int64}


class Curious(Pictures):
    """Its data and its loss note whether autocast is on."""

    seen: ClassVar = set()

    def data(self):
        data = super().data()
        return trainees.Data(Read(data.train), Read(data.validation))

    def loss(self, model, batch):
        self.seen.add(("loss", torch.is_autocast_enabled("cpu")))
        return super().loss(model, batch)


class Read(torch.utils.data.Dataset):
    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        Curious.seen.add(("data", torch.is_autocast_enabled("cpu")))
        return self.data[i]


def test_data_is_read_outside_of_the_context_in_training_and_in_evaluation():
    Curious.seen.clear()
    code = Curious({})
    run = training(Pictures, autocast="bfloat16")
    run.code, run.data = code, code.data()
    loop.run_epoch(run, lambda *_: None)
    assert Curious.seen == {("loss", True), ("data", False)}


@pytest.mark.parametrize("system", SYSTEMS[1:])
def test_a_trainer_that_is_killed_is_followed_by_another_to_the_same_bits(tmp_path, system):
    whole = segment(Pictures, 1, 4, system=system)
    with TrainerProcess(tmp_path / "one") as one:
        heard = one.carry_out(whole)
        one.carry_out(segment(trainees.Small, 1, 1, trial="s-0005"))  # in between, in float32
        begun = one.carry_out(segment(Pictures, 1, 2, trial="s-0000", system=system, fence=2))
        resumed = known(one, begun)
        one.process.kill()
        one.process.wait()
    with TrainerProcess(tmp_path / "other") as other:
        rest = other.carry_out(
            segment(Pictures, 3, 2, system=system, fence=3, expect=resumed["expect"])
        )
    assert {key: value for key, value in hashes(heard).items() if key[1] > 2} == hashes(rest)
    assert (
        [m["signature"] for m in heard if m["op"] == "epoch"][-1]
        .split(";")[4]
        .endswith(".bfloat16")
    )


@pytest.mark.extension("lanes")
def test_trials_in_turns_have_their_own_precision_and_the_bits_they_have_alone(alone, lane):
    tasks = [
        segment(code, 1, 20, trial=f"s-{n:04}", fence=n + 1, seed=n, system=system)
        for n, (code, system) in enumerate(
            [(Pictures, BF16), (Pictures, ()), (Words, BF16), (Words, ())]
        )
    ]
    for each in tasks:
        lane.run(each)
    together = hear_all(lane, tasks)
    expected = {}
    for each in tasks:
        expected |= hashes(alone.carry_out(each))
    assert hashes(together) == expected
    order = [m["trial"] for m in together if m["op"] == "epoch"]
    assert order != sorted(order), "one after another"


@pytest.mark.parametrize("system", SYSTEMS[1:])
def test_a_gang_has_the_bits_of_one_process_with_its_shards(trainers, system):
    fence = 10 * len(system)  # members meet by it
    task = segment(Pictures, 1, 2, trial=f"s-{fence:04}", fence=fence, shards=2, system=system)
    alone = hashes(trainers[0].carry_out(task))
    members = [trainer.identity for trainer in trainers]
    both = task.model_copy(update={"queues": ("cpu.0", "cpu.1"), "fence": fence + 1})
    for rank, trainer in enumerate(trainers):
        trainer.run(both.model_copy(update={"rank": rank}), members)
    found = [trainer.hear_out() for trainer in trainers]
    assert hashes(found[0]) == alone
