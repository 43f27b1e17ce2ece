"""One forward pass serves metrics and loss in validation, but only where no bit can change."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from penstock.tasks.contracts.contract import TorchTrainable
from penstock.tasks.training.one_pass import values_of
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

BATCH = torch.linspace(-1, 1, 24).view(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])


CALLS: list[int] = []


class Net(nn.Module):
    """A linear layer whose calls are counted in ``CALLS``."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Linear(4, 3)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        CALLS.append(1)
        return self.inner(given)


class Plain(TorchTrainable):
    """Calls the model with the same tensor in both."""

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        return cross_entropy(model(batch[0]), batch[1])

    def metrics(self, model: nn.Module, batch: Any) -> dict[str, torch.Tensor]:
        return {"right": (model(batch[0]).argmax(1) == batch[1]).float().mean()}


def fresh(kind: type[TorchTrainable]) -> TorchTrainable:
    """Return an object of a class of its own, as nothing was compared for it yet."""
    return type(kind.__name__, (kind,), {})({})


def both(code, model, batch=BATCH):
    """Return the values from two passes."""
    with torch.no_grad():
        return {**code.metrics(model, batch), "loss": code.loss(model, batch)}


def check(code, model, passes, *, batch=BATCH):
    """Check the values of three batches, and the passes that the later two take each."""
    model.eval()
    with torch.no_grad():
        for n in range(3):
            wanted = {name: float(value) for name, value in both(code, model, batch).items()}
            CALLS.clear()
            found = values_of(code, model, batch)
            assert {name: float(value) for name, value in found.items()} == wanted
            assert not n or len(CALLS) == passes
    assert "forward" not in vars(model)


def test_the_second_pass_is_left_out():
    check(fresh(Plain), Net(), 1)


def test_the_first_loss_of_a_class_is_computed_in_full():
    code, model = fresh(Plain), Net().eval()
    CALLS.clear()
    with torch.no_grad():
        values_of(code, model, BATCH)
    assert len(CALLS) == 2


def test_a_loss_among_the_metrics_is_the_loss():
    class Own(Plain):
        def metrics(self, model, batch):
            return {"loss": torch.tensor(7.0)}

    assert values_of(Own({}), Net().eval(), BATCH) == {"loss": 7.0}


def test_code_without_metrics_takes_one_pass():
    class Bare(Plain):
        metrics = TorchTrainable.metrics

    check(fresh(Bare), Net(), 1)


class Draws(Net):
    def forward(self, given):
        return super().forward(given + torch.rand(()))


def test_random_numbers_are_drawn_for_both():
    code, model = fresh(Plain), Draws().eval()
    with torch.no_grad():
        torch.manual_seed(5)
        wanted = both(code, model)
        torch.manual_seed(5)
        assert values_of(code, model, BATCH) == wanted


class Moves(Net):
    def forward(self, given):
        self.seen.add_(1)
        return super().forward(given) * self.seen.cos()


def test_a_buffer_that_evaluation_changes_is_changed_twice():
    code, one, other = fresh(Plain), Moves().eval(), Moves().eval()
    with torch.no_grad():
        for _ in range(3):
            assert values_of(code, one, BATCH) == both(code, other)


class Adds(Net):
    penalty: Any = 0.0

    def forward(self, given):
        self.penalty = self.penalty + given.square().mean()
        return super().forward(given)


class Penalised(Plain):
    def loss(self, model, batch):
        model.penalty = 0.0
        return super().loss(model, batch) + model.penalty


def test_what_a_pass_leaves_in_an_attribute_is_there_for_the_loss():
    check(fresh(Penalised), Adds(), 2)


class Averaged(Plain):
    """Measures other weights than those whose loss is asked for."""

    def metrics(self, model, batch):
        weights = {name: torch.ones_like(value) for name, value in model.named_parameters()}
        return {"sum": functional_call(model, weights, (batch[0],)).sum()}


class Overwritten(Plain):
    def metrics(self, model, batch):
        kept = model.inner.weight.clone()
        model.inner.weight.copy_(torch.ones_like(kept))
        found = super().metrics(model, batch)
        model.inner.weight.copy_(kept)
        return found


class OverwrittenUnseen(Plain):
    """Writes through ``data``, which no version counts."""

    def metrics(self, model, batch):
        kept = model.inner.weight.clone()
        model.inner.weight.data.fill_(1)
        found = super().metrics(model, batch)
        model.inner.weight.data.copy_(kept)
        return found


class InPlace(Plain):
    def metrics(self, model, batch):
        first, second = model(batch[0]), model(batch[0])
        return {"sum": second.zero_().sum() + first.sum()}


@pytest.mark.parametrize("kind", [Averaged, Overwritten, OverwrittenUnseen])
def test_other_weights_have_their_own_pass(kind):
    check(fresh(kind), Net(), 2)


def test_writing_into_an_output_changes_no_other():
    check(fresh(InPlace), Net(), 2)


def test_hooks_are_called_in_both_passes():
    model, heard = Net().eval(), []
    model.inner.register_forward_hook(lambda *_: heard.append(1))
    with torch.no_grad():
        for n in range(1, 4):
            values_of(fresh(Plain), model, BATCH)
            assert len(heard) == 2 * n


FEATURES: list[torch.Tensor] = []


class Collects(Net):
    def forward(self, given):
        output = super().forward(given)
        FEATURES.append(output)
        return output


class Collected(Plain):
    def loss(self, model, batch):
        FEATURES.clear()
        return super().loss(model, batch) + sum(each.abs().mean() for each in FEATURES)


def test_effects_elsewhere_are_found_by_comparison():
    check(fresh(Collected), Collects(), 2)


def test_other_inputs_have_their_own_pass():
    class Shifted(Plain):
        def loss(self, model, batch):
            return super().loss(model, (batch[0] + 1, batch[1]))

    check(fresh(Shifted), Net(), 2)


@pytest.mark.filterwarnings("ignore:`torch.jit")  # torch deprecates it, and people still use it
def test_scripted_models_take_both_passes():
    model = torch.jit.script(nn.Linear(4, 3)).eval()
    with torch.no_grad():
        assert values_of(fresh(Plain), model, BATCH) == both(fresh(Plain), model)


def test_models_whose_forward_is_their_own_take_both_passes():
    model = Net().eval()
    model.forward = lambda given: Net.forward(model, given)
    own = vars(model)["forward"]
    with torch.no_grad():
        for _ in range(3):
            CALLS.clear()
            values_of(fresh(Plain), model, BATCH)
            assert len(CALLS) == 2
    assert vars(model)["forward"] is own


def test_an_error_leaves_the_model_as_it_was():
    class Fails(Plain):
        def loss(self, model, batch):
            raise ValueError("no")

    model = Net().eval()
    with pytest.raises(ValueError, match="no"):
        values_of(Fails({}), model, BATCH)
    assert "forward" not in vars(model)
