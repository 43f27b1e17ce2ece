"""Trials with equal system configurations are stepped together, with the bits each has alone."""

from __future__ import annotations

import pytest
import torch
from penstock.extensions.fusion.fusion import Fusion
from penstock.extensions.fusion.optimisers import VectorOptimiser
from penstock.extensions.fusion.stacks import Stack, batch_of
from penstock.tasks.checkpoints.state import copy_state
from penstock.tasks.training import loop
from torch import nn
from torch.nn import functional as F  # noqa: N812
from trainers.trainer_process import alone_hashes, hashes, hear_all, segment
from user_code import fused_code as code
from user_code.fused_code import params, rows, trial

pytestmark = pytest.mark.usefixtures("one_thread", "whatever_it_takes")

BF16, LAST = {"autocast": "bfloat16"}, {"memory_format": "channels_last"}
SYSTEMS = {"bf16": BF16, "channels_last": LAST, "both": BF16 | LAST}


class LogSoftmax(code.Mlp):
    """Its model ends with a LogSoftmax, and has a norm that is computed in float32."""

    def model(self):
        layers = [nn.Linear(20, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 3)]
        return nn.Sequential(*layers, nn.LogSoftmax(-1))

    def loss(self, model, batch):
        x, y = batch
        return F.nll_loss(model(x), y)


def same_as_alone(kind, system, *, epochs=4, shards=1, **more):
    """Train three trials together and others like them alone, and compare all after each epoch."""
    fusion = Fusion()
    together, alone = (
        [trial(kind, n, params(n, **more), shards=shards, **system) for n in range(3)]
        for _ in range(2)
    )
    for _ in range(epochs):
        found = fusion.run_epochs(rows(together))
        for run, like, outcome in zip(together, alone, found, strict=True):
            assert outcome.metrics == loop.run_epoch(like, code.quiet).metrics
            assert run.hash() == like.hash()
    assert fusion.refusal(together[0]) == ""
    return fusion, together, alone


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize(
    "kind", [code.Dropout, code.LeNet, code.BatchNorm, code.Transformer, LogSoftmax]
)
def test_bits_do_not_depend_on_company_whatever_the_configuration(kind, system):
    same_as_alone(kind, SYSTEMS[system], opt="adamw")


@pytest.mark.parametrize("system", SYSTEMS)
def test_batches_in_shards_are_summed_as_alone(system):
    same_as_alone(code.LeNet, SYSTEMS[system], shards=2, epochs=2)


@pytest.mark.parametrize("kind", [code.LeNet, code.BatchNorm])
def test_a_state_whose_memory_is_in_the_usual_order_is_taken_up_with_channels_last(kind):
    fusion, together, alone = same_as_alone(kind, LAST, opt="adamw", epochs=2)
    states = [
        torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.contiguous, copy_state(s))
        for s in (run.state() for run in together)
    ]
    for run in together:
        fusion.forget(run)
    again = [trial(kind, n, params(n, opt="adamw"), **LAST) for n in range(3)]
    for run, state in zip(again, states, strict=True):
        run.load(state, 2)
    for run, like in zip(again, alone, strict=True):
        assert run.hash() == like.hash()
    fusion.run_epochs(rows(again))
    for run, like in zip(again, alone, strict=True):
        loop.run_epoch(like, code.quiet)
        assert run.hash() == like.hash()
    assert fusion.refusal(again[0]) == ""


def test_a_stack_and_its_optimisers_have_the_memory_formats_of_the_weights():
    runs = [trial(code.LeNet, n, params(n), **LAST) for n in range(2)]
    for run in runs:
        loop.run_epoch(run, code.quiet)
        for state in run.optimizer.state.values():
            state["momentum_buffer"] = state["momentum_buffer"].contiguous()
    weights = Stack([list(run.model.parameters()) for run in runs])
    made = VectorOptimiser([run.optimizer for run in runs], weights)
    assert made.bind()
    pairs = zip(weights.stacked, made.state["momentum_buffer"].stacked, strict=True)
    for stack, state in pairs:
        assert stack.stride()[1:] == state.stride()[1:]
    images, _ = batch_of(runs[0].data.train.tensors, torch.arange(6).view(2, 3), runs[0])
    assert images.shape == (2, 3, 3, 12, 12)
    assert images[0].is_contiguous(memory_format=torch.channels_last)


def test_trials_of_unequal_configurations_have_no_structure_in_common():
    fusion = Fusion()
    found = [
        fusion.structure(trial(code.LeNet, n, params(n), **system))
        for n, system in enumerate([{}, *SYSTEMS.values()])
    ]
    assert None not in found
    assert len({each.network for each in found}) == len(found)
    threads = fusion.structure(trial(code.LeNet, 9, params(9), threads=1, **BF16))
    assert threads.network == found[1].network
    assert fusion.structure(trial(code.LeNet, 9, params(9), tf32=True)) is None


@pytest.mark.extension("lanes")
def test_in_a_lane_those_of_one_configuration_train_together(alone, large_lane):
    systems = [(), tuple(BF16.items())]
    tasks = [
        segment(
            *(code.LeNet, 1, 6),
            trial=f"s-{n:04}",
            fence=n + 1,
            ext={"fusion": {}},
            replicate=0,
            params=params(n),
            system=systems[n % 2],
        )
        for n in range(6)
    ]
    for each in tasks:
        large_lane.run(each)
    assert hashes(hear_all(large_lane, tasks)) == alone_hashes(alone, tasks)
