"""Steps that are played from a recording have the bits of those that are computed."""

from __future__ import annotations

import pytest
import torch
from penstock.extensions.fusion import recorded
from penstock.extensions.fusion.checks import Mismatch
from penstock.extensions.fusion.fusion import Fusion
from penstock.extensions.fusion.operators import recorder
from penstock.extensions.fusion.operators.all_rows import AllRows
from penstock.extensions.fusion.operators.drawing import Generators
from penstock.extensions.fusion.operators.recorder import Recorder, Recording
from penstock.extensions.fusion.operators.rules import Rules
from penstock.extensions.fusion.recorded import RecordedSteps
from penstock.extensions.fusion.stand_in import Common
from penstock.tasks.contracts.pieces import Pieces
from penstock.tasks.training import loop
from torch import nn
from torch._C import _len_torch_dispatch_stack
from torch.nn import functional as F  # noqa: N812
from user_code import fused_code as code
from user_code.fused_code import params, rows, trial

pytestmark = pytest.mark.usefixtures("one_thread", "whatever_it_takes")


@pytest.fixture
def at_once(monkeypatch):
    """The first step of a kind is recorded; returns those that were played after it."""
    monkeypatch.setattr(recorded, "_RECORDED", 1)
    monkeypatch.setattr(recorded, "_FOLLOW", 0)
    return spied(monkeypatch)


def spied(monkeypatch):
    played, play = [], Recording.play

    def spy(self, given):
        played.append(self)
        return play(self, given)

    monkeypatch.setattr(Recording, "play", spy)
    return played


def together_as_alone(make, epochs, between=lambda _run, _epoch: None):
    """Check that three trials have the bits that they have alone after each epoch."""
    fusion = Fusion()
    runs, alone = [make(n) for n in range(3)], [make(n) for n in range(3)]
    for epoch in range(epochs):
        for run in (*runs, *alone):
            between(run, epoch)
        found = fusion.run_epochs(rows(runs))
        expected = [loop.run_epoch(run, code.quiet) for run in alone]
        assert [each.metrics for each in found] == [each.metrics for each in expected]
        assert [run.hash() for run in runs] == [run.hash() for run in alone]
    assert fusion.refusal(runs[0]) == ""


@pytest.mark.parametrize(
    "kind",
    [
        code.Mlp,
        code.Dropout,
        code.LeNet,
        code.BatchNorm,
        code.Clipped,
        code.Unused,
        code.Embedded,
        code.Transformer,
        code.Criterion,
    ],
)
@pytest.mark.parametrize("opt", ["nesterov", "adamw", "rmsprop"])
def test_bits_are_those_of_each_alone(at_once, kind, opt):
    together_as_alone(lambda n: trial(kind, n, params(n, opt=opt, clip=0.1)), 4)
    assert len(at_once) > 4


@pytest.mark.parametrize("kind", [code.Mlp, code.LeNet])
def test_batches_in_shards_are_played_too(at_once, kind):
    together_as_alone(lambda n: trial(kind, n, params(n), shards=3), 4)
    assert len(at_once) > 9


def test_the_user_s_code_runs_only_until_its_steps_are_recorded():
    calls, counts = [], []

    class Counted(code.Mlp):
        def loss(self, model, batch):
            if model.training and type(self) is not Counted:  # but what stands for all trials
                calls.append(len(batch[0]))
            return super().loss(model, batch)

    make = lambda n: trial(Counted, n, params(n))  # noqa: E731 - as everywhere here
    together_as_alone(make, 13, lambda *_: counts.append(len(calls)))
    before = counts[::6]  # the epochs: three trials together, and three alone
    assert before[0] == 0
    assert before[9] == before[12] > 0


def test_what_the_code_reads_in_another_epoch_is_in_force(at_once):
    class Scaled(code.Mlp):
        def loss(self, model, batch):
            return self.now("scale") * super().loss(model, batch)

    def make(n):
        own = params(n, scale=1.0)
        made = trial(Scaled, n, own)
        made.pieces = made.code._pieces = Pieces({**own, "scale@1": 1.0, "scale@4": 0.5})
        return made

    together_as_alone(make, 7)
    assert len({id(each) for each in at_once}) >= 4, "the full batch and the smaller one, twice"


def test_an_attribute_that_appears_is_read(at_once):
    class Marked(code.Mlp):
        factor = 1.0

        def loss(self, model, batch):
            return self.factor * super().loss(model, batch)

    def between(run, epoch):
        if epoch == 3:
            run.code.factor = 0.25

    together_as_alone(lambda n: trial(Marked, n, params(n)), 6, between)
    assert at_once


def test_a_dropout_that_is_switched_on_draws(at_once):
    class Once(code.Mlp):
        def model(self):
            return nn.Sequential(nn.Linear(20, 32), nn.Dropout(0.0), nn.Linear(32, 3))

    def between(run, epoch):
        if epoch == 3:
            run.model[1].p = 0.5

    together_as_alone(lambda n: trial(Once, n, params(n)), 6, between)
    assert len({id(each) for each in at_once}) >= 4, "without it, and with it"


@pytest.mark.parametrize("shards", [1, 3])
def test_each_trial_draws_its_own_numbers(at_once, shards):
    together_as_alone(lambda n: trial(code.Dropout, n, params(n, p=0.4 * n), shards=shards), 5)
    assert len(at_once) > 4


def test_what_is_changed_in_place_in_a_batch_is_changed_once(at_once):
    class Inplace(code.Mlp):
        def loss(self, model, batch):
            batch[0].sub_(0.1).div_(2.0)
            return super().loss(model, batch)

    together_as_alone(lambda n: trial(Inplace, n, params(n)), 4)
    assert at_once


@pytest.mark.parametrize("what", ["prod", "fill", "max", "min by name"])
def test_what_has_other_bits_when_it_is_seen_is_not_recorded(at_once, what):
    class Seen(code.Mlp):
        def model(self):
            made = super().model()
            made.own = nn.Identity()
            made.own.weight = nn.Parameter(torch.tensor([1.1, 0.7]))
            return made

        def loss(self, model, batch):
            own, loss = model.own.weight, super().loss(model, batch)
            if what == "prod":
                return loss * own.prod()
            if what == "max":
                return loss * own.max()
            if what == "min by name":
                return loss * torch.min(input=own)
            filled = batch[0].masked_fill(batch[0] > 1.0, own[0])
            return loss + filled.mean() * own[1]

    together_as_alone(lambda n: trial(Seen, n, params(n)), 6)
    assert not at_once


def test_classes_with_weights_and_smoothing_are_trained_alone():
    class Both(code.Mlp):
        def loss(self, model, batch):
            x, y = batch
            weight = torch.tensor([0.2, 1.0, 0.7])
            return F.cross_entropy(model(x), y, weight, label_smoothing=0.1)

    fusion = Fusion()
    runs, alone = ([trial(Both, n, params(n)) for n in range(3)] for _ in range(2))
    found = fusion.run_epochs(rows(runs))
    expected = [loop.run_epoch(run, code.quiet) for run in alone]
    assert [each.metrics for each in found] == [each.metrics for each in expected]
    assert [run.hash() for run in runs] == [run.hash() for run in alone]
    assert "both label smoothing and weights" in fusion.refusal(runs[0])


def test_a_group_that_lives_for_few_steps_records_none(monkeypatch):
    """The cost of recording would not be recovered."""
    monkeypatch.setattr(recorded, "_RECORDED", 1)
    played = spied(monkeypatch)
    fusion = Fusion()
    runs = [trial(code.Mlp, n, params(n)) for n in range(4)]
    for n in range(12):  # four steps an epoch, and others in each
        fusion.run_epochs(rows([runs[0], runs[1 + n % 3]]))
    assert not played


def test_attention_that_drops_is_computed(at_once):
    together_as_alone(lambda n: trial(code.Transformer, n, params(n, p=0.1)), 3)
    assert not at_once


# -- the steps of a group ------------------------------------------------------------------------


PARTS = ("losses", "gradients", "stacks")


def drive(compute, times):
    """Steps with other batches; what each has given, and the stack after them."""
    stack = torch.zeros(2, 3)
    given = []
    seeds = lambda: [1, 2]  # noqa: E731 - of two trials
    generators = Generators(2, torch.device("cpu"))
    rules = Rules(AllRows(2), generators)
    reads = Common([code.Smoothed({"smoothing": 0.1}) for _ in range(2)])
    steps = RecordedSteps([stack], generators, rules)
    for n in range(times):
        x = torch.arange(6.0).view(2, 3) + n
        with_stack = lambda batch: compute(stack, *batch)  # noqa: E731
        losses, [gradient] = steps.step("kind", (x,), seeds, reads, with_stack, follow=0)
        given.append((losses.tolist(), gradient.tolist()))
    return given, stack


@pytest.mark.parametrize("what", ["losses", "gradients", "stacks"])
@pytest.mark.parametrize("since", [2, 3])
def test_a_step_that_changes_with_every_call_is_not_played(at_once, what, since):
    """As one does that counts its calls: two of them are recorded and compared at first."""
    calls = []

    def counting(stack, x):
        calls.append(1)
        factors = [max(1, len(calls) - since + 2) if what == each else 1 for each in PARTS]
        stack.add_(x * factors[2])
        return (x * factors[0]).sum(1), [x * factors[1]]

    if since == 3:
        with pytest.raises(Mismatch, match="other bits than what was recorded"):
            drive(counting, 2)
        assert len(at_once) == 1
        return
    given, _ = drive(counting, 4)
    assert len(calls) == 5, "one was recorded"
    assert not at_once
    factors = [2, 3, 4, 5] if what == "losses" else [1] * 4
    assert [losses[0] for losses, _ in given] == [
        (3 + 3 * n) * factor for n, factor in enumerate(factors)
    ]


def test_code_that_counts_its_calls_is_trained_alone(at_once):
    calls = []

    class Counting(code.Mlp):
        def loss(self, model, batch):
            calls.append(1)
            return super().loss(model, batch) * len(calls)

    fusion = Fusion()
    runs = [trial(Counting, n, params(n)) for n in range(3)]
    for _ in range(3):
        assert all(isinstance(each, loop.Result) for each in fusion.run_epochs(rows(runs)))
    assert "other bits" in fusion.refusal(runs[0])


def test_what_a_step_writes_to_the_stacks_is_written_once(at_once):
    calls = []

    def adding(stack, x):
        calls.append(1)
        stack.add_(x)
        return stack.sum(1), [stack * 1]

    given, stack = drive(adding, 5)
    assert len(calls) == 3, "recorded, and computed twice to be compared"
    total = torch.stack([torch.arange(6.0).view(2, 3) + n for n in range(5)]).cumsum(0)
    assert torch.equal(stack, total[-1])
    assert [losses for losses, _ in given] == total.sum(2).tolist()


OTHER = torch.zeros(3)


@pytest.mark.parametrize(
    "compute",
    [
        lambda stack, x: (F.dropout(x).sum(1), [x]),
        lambda stack, x: (x.sum(1) * x.sum().item(), [x]),
        lambda stack, x: (x.sum(1) * len(x.nonzero()), [x]),
        lambda stack, x: (x.sum(1), [x + OTHER.add_(1)]),
        lambda stack, x: (torch.view_as_complex(x[:, :2].clone()).real, [x]),
        lambda stack, x: (x.sum(1), [(x * 2).t_()]),
    ],
    ids=["random", "value", "shape", "memory", "complex", "shape in place"],
)
def test_what_cannot_be_recorded_is_computed(at_once, compute):
    OTHER.zero_()
    calls = []

    def counted(stack, x):
        calls.append(1)
        return compute(stack, x)

    drive(counted, 4)
    assert len(calls) == 5, "in one step it was tried"
    assert not at_once


def test_a_step_that_makes_much_is_computed(at_once, monkeypatch):
    monkeypatch.setattr(recorder, "LARGEST", 100)
    drive(lambda stack, x: (x.sum(1), [x * 2]), 3)
    assert at_once
    at_once.clear()
    drive(lambda stack, x: (x.sum(1), [x.repeat(9, 1) * 2]), 3)
    assert not at_once


def test_large_stacks_are_not_copied_for_it(at_once, monkeypatch):
    monkeypatch.setattr(recorded, "LARGEST", 10)
    calls = []

    def counted(stack, x):
        calls.append(1)
        return x.sum(1), [x * 2]

    drive(counted, 3)
    assert len(calls) == 3
    assert not at_once


def test_a_step_that_fails_while_it_is_seen_is_computed(at_once):
    def delicate(stack, x):
        stack.add_(x)
        if _len_torch_dispatch_stack():
            raise RuntimeError("not like this")
        return stack.sum(1), [x * 1]

    _, stack = drive(delicate, 3)
    assert torch.equal(stack, sum(torch.arange(6.0).view(2, 3) + n for n in range(3)))
    assert not at_once


def test_a_step_that_fails_fails(at_once):
    def failing(stack, x):
        if x[0, 0] == 1.0:
            raise ArithmeticError("bad")
        return x.sum(1), [x * 1]

    with pytest.raises(ArithmeticError, match="bad"):
        drive(failing, 2)


# -- what is recorded ----------------------------------------------------------------------------

KEPT = torch.arange(12.0).view(3, 4)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.stack([x, KEPT[1:2].expand(2, 4)]),
        lambda x: torch.cat([x, x.neg()], dim=1)[:, 1:7:2],
        lambda x: x.unbind(0)[1] * x.max(0).values,
        lambda x: x.index_select(1, torch.tensor([1, 0])).clamp(min=1.0, max=x.shape[1]),
        lambda x: x.t().contiguous().view(-1).add_(KEPT.t()[0, 0]),
        lambda x: torch.full_like(x, 2.0).mul_(x).masked_fill(x == 3.0, -1.0),
        lambda x: F.linear(x, KEPT.detach()),
        lambda x: x.view(2, 4).detach(),
        lambda x: torch.zeros(2, 4).scatter_(1, x.long() % 4, KEPT[:2]),
        lambda x: KEPT * 1,
        lambda x: KEPT,
    ],
)
def test_a_recording_gives_what_the_function_gives(function):
    given = torch.arange(8.0).view(2, 4)
    watching = Recorder((given,), ())
    with watching:
        made = function(given)
    assert not watching.refused
    recording = watching.end([made, None])
    for n in (3.0, 3.0, 5.0):
        other = given * n
        expected = function(other.clone())
        found, nothing = recording.play((other,))
        assert torch.equal(found, expected)
        assert found.stride() == expected.stride()
        assert nothing is None


def test_gradients_are_recorded():
    weight = torch.arange(12.0).view(3, 4).requires_grad_()

    def gradient(x):
        loss = F.cross_entropy(F.relu(F.linear(x, weight) - 20), torch.tensor([0, 2]))
        return torch.autograd.grad(loss, weight)[0]

    given = torch.arange(8.0).view(2, 4) / 8
    watching = Recorder((given,), ())
    with watching:
        made = gradient(given)
    recording = watching.end([made])
    for n in range(1, 4):
        assert torch.equal(recording.play((given * n,))[0], gradient(given * n))


def test_what_is_not_needed_any_more_is_freed():
    def watched(x):
        for _ in range(5):
            x = x * 2
        return x

    given = torch.zeros(4)
    watching = Recorder((given,), ())
    with watching:
        made = watched(given)
    recording = watching.end([made])
    freed = [len(call.last) for call in recording._calls]
    assert freed == [1] * 5, "each call's argument, the batch first"
