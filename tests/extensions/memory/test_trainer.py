"""A trial's memory: traced before it runs, and measured in its first steps.

Both are compared with the allocator's own events.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import time
from pathlib import Path

import psutil
import pytest
import torch
from patience import PATIENCE
from penstock import Data, TorchTrainable
from penstock.extensions.memory.traces import estimator
from penstock.extensions.memory.traces.allocator import peak_bytes
from penstock.extensions.memory.traces.estimator import Estimator, in_child
from penstock.extensions.memory.traces.meter import MemoryMeter
from penstock.extensions.memory.traces.scratch import allocations
from penstock.extensions.memory.traces.storages import held_beside
from penstock.extensions.memory.traces.trace import trace
from penstock.tasks.system.system import System
from penstock.tasks.training import loop
from torch import nn
from torch.autograd.profiler import profile
from torch.nn import functional
from torch.utils.data import Dataset, TensorDataset
from trainers.trainer_here import Trainer
from trainers.trainer_process import segment
from user_code.trainees import Small


def told(*others):
    """Return what a segment tells of trials that are to be estimated."""
    return {"memory": {"estimate": others}}


class Family(TorchTrainable):
    """Classifies random examples of ``shape``; ``metrics`` reads a number from a tensor."""

    batch_size = 32
    shape: tuple[int, ...] = (64,)

    def data(self):
        return Data(self.examples(200), self.examples(70))

    def examples(self, n):
        inputs = torch.randn(n, *self.shape, generator=torch.Generator().manual_seed(n))
        return TensorDataset(inputs, torch.arange(n) % 10)

    def optimizer(self, model):
        return torch.optim.AdamW(model.parameters(), lr=1e-3)

    def loss(self, model, batch):
        return functional.cross_entropy(model(batch[0]), batch[1])

    def metrics(self, model, batch):
        found = model(batch[0]).argmax(1)
        return {"accuracy": (found == batch[1]).float().mean().item()}


class Mlp(Family):
    def model(self):
        return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 10))


class Linear(Family):
    shape = (5000,)

    def model(self):
        return nn.Linear(5000, 10)

    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), lr=0.1)


class Cnn(Family):
    shape = (3, 16, 16)

    def model(self):
        return nn.Sequential(
            *(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 3, padding=1), nn.GroupNorm(4, 32), nn.SiLU()),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)),
        )


class _Last(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.layer, self.head = kind(32, 48, 2, batch_first=True), nn.Linear(48, 10)

    def forward(self, x):
        return self.head(self.layer(x)[0][:, -1])


class Lstm(Family):
    shape = (12, 32)

    def model(self):
        return _Last(nn.LSTM)


class Gru(Lstm):
    def model(self):
        return _Last(nn.GRU)


class _Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2
        )
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        return self.head(self.layers(x).mean(1))


class Transformer(Family):
    shape = (12, 32)

    def model(self):
        return _Attends()


class _Tied(nn.Module):
    """Embeddings tied to the head, and a mask that is no buffer."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(500, 32), nn.Linear(32, 500, bias=False)
        self.head.weight = self.embed.weight
        self.mask = torch.ones(12, 1)

    def forward(self, x):
        return self.head((self.embed(x) * self.mask).mean(1))


class Tied(Family):
    def examples(self, n):
        return TensorDataset(torch.arange(n * 12).reshape(n, 12) % 500, torch.arange(n) % 500)

    def model(self):
        return _Tied()


class Squares(Cnn):
    """torch's mean squared error keeps the memory of all squares."""

    def model(self):
        return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 3, 3, padding=1))

    def loss(self, model, batch):
        return functional.mse_loss(model(batch[0]), batch[0])

    def metrics(self, model, batch):
        return {}


class Product(Mlp):
    """Of a product of numbers of which one is zero, torch has two derivatives.

    Under a dispatch mode it takes the other one, and other bits come out.
    """

    def loss(self, model, batch):
        found = functional.relu(model(batch[0]))
        return super().loss(model, batch) + found.prod(1).mean()


class _Files(Dataset):
    """Examples that are read one by one, with a label that is a plain number."""

    def __len__(self):
        return 100

    def __getitem__(self, i):
        return {"image": torch.randn(3, 16, 16), "label": i % 10}


class Read(Cnn):
    def examples(self, n):
        return _Files()

    def loss(self, model, batch):
        return functional.cross_entropy(model(batch["image"]), batch["label"])

    def metrics(self, model, batch):
        return {"accuracy": 0.5}


class OneStep(Mlp):
    """An epoch has one step."""

    batch_size = 500


FAMILIES = [Mlp, Linear, Cnn, Squares, Lstm, Gru, Transformer, Tied, Read, OneStep]


def begin(code, shards=1, system=None):
    made = code({})
    return loop.start(made, made.data(), 3, 0, shards, system=system)


def measure(run):
    """The footprint of the next epoch, and the epoch's result."""
    run.meter = meter = MemoryMeter(run.model, run.optimizer, run.device)
    result = loop.run_epoch(run, lambda *_: None)
    run.meter = None
    return meter.footprint(), result


def truth(code, shards=1):
    """The allocator's own count over two epochs, from the model's making on."""
    made = code({})
    data = made.data()
    with profile(profile_memory=True) as seen:
        run = loop.start(made, data, 3, 0, shards)
        for _ in range(2):
            loop.run_epoch(run, lambda *_: None)
    return peak_bytes(sorted(allocations(seen)))


@pytest.mark.parametrize("code", FAMILIES)
def test_estimate_and_measurement_are_what_the_allocator_counts(code):
    estimate, recurrent = trace(begin(code))
    run = begin(code)
    if code is OneStep:
        loop.run_epoch(run, lambda *_: None)  # the optimiser has its state
    measured, _ = measure(run)
    counted = truth(code)
    assert measured.peak == pytest.approx(counted, rel=0.01)
    assert estimate.peak == pytest.approx(counted, rel=0.1 if code is Lstm else 0.01)
    assert estimate.persistent == measured.persistent
    assert recurrent == (code in (Lstm, Gru))


@pytest.mark.parametrize("code", [*FAMILIES, Product])
def test_measuring_changes_no_bit_and_no_metric(code):
    plain, followed = begin(code), begin(code)
    for _ in range(2):
        result = loop.run_epoch(plain, lambda *_: None)
        assert measure(followed)[1].metrics == result.metrics
        assert plain.hash() == followed.hash()


def test_shards_and_micro_batches_and_autocast_are_estimated_as_they_run():
    whole, _ = trace(begin(Mlp))
    sharded, _ = trace(begin(Mlp, shards=4))
    assert sharded.peak == pytest.approx(truth(Mlp, shards=4), rel=0.01)
    assert sharded.peak != whole.peak
    parts, _ = trace(begin(Transformer, system=System({"micro_batch": 4})))
    half, _ = trace(begin(Transformer, system=System({"autocast": "bfloat16"})))
    full, _ = trace(begin(Transformer))
    assert parts.ephemeral < 0.6 * full.ephemeral
    assert half.ephemeral < 0.9 * full.ephemeral


class ByValue(Mlp):
    """A trainable whose tensors depend on values."""

    def loss(self, model, batch):
        kept = batch[1][batch[1] > 3]
        return functional.cross_entropy(model(batch[0]), batch[1]) + kept.float().mean()


class Leaves(Mlp):
    """Keeps what it computed, and ends the process after its first step."""

    def loss(self, model, batch):
        Leaves.kept = model(batch[0])
        if getattr(self, "seen", False):
            faulthandler.disable()  # of pytest: it would print where that was
            os.abort()
        self.seen = True
        return super().loss(model, batch)


class Hangs(Mlp):
    def loss(self, model, batch):
        time.sleep(3600)


def affordable():
    estimator_ = Estimator()
    estimator_.trained(1e6)
    return estimator_


@pytest.mark.parametrize(
    ("code", "why"),
    [(ByValue, "aten.nonzero"), (Leaves, "status -6"), (Hangs, "more than 1 s")],
)
def test_code_that_cannot_be_traced_is_said_so_and_leaves_nothing(monkeypatch, code, why):
    children = set(psutil.Process().children())  # of other tests
    monkeypatch.setattr(estimator, "TIMEOUT", 1.0 if code is Hangs else PATIENCE)
    found = affordable().estimate(lambda: begin(code))
    assert why in found["failed"]
    assert found["persistent"] == found["ephemeral"] == 0
    assert not hasattr(Leaves, "kept")
    assert set(psutil.Process().children()) <= children


def test_a_child_says_what_it_found_or_how_it_ended():
    assert in_child(lambda: {"a": [1, "x" * 200_000]}, PATIENCE) == {"a": [1, "x" * 200_000]}
    assert "status 5" in in_child(lambda: os._exit(5), PATIENCE)["failed"]
    assert "status -9" in in_child(lambda: os.kill(os.getpid(), signal.SIGKILL), PATIENCE)["failed"]
    assert "status 1" in in_child(lambda: {"a": object()}, PATIENCE)["failed"]
    score = "/proc/self/oom_score_adj"
    assert in_child(lambda: {"score": Path(score).read_text()}, PATIENCE) == {"score": "1000\n"}


def test_where_no_process_can_be_forked_the_trial_goes_on_without_an_estimate(monkeypatch):
    def refuses():
        raise BlockingIOError(11, "Resource temporarily unavailable")

    made, pipe = [], os.pipe
    monkeypatch.setattr(os, "pipe", lambda: made.append(pipe()) or made[-1])
    monkeypatch.setattr(os, "fork", refuses)
    assert "temporarily unavailable" in affordable().estimate(lambda: begin(Mlp))["failed"]
    [ends] = made
    for end in ends:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(end)


def test_a_process_that_has_used_a_gpu_is_not_forked_for_an_estimate(monkeypatch):
    """In such a child autograd hangs; what asks is the trainer, which would wait for it."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("it was forked"))
    account = affordable()
    assert account.estimate(lambda: begin(Mlp))["failed"] == estimator.USES_GPU
    assert account.affords_estimate(), "nothing was spent"


def test_estimates_take_a_hundredth_of_the_time_that_is_trained():
    account = Estimator()
    assert not account.affords_estimate()
    assert not account.affords_measurement()
    account.trained(2 * estimator.MEASUREMENT / estimator.SHARE)
    assert account.affords_measurement()
    account.measured(estimator.MEASUREMENT)
    assert not account.affords_measurement(), "half of the time is for estimates"
    account.trained((estimator.ESTIMATE + estimator.MEASUREMENT) / estimator.SHARE)
    assert account.affords_estimate()
    began = time.monotonic()
    assert account.estimate(lambda: begin(Mlp))["failed"] == ""
    account.trained(10 * (time.monotonic() - began) / estimator.SHARE)
    n = 0
    while account.affords_estimate():
        account.estimate(lambda: begin(Mlp))
        n += 1
    assert 0 < n <= 1000, "it ends"


class _Positioned(Dataset):
    """Reads the next bytes of an open file, whose position a forked process shares."""

    def __init__(self, file):
        self._file = file

    def __len__(self):
        return 40

    def __getitem__(self, i):
        self._file.seek(64 * i)
        return torch.frombuffer(bytearray(os.read(self._file.fileno(), 64)), dtype=torch.uint8)


class Positioned(Mlp):
    def data(self):
        file = Path(self.params["file"]).open("rb", buffering=0)  # noqa: SIM115 - as users do
        return Data(_Positioned(file), _Positioned(file))

    def model(self):
        return nn.Linear(64, 2)

    def loss(self, model, batch):
        return model(batch.float()).square().mean()

    def metrics(self, model, batch):
        return {"accuracy": 0.5}


def test_open_files_of_data_sets_are_not_read_in_the_child(tmp_path, monkeypatch):
    """The estimate sees only what was read of them before the fork."""
    file = tmp_path / "bytes"
    file.write_bytes(bytes(64 * 40))
    trainer = Trainer()
    trainer.segments.hook["memory"].estimator.trained(1e6)
    plain = _Positioned.__getitem__

    def noted(self, i):
        if os.getpid() != trainer_process_id:
            os._exit(7)
        return plain(self, i)

    trainer_process_id = os.getpid()
    monkeypatch.setattr(_Positioned, "__getitem__", noted)
    params = {"file": str(file)}
    other = {"trial": "st-0001", "number": 1, "params": params}
    first = trainer.train(Positioned, 1, 1, params=params)
    trainer.train(Positioned, 2, 1, params=params, ext=told(other), expect=first[0]["state_hash"])
    (said,) = [line for line in trainer.said if line["op"] == "footprint" and not line["measured"]]
    assert said["failed"] == ""
    assert said["ephemeral"] > 20 * 64, "examples of that size"


class Profiles(Small):
    """Profiles each of its losses."""

    def loss(self, model, batch):
        with profile() as seen:
            found = super().loss(model, batch)
        assert seen.kineto_results is not None
        return found


def test_code_that_profiles_itself_is_not_measured_and_is_left_alone():
    trainer = Trainer()
    trainer.segments.hook["memory"].estimator.trained(1e6)
    assert len(trainer.train(Profiles, 1, 2)) == 2
    with profile() as seen:
        assert len(Trainer().train(Small, 1, 2)) == 2
        trained = Trainer()
        trained.segments.hook["memory"].estimator.trained(1e6)
        trained.train(Small)
    assert list(seen.kineto_results.events()), "ours has not ended theirs"
    assert not [line for line in trainer.said + trained.said if line["op"] == "footprint"]


class Taught(Mlp):
    """A second model, of which it learns."""

    def data(self):
        self.teacher = nn.Linear(64, 4096)
        return super().data()

    def loss(self, model, batch):
        with torch.no_grad():
            goal = self.teacher(batch[0]).mean()
        return super().loss(model, batch) + goal * 0


def test_a_teacher_counts_as_persistent():
    alone, _ = trace(begin(Mlp))
    taught, _ = trace(begin(Taught))
    teacher = 4 * (64 * 4096 + 4096)
    assert taught.persistent == alone.persistent + teacher
    run = begin(Taught)
    beside = tuple(held_beside(run.code, run.model))
    run.meter = meter = MemoryMeter(run.model, run.optimizer, run.device, beside)
    loop.run_epoch(run, lambda *_: None)
    assert meter.footprint().persistent == taught.persistent
    assert meter.footprint().peak == pytest.approx(taught.peak, rel=0.01)


def test_a_trainer_estimates_the_trials_that_it_is_told_and_measures_each_once():
    trainer = Trainer()
    trainer.segments.hook["memory"].estimator.trained(1e6)
    others = [
        {"trial": f"st-000{i}", "number": i, "params": {"optimizer": name}}
        for i, name in enumerate(("sgd", "adam"))
    ]
    first = trainer.train(Small, 1, 2, ext=told(*others))
    trainer.train(Small, 3, 1, expect=first[-1]["state_hash"])
    said = [line for line in trainer.said if line["op"] == "footprint"]
    assert [(line["of"], line["measured"]) for line in said] == [
        ("st-0000", False),
        ("st-0001", False),
        (segment(Small).trial, True),
    ]
    sgd, adam, measured = said
    assert adam["persistent"] > sgd["persistent"]
    assert measured["persistent"] == sgd["persistent"]
    alone = Trainer().train(Small, 1, 2)
    assert [e["state_hash"] for e in alone] == [e["state_hash"] for e in first]


class FailsOnce(Small):
    """Its second step fails, as long as ``fails`` says so."""

    fails = True

    def loss(self, model, batch):
        self.steps = getattr(self, "steps", 0) + 1
        if FailsOnce.fails and self.steps == 2:
            raise ValueError("no")
        return super().loss(model, batch)


def test_an_epoch_that_fails_while_it_is_measured_leaves_no_recording():
    trainer = Trainer()
    trainer.segments.hook["memory"].estimator.trained(1e6)
    with pytest.raises(ValueError, match="no"):
        trainer.train(FailsOnce)
    FailsOnce.fails = False
    trainer.train(FailsOnce)
    assert [line["measured"] for line in trainer.said if line["op"] == "footprint"] == [True]
