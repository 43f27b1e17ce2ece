"""Steps that are recorded on a GPU and played have the bits of each trial alone."""

from __future__ import annotations

import fused_code as code
import pytest
import torch
from fused_code import params, rows, trial
from penstock.tasks.fusion import recording
from penstock.tasks.fusion.fusion import Fusion
from penstock.tasks.training import loop

pytestmark = [
    pytest.mark.usefixtures("one_thread", "whatever_it_takes"),
    pytest.mark.gpu,
    pytest.mark.skipif(loop.device_here().type == "cpu", reason="there is no GPU here"),
]
SMALL = {"batch_size": 8}  # 14 steps an epoch, or 5 of images


class Waits(code.Mlp):
    """Its loss cannot be recorded."""

    def loss(self, model, batch):
        torch.cuda.synchronize()
        return super().loss(model, batch)


@pytest.fixture
def played(monkeypatch):
    """Steps that were played."""
    found = []
    play = recording._Recording.play

    def noted(self, batch):
        found.append(self.size)
        return play(self, batch)

    monkeypatch.setattr(recording._Recording, "play", noted)
    return found


def same_as_alone(fusion, kind, epochs=6, count=4, **more):
    own = {"clip": 0.1, "gamma": 0.5} | SMALL | more
    together, alone = ([trial(kind, n, params(n, **own)) for n in range(count)] for _ in "12")
    for _ in range(epochs):
        found = fusion.run_epochs(rows(together))
        for run, like, outcome in zip(together, alone, found, strict=True):
            assert outcome.metrics == loop.run_epoch(like, code.quiet).metrics
            assert run.hash() == like.hash()
    assert fusion.refusal(together[0]) == ""
    return together


@pytest.mark.parametrize(
    "kind",
    [
        code.Mlp, code.BatchNorm, code.LeNet, code.Transformer, code.Clipped, code.Penalised,
        code.Embedded, code.Scheduled, code.Unused,
    ],
)  # fmt: skip
@pytest.mark.parametrize("opt", ["momentum", "adamw", "rmsprop"])
def test_played_steps_have_the_bits_of_each(played, kind, opt):
    same_as_alone(Fusion(), kind, opt=opt)
    assert set(played) == {8}


def test_what_draws_is_computed(played):
    same_as_alone(Fusion(), code.Dropout)
    assert not played


def test_what_cannot_be_recorded_is_computed_and_hurts_nobody(played):
    fusion = Fusion()
    same_as_alone(fusion, Waits)
    assert not played
    same_as_alone(fusion, code.Dropout)
    same_as_alone(fusion, code.Mlp)
    assert played


def test_who_leaves_is_not_played_any_more(played):
    fusion = Fusion()
    runs = [trial(code.Mlp, n, params(n, **SMALL)) for n in range(4)]
    others = [trial(code.Mlp, n, params(n, **SMALL)) for n in range(4)]
    fusion.run_epochs(rows(runs))
    [loop.run_epoch(run, code.quiet) for run in others]

    def leaves(epoch, step, steps):
        if step == 7:
            raise InterruptedError

    given = rows(runs)
    given[1].tick = leaves
    found = fusion.run_epochs(given)
    assert isinstance(found[1], InterruptedError)
    assert len(played) > 10
    for n in (0, 2, 3):
        assert found[n].metrics == loop.run_epoch(others[n], code.quiet).metrics
        assert runs[n].hash() == others[n].hash()
