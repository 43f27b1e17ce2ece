"""A trainer's descriptions of models that make choices, before they are trained."""

from __future__ import annotations

import torch
from penstock.extensions.nas.models import counting
from penstock.extensions.nas.models.counting import counted
from trainers.trainer_here import Trainer
from user_code.nas_code import Fitted, Unfixed

LINEAR = {"width": 4, "op": "linear"}
DEEP = {"width": 2, "op": "mlp", "deep": 2}
#: Linear(3, 4) and Linear(4, 1).
SIZE, FLOPS = 4 * 3 + 4 + 4 + 1, 2 * (3 * 4 + 4)
ONE = (torch.zeros(1, 3, device="meta"), torch.zeros(1, 1, device="meta"))


class Sorted(Unfixed):
    """Code that needs the values of tensors."""

    def loss(self, model, batch):
        assert batch[0].sum().item() >= 0
        return super().loss(model, batch)


class Plain(Unfixed):
    """A model without choices."""

    def model(self):
        return torch.nn.Linear(3, 1)


class Sized(Unfixed):
    """Code whose model needs values when it is made."""

    def model(self):
        assert torch.ones(1).item() == 1
        return super().model()


def described(trainer):
    return [each for each in trainer.said if each["op"] == "described"]


def named(number, params):
    return {"trial": f"s-{number:04d}", "number": number, "params": params}


def test_a_trainer_counts_its_trial_and_those_that_wait_and_changes_no_bit(monkeypatch):
    monkeypatch.setattr("penstock.extensions.nas.trainer.FREE", 600.0)  # also on a busy machine
    trainer, plain = Trainer(), Trainer()
    waits = [named(1, DEEP), named(2, DEEP | {"deep": 1})]
    told = {"nas": {"count": waits}}
    first = trainer.train(Unfixed, metric="loss", params=LINEAR, ext=told)
    own, deep, less = described(trainer)
    assert [each["of"] for each in (own, deep, less)] == ["s-0000", "s-0001", "s-0002"]
    assert (own["parameters"], own["flops"]) == (SIZE, FLOPS)
    assert own["choices"] == ["op", "width"]
    assert deep["choices"] == ["deep", "op", "width"]
    assert deep["parameters"] > less["parameters"]
    assert deep["operators"] > less["operators"] > own["operators"] > 0
    assert deep["activations"] > less["activations"] > 0
    plain.segments.hook["nas"].accounts["s"].counting.spent = 1e9  # it has no time for any
    again = plain.train(Unfixed, metric="loss", params=LINEAR, ext=told)
    assert not described(plain)
    assert [each["state_hash"] for each in again] == [each["state_hash"] for each in first]


def test_a_trial_is_counted_once_and_models_without_choices_never(monkeypatch):
    trainer = Trainer()
    [first] = trainer.train(Unfixed, metric="loss", params=LINEAR)
    trainer.train(Unfixed, 2, metric="loss", params=LINEAR, expect=first["state_hash"])
    assert len(described(trainer)) == 1
    monkeypatch.setattr(counting, "counted", None)
    trainer.train(Plain, trial="s-0003", metric="loss")
    assert len(described(trainer)) == 1


def test_code_that_needs_values_gives_its_parameters_or_nothing():
    found = counted(Sorted(LINEAR), LINEAR, ONE)
    assert found is not None
    architecture, choices = found
    assert (architecture.parameters, architecture.flops, architecture.operators) == (SIZE, 0, 0)
    assert choices == ["op", "width"]
    assert counted(Sized(LINEAR), LINEAR, ONE) is None


def test_what_is_counted_grows_neither_with_the_batch_nor_with_fixed_metrics():
    one, of_fitted = counted(Unfixed(LINEAR), LINEAR, ONE), counted(Fitted(LINEAR), LINEAR, ONE)
    assert one == of_fitted


def test_what_a_model_came_to_be_is_said_once_as_soon_as_there_is_time():
    trainer = Trainer()
    account = trainer.segments.hook["nas"].accounts["s"].tracing

    def told():
        return [each["outline"] for each in trainer.said if each["op"] == "derived"]

    made = {"metric": "loss", "params": LINEAR}
    account.spent = 1e9
    [first] = trainer.train(Unfixed, **made)
    assert not told(), "there is no time"
    account.spent = 0.0
    [second] = trainer.train(Unfixed, 2, expect=first["state_hash"], **made)
    trainer.train(Unfixed, 3, expect=second["state_hash"], **made)
    [outline] = told()
    assert "Linear" in outline
    other = Trainer()
    other.train(Unfixed, 2, expect=first["state_hash"], **made)
    assert not [each for each in other.said if each["op"] == "derived"], "the first one may have"
