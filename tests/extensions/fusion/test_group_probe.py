"""The gain of a fused group is found with copies of a single trial, without changing that trial."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from penstock.extensions.fusion import group_probe
from penstock.extensions.fusion.fusion import Fusion
from penstock.tasks.contracts.contract import TorchTrainable
from penstock.tasks.training import loop
from user_code import fused_code as code
from user_code.fused_code import params, rows, trial

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def time_enough(monkeypatch):
    """Let there be time for a probe on any machine."""
    monkeypatch.setattr(group_probe, "FIRST", 1e9)
    monkeypatch.setattr(group_probe, "LONGEST", 1e9)


class Remembers(code.Mlp):
    """Its loss depends on what it has left in a list, which is the same from call to call."""

    metrics = TorchTrainable.metrics  # else a first evaluation would call it once more

    def __init__(self, params):
        super().__init__(params)
        self.calls = [0]
        self.seen = torch.zeros(1)

    def loss(self, model, batch):
        self.calls[0] += 1
        self.seen.add_(0.01)
        return super().loss(model, batch) * (1.0 + self.calls[0] + self.seen.item())


class Draws(code.Mlp):
    def loss(self, model, batch):
        return super().loss(model, batch) * float(1.0 + np.random.rand())


class Held:
    """A value of which nobody knows whether it can change."""

    weight = 1.0


class Holds(code.Mlp):
    def __init__(self, params):
        super().__init__(params)
        self.held = Held()

    def loss(self, model, batch):
        return super().loss(model, batch) * self.held.weight


class HoldsUnread(Holds):
    loss = code.Mlp.loss


def epochs(kind, count=3, **more):
    """Outcomes of a trial's epochs, which are compared with those of one like it in no lane."""
    fusion, found = Fusion(), []
    run, like = (trial(kind, 0, params(0, **more)) for _ in range(2))
    for _ in range(count):
        [outcome] = fusion.run_epochs(rows([run]))
        expected = loop.run_epoch(like, code.quiet)
        assert outcome.metrics == expected.metrics
        assert run.hash() == like.hash()
        found.append(outcome)
    return fusion, run, found


@pytest.mark.parametrize(
    "kind", [code.Mlp, code.Dropout, code.LeNet, code.Criterion, code.Clipped, code.Scheduled]
)
def test_a_single_trial_says_what_a_group_would_gain_and_keeps_its_bits(kind):
    fusion, run, found = epochs(kind, clip=0.1, gamma=0.5)
    assert all(dict(each.slowdowns).keys() == {2, 8} for each in found)
    assert all(ratio > 0.0 for each in found for _, ratio in each.slowdowns)
    assert fusion.refusal(run) == ""


def test_many_small_steps_are_expected_to_gain_by_a_group():
    ratios = dict(epochs(code.Mlp, 2)[2][-1].slowdowns)
    assert ratios[8] < 0.8
    assert ratios[8] < ratios[2]


def test_where_an_epoch_is_mostly_something_else_little_is_expected():
    found = group_probe.ProbeTimes(alone=0.01, steps_ratios={8: 0.2}, steps=10, epoch=1.0)
    assert found.ratios() == {8: pytest.approx(1.0 - 0.1 * 0.8)}


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Remembers, "other bits together than alone"),
        (Draws, "NumPy's random numbers"),
        (code.BatchNorm, ""),
    ],
)
def test_what_cannot_be_trained_together_is_found_by_a_single_trial(kind, reason):
    fusion, run, found = epochs(kind)
    assert reason in fusion.refusal(run)
    assert all(bool(each.slowdowns) != bool(reason) for each in found)


def test_what_nobody_can_tell_is_not_probed_and_not_refused():
    fusion, run, found = epochs(Holds)
    assert {each.slowdowns for each in found} == {()}
    assert fusion.refusal(run) == ""
    assert epochs(HoldsUnread)[2][-1].slowdowns


def test_probes_have_a_small_part_of_the_time(monkeypatch):
    monkeypatch.setattr(group_probe, "FIRST", 0.0)
    monkeypatch.setattr(group_probe, "OWN", 0.0)
    assert {each.slowdowns for each in epochs(code.Mlp)[2]} == {()}
    monkeypatch.setattr(group_probe, "SHARE", 1e9)
    assert len(epochs(code.Mlp)[2][-1].slowdowns) == 2


def test_a_structure_has_a_part_of_its_own_time_whatever_others_have_taken(monkeypatch):
    monkeypatch.setattr(group_probe, "FIRST", -1e9)
    monkeypatch.setattr(group_probe, "OWN", 1e9)
    assert len(epochs(code.Mlp)[2][-1].slowdowns) == 2


def test_large_trials_and_long_steps_have_none(monkeypatch):
    monkeypatch.setattr(group_probe, "LARGEST", 1000)
    assert {each.slowdowns for each in epochs(code.Mlp)[2]} == {()}
    monkeypatch.setattr(group_probe, "LARGEST", 1 << 26)
    monkeypatch.setattr(group_probe, "LONGEST", 1e-9)
    assert {each.slowdowns for each in epochs(code.Mlp)[2]} == {()}


def test_one_whose_data_make_no_whole_batch_has_none():
    class Few(code.Mlp):
        batch_size = 500

    assert {each.slowdowns for each in epochs(Few)[2]} == {()}


def test_what_was_probed_once_is_known_of_all_like_it(monkeypatch):
    fusion = Fusion()
    [first] = fusion.run_epochs(rows([trial(code.Mlp, 0, params(0))]))
    monkeypatch.setattr(group_probe.GroupProbes, "_probe", None)  # none is made any more
    [second] = fusion.run_epochs(rows([trial(code.Mlp, 1, params(1))]))
    assert dict(second.slowdowns).keys() == dict(first.slowdowns).keys() == {2, 8}


def test_a_probe_lets_others_have_their_turns():
    class Turn:
        over = 0

        def clock(self):
            return 0.0

        def is_over(self):
            return True

        def pass_on(self):
            self.over += 1

    fusion, run = Fusion(), trial(code.Mlp, 0, params(0))
    run.turn = turn = Turn()
    fusion.run_epochs(rows([run]))
    steps = 4 + 2  # of the epoch, and batches of its evaluation
    assert turn.over > 3 * steps, "two copies, and eight, have nine and six steps"
