"""Trials that are stepped together have the bits, the metrics and the schedules of each alone."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from penstock.extensions.fusion.checks import difference, facts
from penstock.extensions.fusion.epoch import Row
from penstock.extensions.fusion.fusion import Fusion
from penstock.extensions.fusion.group import Group
from penstock.extensions.fusion.operators.watch import Watch
from penstock.tasks.checkpoints.state import copy_state
from penstock.tasks.contracts.pieces import Pieces
from penstock.tasks.training import loop
from penstock.tasks.training.evaluation import MeanLoss
from torch import nn
from user_code import fused_code as code
from user_code.fused_code import params, rows, trial

pytestmark = pytest.mark.usefixtures("one_thread", "whatever_it_takes")


#: A trainer's process, in which two trials are stepped together.
STEPPED = """
import sys
import torch
from penstock.tasks.system import compiler
compiler.defer()
torch.set_num_threads(1)
from user_code import fused_code as code
from user_code.fused_code import params, rows, trial
from penstock.extensions.fusion import known
from penstock.extensions.fusion.fusion import Fusion
known.FASTER = 1e9
fusion, runs = Fusion(), [trial(code.Mlp, n, params(n)) for n in range(2)]
assert [each.group_size for each in fusion.run_epochs(rows(runs))] == [2, 2]
assert "sympy" not in sys.modules
"""


def same_as_alone(fusion: Fusion, make, count: int, epochs: int) -> list[loop.Training]:
    """Train trials together and others like them alone, and compare all after each epoch."""
    together, alone = [make(n) for n in range(count)], [make(n) for n in range(count)]
    for _ in range(epochs):
        found = fusion.run_epochs(rows(together))
        for run, like, outcome in zip(together, alone, found, strict=True):
            expected = loop.run_epoch(like, code.quiet)
            assert outcome.metrics == expected.metrics
            assert run.hash() == like.hash()
    return together


def test_stepping_together_imports_no_sympy():
    here = str(Path(code.__file__).parents[1])
    subprocess.run(
        [sys.executable, "-P", "-c", STEPPED],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": here},
        check=True,
    )


@pytest.mark.parametrize("opt", sorted(code.OPTIMIZERS))
def test_bits_do_not_depend_on_company_whatever_the_optimiser(opt):
    fusion = Fusion()
    runs = same_as_alone(fusion, lambda n: trial(code.Mlp, n, params(n, opt=opt)), 5, 4)
    assert fusion.refusal(runs[0]) == ""


@pytest.mark.parametrize(
    "kind",
    [
        code.Dropout,
        code.LeNet,
        code.BatchNorm,
        code.Scheduled,
        code.Plateau,
        code.Clipped,
        code.Criterion,
        code.Items,
        code.Unused,
        code.Penalised,
        code.Embedded,
        code.Transformer,
    ],
)
def test_bits_do_not_depend_on_company_whatever_the_code(kind):
    fusion = Fusion()
    more = {"clip": 0.1, "gamma": 0.5}
    runs = same_as_alone(fusion, lambda n: trial(kind, n, params(n, **more)), 3, 5)
    assert fusion.refusal(runs[0]) == ""


@pytest.mark.parametrize("shards", [2, 3, 5])
@pytest.mark.parametrize(
    "kind", [code.Mlp, code.Dropout, code.LeNet, code.Clipped, code.Unused, code.Transformer]
)
def test_batches_in_shards_are_summed_as_alone(kind, shards):
    fusion = Fusion()
    more = {"clip": 0.1, "opt": "adamw"}
    runs = same_as_alone(fusion, lambda n: trial(kind, n, params(n, **more), shards=shards), 3, 4)
    assert fusion.refusal(runs[0]) == ""


@pytest.mark.parametrize("opt", ["momentum", "adamw"])
def test_dropout_of_each_trial_s_own_rate(opt):
    fusion = Fusion()
    rates = (0.0, 0.25, 0.5, 1.0)
    runs = same_as_alone(
        fusion, lambda n: trial(code.Dropout, n, params(n, opt=opt, p=rates[n])), 4, 3
    )
    assert len({fusion.structure(run) for run in runs}) == 1
    assert fusion.refusal(runs[0]) == ""


def test_products_that_the_user_writes():
    class Written(code.Mlp):
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.one = torch.nn.Parameter(torch.randn(20, 16) / 5)
                self.two = torch.nn.Parameter(torch.randn(16, 3) / 4)

            def forward(self, x):
                return torch.einsum("bi,ij->bj", torch.relu(x @ self.one), self.two)

        def model(self):
            return self.Net()

    fusion = Fusion()
    runs = same_as_alone(fusion, lambda n: trial(Written, n, params(n)), 3, 3)
    assert fusion.refusal(runs[0]) == ""


def test_a_transformer_with_dropout_in_its_attention():
    fusion = Fusion()
    runs = same_as_alone(
        fusion, lambda n: trial(code.Transformer, n, params(n, opt="adamw", p=0.2)), 3, 4
    )
    assert fusion.refusal(runs[0]) == ""


def test_betas_and_numbers_of_steps_differ():
    fusion = Fusion()
    older, like = (trial(code.Mlp, 9, params(1, opt="adamw")) for _ in range(2))
    for _ in range(3):
        loop.run_epoch(older, code.quiet)
        loop.run_epoch(like, code.quiet)
    new = [trial(code.Mlp, n, params(n, opt="adamw", betas=(0.5, 0.9 + 0.01 * n))) for n in (1, 2)]
    new_like = [
        trial(code.Mlp, n, params(n, opt="adamw", betas=(0.5, 0.9 + 0.01 * n))) for n in (1, 2)
    ]
    for _ in range(2):
        fusion.run_epochs(rows([older, *new]))
        for run in (like, *new_like):
            loop.run_epoch(run, code.quiet)
    assert [r.hash() for r in (older, *new)] == [r.hash() for r in (like, *new_like)]
    assert fusion.refusal(older) == ""


def test_trials_join_and_leave_between_epochs_and_are_loaded():
    fusion = Fusion()
    make = [lambda n=n: trial(code.Mlp, n, params(n, opt="adam")) for n in range(6)]
    runs, alone = [each() for each in make], [each() for each in make]
    for company in ((0, 1), (0, 1, 2), (5, 3, 2), (3, 5), (0, 1, 2, 3, 4, 5), (0, 1, 2, 3, 4, 5)):
        fusion.run_epochs(rows([runs[n] for n in company]))
        for n in company:
            loop.run_epoch(alone[n], code.quiet)
        assert [run.hash() for run in runs] == [run.hash() for run in alone]
    # What has been loaded from outside is noticed, tensors of the optimiser's state among it.
    for run in (runs[0], alone[0]):
        run.load(copy_state(alone[1].state()), alone[1].epoch)
    fusion.run_epochs(rows(runs))
    for run in alone:
        loop.run_epoch(run, code.quiet)
    assert [run.hash() for run in runs] == [run.hash() for run in alone]
    assert fusion.refusal(runs[0]) == ""


def test_hyperparameters_that_change_by_steps_are_in_force():
    def make(n):
        made = trial(code.Mlp, n, params(n))
        made.pieces = made.code._pieces = Pieces({**params(n), "lr@1": 0.3 / (n + 1), "lr@3": 0.01})
        return made

    same_as_alone(Fusion(), make, 3, 5)


class Leaky(code.Mlp):
    def model(self):
        return nn.Sequential(nn.Linear(20, 32), nn.LeakyReLU(0.1), nn.Linear(32, 3))


def change_slope(run, n):
    run.model[1].negative_slope = 0.3


def change_slope_of_one(run, n):
    run.model[1].negative_slope = 0.3 if n == 1 else 0.1


def replace_layer(run, n):
    run.model[1] = nn.Tanh()


def add_hook(run, n):
    run.model[0].register_forward_hook(lambda module, given, made: made * 1.5)


@pytest.mark.parametrize("change", [change_slope, change_slope_of_one, replace_layer, add_hook])
def test_what_a_user_changes_in_a_model_between_epochs_is_in_force(change):
    fusion = Fusion()
    runs, alone = ([trial(Leaky, n, params(n)) for n in range(3)] for _ in range(2))
    for epoch in range(6):
        if epoch == 3:
            for n in range(3):
                change(runs[n], n)
                change(alone[n], n)
        found = fusion.run_epochs(rows(runs))
        expected = [loop.run_epoch(run, code.quiet) for run in alone]
        assert [each.metrics for each in found] == [each.metrics for each in expected]
        assert [run.hash() for run in runs] == [run.hash() for run in alone]


def test_a_loss_that_is_a_view_of_a_parameter_is_that_of_its_step():
    class View(code.Mlp):
        def loss(self, model, batch):
            return model[4].bias[0]

    same_as_alone(Fusion(), lambda n: trial(View, n, params(n)), 3, 4)


def test_examples_without_a_class_are_left_out():
    class Ignoring(code.Mlp):
        def loss(self, model, batch):
            x, y = batch
            return torch.nn.functional.cross_entropy(model(x), y.where(y > 0, -100))

    fusion = Fusion()
    runs = same_as_alone(fusion, lambda n: trial(Ignoring, n, params(n)), 3, 3)
    assert fusion.refusal(runs[0]) == ""


def test_ticks_are_called_before_each_step():
    calls = []
    runs = [trial(code.Mlp, n, params(n)) for n in range(3)]
    ticks = [Row(run, lambda *at, n=n: calls.append((n, *at))) for n, run in enumerate(runs)]
    Fusion().run_epochs(ticks)
    assert calls == [(n, 1, step, 4) for step in range(1, 5) for n in range(3)]


@pytest.mark.parametrize("steps", [1, 255, 256, 257, 511, 512, 800])
def test_mean_losses_are_those_of_one_trial(steps):
    from penstock.extensions.fusion.evaluation import mean_losses

    losses = [torch.randn(3) for _ in range(steps)]
    examples = 8 * (steps - 1) + 5
    expected = []
    for k in range(3):
        mean = MeanLoss()
        for i, each in enumerate(losses):
            mean.add(each[k].clone(), 8 if i < steps - 1 else 5)
        expected.append(mean.value(examples))
    assert mean_losses(losses, 8, examples) == expected


def test_one_of_them_is_timed_alone_whenever_their_epochs_have_doubled():
    fusion, runs = Fusion(), [trial(code.Mlp, n, params(n)) for n in range(3)]
    found = [fusion.run_epochs(rows(runs)) for _ in range(9)]
    company = [sorted(each.group_size for each in epoch) for epoch in found]
    timed = [n for n, each in enumerate(company, 1) if each == [1, 2, 2]]
    assert timed == [2, 4, 8]
    assert all(each == [3, 3, 3] for n, each in enumerate(company, 1) if n not in timed)
    assert {each.alone for each in found[0]} == {0.0}, "that is not known yet"
    for n, epoch in enumerate(found[2:], 3):
        alone = [each.seconds for past in found[:n] for each in past if each.group_size == 1]
        known = {each.alone for each in epoch if each.group_size > 1}
        assert all(min(alone) <= each <= max(alone) for each in known)


@pytest.mark.parametrize("count", [2, 4])
def test_the_others_keep_their_stacks_while_one_is_timed_alone(monkeypatch, count):
    made = []
    of_new = Group.__init__

    def counted(self, runs, *args, **named):
        made.append(len(runs))
        of_new(self, runs, *args, **named)

    monkeypatch.setattr(Group, "__init__", counted)
    same_as_alone(Fusion(), lambda n: trial(code.Mlp, n, params(n, opt="adamw")), count, 9)
    assert made == [count]


@pytest.mark.parametrize("opt", ["momentum", "adamw", "rmsprop"])
@pytest.mark.parametrize("begun", [0, 1])
def test_those_who_are_left_go_on_in_their_rows(opt, begun):
    """The others are trained alone meanwhile, in what is still the memory of the stacks."""
    fusion = Fusion()
    runs, alone = ([trial(code.Mlp, n, params(n, opt=opt)) for n in range(5)] for _ in range(2))
    later = ([0, 1, 2, 3], [1, 2, 3], [0, 1], [0, 1, 2, 3, 4], [3, 4], [0, 2, 4])
    for company in ([0, 1, 2, 3, 4],) * begun + later:
        apart = [n for n in range(5) if n not in company]
        fusion.run_epochs(rows([runs[n] for n in company]))
        for run in (*(runs[n] for n in apart), *alone):
            loop.run_epoch(run, code.quiet)
        assert [run.hash() for run in runs] == [run.hash() for run in alone]
    assert fusion.refusal(runs[0]) == ""


@pytest.mark.parametrize("opt", ["sgd", "momentum", "adamw"])
def test_what_differs_in_a_bit_has_its_name(opt):
    run = trial(code.BatchNorm, 0, params(0, opt=opt))
    loop.run_epoch(run, code.quiet)
    loss = torch.tensor(float("nan"))
    before = facts(run, loss)
    assert difference(before, facts(run, loss.clone())) == ""
    assert difference(before, facts(run, torch.tensor(0.0))) == "the loss"
    tensors = {name: each for name, each in run.model.state_dict().items() if each.numel()}
    state = run.optimizer.state
    for name, parameter in run.model.named_parameters():
        tensors |= {f"{n} of {name}": each for n, each in state[parameter].items()}
    for name, tensor in tensors.items():
        last = tensor.view(-1)[-1:]
        last += 1
        assert difference(before, facts(run, loss)) == name
        last.copy_(before.named()[name].view(-1)[-1:])
    assert difference(before, facts(run, loss)) == ""
    some = next(iter(run.model.parameters()))
    state[some]["beside"] = 1
    assert difference(before, facts(run, loss)).startswith("beside of ")
    with_it = facts(run, loss)
    assert difference(with_it, facts(run, loss)) == ""
    state[some]["beside"] = 1.0
    assert difference(with_it, facts(run, loss)).startswith("beside of ")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_compared_are_copies_with_the_signs_of_zeros(dtype):
    run, loss = trial(code.Mlp, 0, params(0)), torch.zeros((), dtype=dtype)
    before = facts(run, loss)
    assert difference(before, facts(run, loss)) == ""
    loss.neg_()
    assert difference(before, facts(run, loss)) == "the loss"


def test_what_watching_the_first_evaluation_takes_is_not_held_against_it(monkeypatch):
    class Slow(Watch):
        def __enter__(self):
            until = time.thread_time() + 0.2
            while time.thread_time() < until:
                pass
            return super().__enter__()

    monkeypatch.setattr("penstock.extensions.fusion.group.Watch", Slow)
    fusion, runs = Fusion(), [trial(code.Mlp, n, params(n)) for n in range(3)]
    for _ in range(3):
        fusion.run_epochs(rows(runs))
    times = fusion._known.admission(fusion.structure(runs[0])).evaluation
    assert not times.undecided(3)
    assert max(times.fused(3)) < 0.2 / 3
