"""Metrics that are known before the first epoch: reported with each, and bounded before it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from penstock import UsageError
from penstock.tasks.contracts.metrics import Infeasible
from penstock.tasks.gangs.gang import Gang
from penstock.tasks.training import loop
from penstock.tasks.training.fixed_metrics import fix
from torch.distributed import HashStore
from trainers.trainer_here import Trainer
from trainers.trainer_process import segment
from user_code.nas_code import Fitted, Unfixed

pytestmark = pytest.mark.extension("nas")

PARAMS = {"width": 4, "op": "linear"}
SIZE = 4 * 3 + 4 + 4 + 1


@pytest.fixture
def trainer():
    return Trainer()


def test_they_are_reported_with_every_epoch_and_change_no_bit(trainer):
    found = trainer.train(Fitted, n=2, metric="loss", params=PARAMS)
    plain = Trainer().train(Unfixed, n=2, metric="loss", params=PARAMS)
    assert [epoch["metrics"]["parameters"] for epoch in found] == [SIZE, SIZE]
    assert found[0]["metrics"]["flops"] == 2 * (3 * 4 + 4)
    assert found[0]["metrics"]["latency_ms"] == found[1]["metrics"]["latency_ms"] > 0
    assert [each["state_hash"] for each in found] == [each["state_hash"] for each in plain]
    assert found[1]["metrics"]["loss"] == plain[1]["metrics"]["loss"]


def test_a_bound_is_the_highest_that_is_trained(trainer):
    bounds = (("parameters", SIZE),)
    assert len(trainer.train(Fitted, metric="loss", params=PARAMS, bounds=bounds)) == 1
    with pytest.raises(Infeasible) as ended:
        trainer.train(
            Fitted, trial="s-0001", metric="loss", params=PARAMS,
            bounds=(("parameters", SIZE - 1), ("flops", 100), ("later", 0.0)),
        )  # fmt: skip
    assert ended.value.excess == {"parameters": 1, "flops": 32 - 100}


def test_a_trial_with_an_epoch_goes_on_whatever_is_measured_elsewhere(trainer):
    [first] = trainer.train(Fitted, metric="loss", params=PARAMS)
    bounds = (("latency_ms", 0.0),)
    went_on = Trainer().train(
        Fitted, 2, metric="loss", params=PARAMS, bounds=bounds, expect=first["state_hash"]
    )
    assert [each["epoch"] for each in went_on] == [2]


def test_what_is_no_number_is_refused_by_its_name(trainer, monkeypatch):
    monkeypatch.setattr(Fitted, "fixed_metrics", lambda self, model: {"size": "large"})
    with pytest.raises(UsageError, match=r"fixed_metrics\['size'\]"):
        trainer.train(Fitted, metric="loss", params=PARAMS)


def test_a_name_that_the_metrics_have_too_is_refused(trainer, monkeypatch):
    monkeypatch.setattr(Fitted, "fixed_metrics", lambda self, model: {"loss": 1.0})
    with pytest.raises(UsageError, match=r"a name of fixed_metrics = 'loss' is refused"):
        trainer.train(Fitted, metric="loss", params=PARAMS)


class Measured(Fitted):
    """Of which each member measures something else."""

    def fixed_metrics(self, model):
        return {"size": self.params["measured"]}


@pytest.mark.parametrize(
    ("measured", "outcome"), [((5.0, 3.0), {"size": 1.0}), ((3.0, 5.0), {"size": 3.0})]
)
def test_in_a_gang_the_figures_of_the_first_member_are_everybodys(measured, outcome):
    """All members end by its excess over 4, or all go on with what it measured."""
    store = HashStore()

    def outcome_of(rank):
        code = Measured(PARAMS | {"measured": measured[rank]})
        training = loop.start(code, code.data(), 0, 0)
        training.gang = Gang(store, rank, 2, torch.device("cpu"), "127.0.0.1")
        try:
            fix(training, segment(Fitted, bounds=(("size", 4.0),)))
        except Infeasible as ended:
            return training, ended.excess
        return training, training.fixed

    with ThreadPoolExecutor(2) as members:
        found = list(members.map(outcome_of, (0, 1)))
    for training, _ in found:
        training.gang.close()
    assert [each for _, each in found] == [outcome, outcome]
