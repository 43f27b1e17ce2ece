"""A fault in one trial affects no other trial; a fault in fusion changes no bits."""

from __future__ import annotations

import random
import traceback

import numpy as np
import pytest
import torch
from penstock.extensions.fusion.epoch import Row
from penstock.extensions.fusion.fusion import Fusion
from penstock.extensions.fusion.group import Group
from penstock.extensions.fusion.known import FASTER
from penstock.extensions.fusion.operators import linear, losses
from penstock.tasks.contracts import rng
from penstock.tasks.contracts.pieces import Pieces
from penstock.tasks.training import loop
from penstock.tasks.training.training import Training
from torch.nn import functional as F  # noqa: N812
from user_code import fused_code as code
from user_code.fused_code import params, rows, trial

pytestmark = pytest.mark.usefixtures("one_thread", "whatever_it_takes")


class Stopped(BaseException):
    """The exception that a tick raises."""


def bad(n: int, what: str, kind=code.Fails):
    """A trial that turns bad in its third epoch."""
    made = trial(kind, n, {**params(n), "bad": ""})
    made.pieces = made.code._pieces = Pieces({**params(n), "bad": "", "bad@2": what})
    return made


def results(fusion, runs):
    return fusion.run_epochs(rows(runs))


@pytest.mark.parametrize("step", [1, 2, 4])
def test_a_tick_that_raises_ends_one_trial_s_epoch(step):
    fusion = Fusion()
    runs, alone = ([trial(code.Mlp, n, params(n)) for n in range(4)] for _ in range(2))
    results(fusion, runs)
    [loop.run_epoch(run, code.quiet) for run in alone]

    def tick(epoch, at, steps):
        if at == step:
            raise Stopped

    outcomes = fusion.run_epochs(
        [Row(run, tick if n == 1 else code.quiet) for n, run in enumerate(runs)]
    )
    with pytest.raises(Stopped):
        loop.run_epoch(alone[1], tick)
    expected = [loop.run_epoch(run, code.quiet) if n != 1 else None for n, run in enumerate(alone)]
    assert isinstance(outcomes[1], Stopped)
    assert [o.metrics for n, o in enumerate(outcomes) if n != 1] == [
        each.metrics for each in expected if each is not None
    ]
    # The one that was stopped is as it is alone after as many steps, and shares no memory.
    assert [run.hash() for run in runs] == [run.hash() for run in alone]
    before = runs[1].hash()
    results(fusion, [runs[n] for n in (0, 2, 3)])
    assert runs[1].hash() == before


@pytest.mark.parametrize("gone", [0, 4])
def test_one_that_was_with_them_is_forgotten_while_they_are_stepped(gone):
    """Trials of a lane take turns between two steps, in which others may leave the process."""
    fusion = Fusion()
    runs, alone = ([trial(code.Mlp, n, params(n, opt="adamw")) for n in range(5)] for _ in range(2))
    for _ in range(2):
        results(fusion, runs)
        [loop.run_epoch(run, code.quiet) for run in alone]
    left = [n for n in range(5) if n != gone]

    def tick(epoch, step, steps):
        if step == 3:
            fusion.forget(runs[gone])

    for each in (tick, code.quiet):
        fusion.run_epochs([Row(runs[n], each) for n in left])
        [loop.run_epoch(alone[n], code.quiet) for n in left]
        assert [run.hash() for run in runs] == [run.hash() for run in alone]


@pytest.mark.parametrize("step", [2, 3])
def test_two_parts_of_a_group_are_stepped_in_turns(step):
    fusion, kind = Fusion(), code.Dropout
    runs, alone = ([trial(kind, n, params(n, opt="adamw")) for n in range(5)] for _ in range(2))
    for _ in range(4):  # none is timed alone in the fifth
        results(fusion, runs)
        [loop.run_epoch(run, code.quiet) for run in alone]
    found = []

    def tick(epoch, at, steps):
        if at == step and not found:
            states = rng.save()  # as for any trial that has its turn
            found.extend(results(fusion, runs[2:]))
            rng.restore(states, 0)

    found += fusion.run_epochs([Row(runs[n], tick if n == 1 else code.quiet) for n in (0, 1)])
    [loop.run_epoch(run, code.quiet) for run in alone]
    assert [each.group_size for each in found] == [3, 3, 3, 2, 2]
    assert [run.hash() for run in runs] == [run.hash() for run in alone]
    assert fusion.refusal(runs[0]) == ""


def test_all_may_be_stopped_at_once():
    def tick(epoch, at, steps):
        raise Stopped

    runs = [trial(code.Mlp, n, params(n)) for n in range(3)]
    outcomes = Fusion().run_epochs(rows(runs, tick))
    assert [type(each) for each in outcomes] == [Stopped] * 3


@pytest.mark.parametrize("kind", [code.Fails, code.ClipFails])
def test_one_that_raises_has_its_own_traceback_and_others_their_bits(kind):
    fusion = Fusion()
    make = [lambda n=n: bad(n, "raise" if n == 1 else "", kind) for n in range(3)]
    runs, alone = [each() for each in make], [each() for each in make]
    for _ in range(2):
        results(fusion, runs)
        [loop.run_epoch(run, code.quiet) for run in alone]
    outcomes = results(fusion, runs)
    expected = [loop.run_epoch(alone[n], code.quiet) for n in (0, 2)]
    assert isinstance(outcomes[1], ArithmeticError)
    said = "".join(traceback.format_exception(outcomes[1]))
    assert "fused_code.py" in said
    assert [outcomes[n].metrics for n in (0, 2)] == [each.metrics for each in expected]
    assert [runs[n].hash() for n in (0, 2)] == [alone[n].hash() for n in (0, 2)]
    assert fusion.refusal(runs[0]) == ""


def test_nan_stays_where_it_is():
    fusion = Fusion()
    make = [
        lambda n=n: trial(code.Mlp, n, {**params(n), "lr": 1e30 if n == 1 else 0.01})
        for n in range(3)
    ]
    runs, alone = [each() for each in make], [each() for each in make]
    for _ in range(4):
        outcomes = results(fusion, runs)
        expected = [loop.run_epoch(run, code.quiet) for run in alone]
        assert repr([each.metrics for each in outcomes]) == repr(
            [each.metrics for each in expected]
        )
        assert [run.hash() for run in runs] == [run.hash() for run in alone]
    assert outcomes[1].metrics["train_loss"] != outcomes[1].metrics["train_loss"]
    assert fusion.refusal(runs[0]) == ""


@pytest.mark.parametrize("since", [0, 3])
def test_a_rule_that_is_wrong_is_caught_and_the_epoch_is_right(monkeypatch, since):
    fusion = Fusion()
    runs, alone = ([trial(code.Mlp, n, params(n)) for n in range(3)] for _ in range(2))
    calls = []
    right = linear._Linear.backward

    def wrong(ctx, grad):
        by_x, by_weight, by_bias = right(ctx, grad)
        calls.append(len(calls))
        return by_x, by_weight, by_bias.mul(1 + 2**-23)

    for epoch in range(5):
        if epoch == since:
            monkeypatch.setattr(linear._Linear, "backward", staticmethod(wrong))
        outcomes = results(fusion, runs)
        expected = [loop.run_epoch(run, code.quiet) for run in alone]
        assert [each.metrics for each in outcomes] == [each.metrics for each in expected]
        assert [run.hash() for run in runs] == [run.hash() for run in alone]
    assert calls
    assert "other bits together than alone" in fusion.refusal(runs[0])


def test_a_metric_that_is_wrong_is_caught(monkeypatch):
    fusion = Fusion()
    runs, alone = ([trial(code.Mlp, n, params(n)) for n in range(3)] for _ in range(2))
    right = losses.nll_of_all

    def wrong(*args):
        return right(*args) * (1 + (not torch.is_grad_enabled()) * 2**-20)

    for epoch in range(5):
        if epoch == 3:
            monkeypatch.setattr(losses, "nll_of_all", wrong)
        outcomes = results(fusion, runs)
        expected = [loop.run_epoch(run, code.quiet) for run in alone]
        assert [each.metrics for each in outcomes] == [each.metrics for each in expected]


def test_what_fails_only_together_is_not_tried_again(monkeypatch):
    fusion = Fusion()
    runs, alone = ([trial(code.Mlp, n, params(n)) for n in range(3)] for _ in range(2))

    def broken(*args):
        raise MemoryError("no more")

    results(fusion, runs)
    monkeypatch.setattr(losses, "nll_of_all", broken)
    results(fusion, runs)
    assert "MemoryError: no more" in fusion.refusal(runs[0])
    [loop.run_epoch(run, code.quiet) for run in alone * 2]
    assert [run.hash() for run in runs] == [run.hash() for run in alone]


@pytest.mark.parametrize("what", ["fusion.Snapshot", "epoch._near"])
def test_where_memory_does_not_suffice_for_a_copy_each_is_trained_alone(monkeypatch, what):
    fusion = Fusion()
    runs, alone = ([trial(code.Mlp, n, params(n)) for n in range(3)] for _ in range(2))

    def broken(*args):
        raise MemoryError("no more")

    results(fusion, runs)
    monkeypatch.setattr(f"penstock.extensions.fusion.{what}", broken)
    found = results(fusion, runs)
    [loop.run_epoch(run, code.quiet) for run in alone]
    expected = [loop.run_epoch(run, code.quiet) for run in alone]
    assert [each.metrics for each in found] == [each.metrics for each in expected]
    assert [run.hash() for run in runs] == [run.hash() for run in alone]
    assert "MemoryError: no more" in fusion.refusal(runs[0])


class Draws(code.Mlp):
    source = code.ROWS

    def loss(self, model, batch):
        x, y = batch
        match self.params["draws"]:
            case "python":
                x = x * random.random()
            case "numpy":
                x = x * float(np.random.rand())
            case "torch":
                x = x + torch.randn_like(x)
        return F.cross_entropy(model(x), y)


class Counts(code.Mlp):
    def __init__(self, params):
        super().__init__(params)
        self.calls = []

    def loss(self, model, batch):
        if self.params.get("in_place"):
            self.calls.append(1)
        else:
            self.seen = True
        return super().loss(model, batch)


class Branches(code.Mlp):
    def loss(self, model, batch):
        loss = super().loss(model, batch)
        return loss * 2 if loss > 0.5 else loss


class Tied(code.Mlp):
    def model(self):
        made = super().model()
        made[4] = torch.nn.Linear(32, 32)
        made[4].weight = made[2].weight
        return torch.nn.Sequential(made, torch.nn.Linear(32, 3))


class Recurrent(code.Mlp):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.gru, self.head = torch.nn.GRU(4, 8, batch_first=True), torch.nn.Linear(8, 3)

        def forward(self, x):
            return self.head(self.gru(x.view(-1, 5, 4))[0][:, -1])

    def model(self):
        return self.Net()


@pytest.mark.parametrize(
    ("kind", "more", "reason"),
    [
        (Draws, {"draws": "python"}, "Python's random numbers"),
        (Draws, {"draws": "numpy"}, "NumPy's random numbers"),
        (Draws, {"draws": "torch"}, "torch.rand"),
        (Counts, {}, "changes self.seen"),
        (Counts, {"in_place": True}, "changes self.calls"),
        (Branches, {}, "torch.Tensor.__bool__ is not known"),
        (Tied, {}, "share parameters"),
        (Recurrent, {}, "recurrent"),
    ],
)
def test_what_cannot_be_fused_says_why_and_is_right(kind, more, reason):
    fusion = Fusion()
    runs, alone = ([trial(kind, n, params(n, **more)) for n in range(3)] for _ in range(2))
    for _ in range(2):
        outcomes = results(fusion, runs)
        expected = [loop.run_epoch(run, code.quiet) for run in alone]
        assert [each.metrics for each in outcomes] == [each.metrics for each in expected]
        assert [run.hash() for run in runs] == [run.hash() for run in alone]
    assert reason in fusion.refusal(runs[0])


def test_what_is_read_of_a_trial_keeps_trials_apart():
    fusion = Fusion()
    values = (0.0, 0.1, 0.1, 0.0)
    make = [lambda n=n: trial(code.Smoothed, n, params(n, smoothing=values[n])) for n in range(4)]
    runs, alone = [each() for each in make], [each() for each in make]
    assert len({fusion.structure(run) for run in runs}) == 1
    results(fusion, runs)
    assert len({fusion.structure(run) for run in runs}) == 2
    assert fusion.structure(runs[1]) == fusion.structure(runs[2])
    results(fusion, runs[1:3])
    results(fusion, [runs[0], runs[3]])
    [loop.run_epoch(run, code.quiet) for run in alone * 2]
    assert [run.hash() for run in runs] == [run.hash() for run in alone]
    assert fusion.refusal(runs[1]) == ""


def test_threads_shards_and_knobs_are_refused_with_a_reason():
    fusion = Fusion()
    run = trial(code.Mlp, 0, params(0))
    torch.set_num_threads(2)
    assert ("2 threads" in fusion.refusal(run)) == (run.device.type == "cpu")
    torch.set_num_threads(1)
    run.system["micro_batch"] = 2
    assert "micro_batch" in fusion.refusal(run)
    del run.system["micro_batch"]
    assert fusion.refusal(run) == ""
    assert fusion.structure(run) is not None
    assert fusion.structure(trial(code.Mlp, 0, params(0), shards=2)) != fusion.structure(run)
    summed = trial(code.BatchNorm, 0, params(0), shards=2)
    assert "shards" in fusion.refusal(summed)


def test_it_is_only_done_where_it_is_faster(monkeypatch):
    monkeypatch.setattr("penstock.extensions.fusion.known.FASTER", 1e-9)
    fusion = Fusion()
    runs, alone = ([trial(code.Mlp, n, params(n)) for n in range(3)] for _ in range(2))
    for _ in range(8):
        results(fusion, runs)
        [loop.run_epoch(run, code.quiet) for run in alone]
    assert [run.hash() for run in runs] == [run.hash() for run in alone]
    assert "a step takes" in fusion.refusal(runs[0])
    assert "together" in fusion.refusal(runs[0])


def test_where_whole_epochs_are_slower_together_each_is_trained_alone(monkeypatch):
    """By clocks that only the test moves on: a step together takes 0.3 s, one alone 0.01 s."""
    now = [0.0]
    monkeypatch.setattr(Training, "clock", property(lambda run: lambda: now[0]))
    for module in ("epoch", "fusion"):  # steps and evaluations take nothing
        monkeypatch.setattr(f"penstock.extensions.fusion.{module}.spent", lambda device: 0.0)
    monkeypatch.setattr("penstock.extensions.fusion.known.FASTER", FASTER)
    fusion = Fusion()
    runs, alone = ([trial(code.Mlp, n, params(n)) for n in range(3)] for _ in range(2))
    differentiate = Group.differentiate

    def slow(*args):
        now[0] += 0.3
        return differentiate(*args)

    def tick(epoch, step, steps):
        now[0] += 0.01

    monkeypatch.setattr(Group, "differentiate", slow)

    def company():
        outcomes = fusion.run_epochs(rows(runs, tick))
        [loop.run_epoch(run, code.quiet) for run in alone]
        return sorted(each.group_size for each in outcomes)

    found = [company() for _ in range(18)]
    assert [run.hash() for run in runs] == [run.hash() for run in alone]
    assert "an epoch takes" in fusion.refusal(runs[0])
    assert found[0] == [3, 3, 3]
    assert [n for n, each in enumerate(found, 1) if n > 4 and each != [1, 1, 1]] == [8, 9, 16, 17]
