"""One forward pass serves metrics and loss in validation, but only where no bit can change."""

from __future__ import annotations

import copy
import gc
import pickle
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pytest
import torch
from penstock.tasks.contracts.contract import TorchTrainable
from penstock.tasks.training import one_pass
from penstock.tasks.training.one_pass import OnePass
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

BATCH = torch.linspace(-1, 1, 24).view(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])


CALLS: list[int] = []
#: The time (seconds), and that of a pass; looking for its effects takes none.
CLOCK, PASS = [0.0], 0.05


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    monkeypatch.setattr(one_pass, "perf_counter", lambda: CLOCK[0])
    monkeypatch.setattr(one_pass, "_EQUAL", WeakKeyDictionary())


class Net(nn.Module):
    """A linear layer whose calls are counted in ``CALLS``."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Linear(4, 3)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        CALLS.append(1)
        CLOCK[0] += PASS
        return self.inner(given)


class Plain(TorchTrainable):
    """Calls the model with the same tensor in both."""

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        return cross_entropy(model(batch[0]), batch[1])

    def metrics(self, model: nn.Module, batch: Any) -> dict[str, torch.Tensor]:
        return {"right": (model(batch[0]).argmax(1) == batch[1]).float().mean()}


def trial(kind: type[TorchTrainable], model: nn.Module, **params: Any) -> SimpleNamespace:
    """Return the code and the model of a trial before its first evaluation."""
    code = kind(params)
    return SimpleNamespace(code=code, model=model.eval(), one_pass=OnePass(model, code))


def values_of(run: SimpleNamespace, batch: Any) -> dict[str, Any]:
    """Return the values of a batch of validation data."""
    return run.one_pass.values(run.code, batch)


def both(code, model, batch=BATCH):
    """Return the values from two passes."""
    with torch.no_grad():
        return {**code.metrics(model, batch), "loss": code.loss(model, batch)}


def check(kind, model, passes, batch=BATCH):
    """Check the values of three batches, and the passes that the later two take each."""
    run, code = trial(kind, model), kind({})
    with torch.no_grad():
        for n in range(3):
            wanted = {name: float(value) for name, value in both(code, model, batch).items()}
            CALLS.clear()
            found = values_of(run, batch)
            assert {name: float(value) for name, value in found.items()} == wanted
            assert not n or len(CALLS) == passes
    assert "forward" not in vars(model)
    return run


def test_the_second_pass_is_left_out():
    check(Plain, Net(), 1)


def test_a_pass_that_takes_no_time_is_not_looked_at(monkeypatch):
    monkeypatch.setitem(globals(), "PASS", 0.0)
    check(Plain, Net(), 2)


def test_the_first_loss_of_a_trial_is_computed_in_full():
    run = trial(Plain, Net())
    CALLS.clear()
    with torch.no_grad():
        values_of(run, BATCH)
    assert len(CALLS) == 2


def passes_of_first_batch(run: SimpleNamespace) -> int:
    """Return the passes that the first batch of a trial takes."""
    CALLS.clear()
    with torch.no_grad():
        values_of(run, BATCH)
    return len(CALLS)


def test_trials_that_differ_in_numbers_alone_are_compared_once():
    assert passes_of_first_batch(trial(Plain, Net(), lr=0.1, head="a")) == 2
    assert passes_of_first_batch(trial(Plain, Net(), lr=0.2, head="a")) == 1


class Wide(Net):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 5)


class Other(Plain):
    pass


@pytest.mark.parametrize(
    ("kind", "model", "params"),
    [
        (Plain, Net, {"lr": 0.1, "head": "b"}),
        (Plain, Net, {"lr": 1, "head": "a"}),
        (Plain, Wide, {"lr": 0.1, "head": "a"}),
        (Other, Net, {"lr": 0.1, "head": "a"}),
    ],
)
def test_trials_of_another_kind_are_compared_again(kind, model, params):
    passes_of_first_batch(trial(Plain, Net(), lr=0.1, head="a"))
    assert passes_of_first_batch(trial(kind, model(), **params)) == 2


def test_a_trial_that_needs_two_passes_spares_no_other_one_the_comparison():
    for _ in range(2):
        run = trial(Collected, Collects())
        with torch.no_grad():
            for _ in range(2):
                assert values_of(run, BATCH) == both(run.code, run.model)


def test_few_kinds_of_trials_are_remembered(monkeypatch):
    monkeypatch.setattr(one_pass, "_MOST", 2)
    for n in range(3):
        passes_of_first_batch(trial(Plain, Net(), n=n))
    assert passes_of_first_batch(trial(Plain, Net(), n=2)) == 1
    assert passes_of_first_batch(trial(Plain, Net(), n=0)) == 2


def test_code_that_no_trial_has_any_more_is_forgotten():
    class Gone(Net):
        pass

    class Going(Plain):
        net = Gone  # as each has the other in the names of its file

    Gone.user = Going
    assert passes_of_first_batch(trial(Going, Gone())) == 2
    assert len(one_pass._EQUAL) == 1
    del Gone, Going
    gc.collect()
    assert not one_pass._EQUAL


def test_a_loss_among_the_metrics_is_the_loss():
    class Own(Plain):
        def metrics(self, model, batch):
            return {"loss": torch.tensor(7.0)}

    assert values_of(trial(Own, Net()), BATCH) == {"loss": 7.0}


def test_code_without_metrics_takes_one_pass():
    class Bare(Plain):
        metrics = TorchTrainable.metrics

    check(Bare, Net(), 1)


class Draws(Net):
    def forward(self, given):
        return super().forward(given + torch.rand(()))


def test_random_numbers_are_drawn_for_both():
    run = trial(Plain, Draws())
    with torch.no_grad():
        torch.manual_seed(5)
        wanted = both(run.code, run.model)
        torch.manual_seed(5)
        assert values_of(run, BATCH) == wanted


class Noisy(Plain):
    def loss(self, model, batch):
        return super().loss(model, batch) + torch.rand(()) + float(np.random.rand())


def test_a_loss_that_draws_draws_once_also_where_it_is_compared():
    run = trial(Noisy, Net())
    with torch.no_grad():
        for n in range(3):
            found, states = [], []
            for values in (lambda: both(run.code, run.model), lambda: values_of(run, BATCH)):
                torch.manual_seed(n)
                np.random.seed(n)
                CALLS.clear()
                found.append(values())
                states.append((torch.rand(()), np.random.rand()))
            assert found[0] == found[1]
            assert states[0] == states[1]
            assert len(CALLS) == (2 if n == 0 else 1)


class Moves(Net):
    def forward(self, given):
        self.seen.add_(1)
        return super().forward(given) * self.seen.cos()


def test_a_buffer_that_evaluation_changes_is_changed_twice():
    run, other = trial(Plain, Moves()), Moves().eval()
    with torch.no_grad():
        for _ in range(3):
            assert values_of(run, BATCH) == both(run.code, other)


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
    check(Penalised, Adds(), 2)


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
    check(kind, Net(), 2)


def test_writing_into_an_output_changes_no_other():
    check(InPlace, Net(), 3)


class Views(Plain):
    """Gives a view of the output as a metric, and writes into the output for its loss."""

    def metrics(self, model, batch):
        return {"first": model(batch[0])[0, 0]}

    def loss(self, model, batch):
        return model(batch[0]).mul_(2).mean()


def test_a_metric_that_is_a_view_of_the_output_keeps_its_value():
    check(Views, Net(), 1)


def test_hooks_are_called_in_both_passes():
    run, heard = trial(Plain, Net()), []
    run.model.inner.register_forward_hook(lambda *_: heard.append(1))
    with torch.no_grad():
        for n in range(1, 4):
            values_of(run, BATCH)
            assert len(heard) == 2 * n


class Hooks(Plain):
    """Reads activations by a hook that is there for the loss alone."""

    def loss(self, model, batch):
        kept = []
        hook = model.inner.register_forward_hook(lambda _, __, output: kept.append(output))
        found = super().loss(model, batch)
        hook.remove()
        return found + kept[-1].abs().mean()


class Switches(Plain):
    """Measures with dropout and without."""

    def metrics(self, model, batch):
        found = super().metrics(model, batch)
        model.drop.train()
        found["dropped"] = model(batch[0]).sum()
        model.drop.eval()
        return found


class Dropping(Net):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(1.0)

    def forward(self, given):
        return self.drop(super().forward(given))


class Mixed(Plain):
    """Measures in bfloat16."""

    def metrics(self, model, batch):
        with torch.autocast("cpu", torch.bfloat16):
            return super().metrics(model, batch)


class Gradients(Plain):
    """Has a penalty on the gradient by the inputs, in evaluation as well."""

    def loss(self, model, batch):
        with torch.enable_grad():
            inputs = batch[0].clone().requires_grad_()
            output = model(inputs)
            [slope] = torch.autograd.grad(output.sum(), inputs)
        return cross_entropy(output.detach(), batch[1]) + slope.square().mean()


class Inferred(Plain):
    @torch.inference_mode()
    def metrics(self, model, batch):
        return super().metrics(model, batch)


class Counts(Net):
    """Counts in a dict and in a tensor that is no buffer."""

    def __init__(self):
        super().__init__()
        self.load, self.usage = {"all": 0}, torch.zeros(())

    def forward(self, given):
        self.load["all"] += len(given)
        self.usage.add_(1)
        return super().forward(given)


@pytest.mark.parametrize(
    ("kind", "model"),
    [(Hooks, Net), (Switches, Dropping), (Mixed, Net), (Gradients, Net), (Inferred, Net)],
)
def test_passes_under_other_conditions_are_not_shared(kind, model):
    check(kind, model(), 3 if kind is Switches else 2)


def test_what_a_pass_counts_is_counted_in_both():
    run, other = trial(Plain, Counts()), Counts().eval()
    with torch.no_grad():
        for _ in range(3):
            values_of(run, BATCH)
            both(run.code, other)
            assert run.model.load == other.load
            assert run.model.usage == other.usage


class Rescaled(Plain):
    """Changes the batch in place between the two."""

    def loss(self, model, batch):
        batch[0].mul_(1.0)
        return super().loss(model, batch)


def test_inputs_that_were_written_to_are_passed_again():
    check(Rescaled, Net(), 2)


class Remade(Net):
    """Makes a tuple in each pass that does not compare with the last one."""

    def forward(self, given):
        self.sizes = (np.zeros(2), len(given))
        return super().forward(given)


def test_attributes_that_do_not_compare_are_changed_ones():
    check(Plain, Remade(), 2)


class Wordy(Plain):
    def loss(self, model, batch):
        super().loss(model, batch)
        return "low"


def test_a_loss_that_is_no_number_is_refused_elsewhere():
    run = trial(Wordy, Net())
    with torch.no_grad():
        for _ in range(2):
            assert values_of(run, BATCH)["loss"] == "low"


class Copies(Plain):
    """Keeps a copy of the model, as a moving average does."""

    def metrics(self, model, batch):
        self.copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
        return super().metrics(model, batch)


def test_copies_of_the_model_are_models_of_their_own():
    run = trial(Copies, Net())
    with torch.no_grad():
        for _ in range(2):
            values_of(run, BATCH)
            for each in run.code.copies:
                each.inner.weight.zero_()
                each.inner.bias.zero_()
                assert not each(BATCH[0]).any()


def test_a_network_with_sparse_buffers_takes_both_passes():
    model = Net()
    model.register_buffer("adjacent", torch.eye(3).to_sparse(), persistent=False)
    check(Plain, model, 2)


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
    check(Collected, Collects(), 2)


def test_other_inputs_have_their_own_pass():
    class Shifted(Plain):
        def loss(self, model, batch):
            return super().loss(model, (batch[0] + 1, batch[1]))

    check(Shifted, Net(), 2)


@pytest.mark.filterwarnings("ignore:`torch.jit")  # torch deprecates it, and people still use it
def test_scripted_models_take_both_passes():
    model = torch.jit.script(nn.Linear(4, 3)).eval()
    with torch.no_grad():
        assert values_of(trial(Plain, model), BATCH) == both(Plain({}), model)


def test_models_whose_forward_is_their_own_take_both_passes():
    model = Net()
    model.forward = own = lambda given: Net.forward(model, given)
    run = trial(Plain, model)
    with torch.no_grad():
        for _ in range(3):
            CALLS.clear()
            values_of(run, BATCH)
            assert len(CALLS) == 2
    assert vars(model)["forward"] is own


def test_an_error_leaves_the_model_as_it_was():
    class Fails(Plain):
        def loss(self, model, batch):
            raise ValueError("no")

    run = trial(Fails, Net())
    with pytest.raises(ValueError, match="no"):
        values_of(run, BATCH)
    assert "forward" not in vars(run.model)
