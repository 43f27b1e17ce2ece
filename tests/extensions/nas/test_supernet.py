"""Super-nets: which paths are drawn, what they train, and candidates with their weights."""

from __future__ import annotations

import copy
from collections import Counter
from itertools import islice

import pytest
import torch
from penstock import UsageError, nas
from penstock.app.spec.conditions import parse_conditions, without_inactive
from penstock.base.errors import TrialFailed
from penstock.extensions.fusion.operators.not_fused import NotFused
from penstock.extensions.fusion.structure import structure_of
from penstock.extensions.nas.recalibration import Recalibration
from penstock.tasks.checkpoints.checkpoint import Store
from penstock.tasks.contracts.rng import key
from penstock.tasks.process.failure import Lost
from penstock.tasks.training import loop
from torch import nn
from torch.autograd.profiler import profile
from trainers.trainer_here import Trainer
from trainers.trainer_process import known, segment
from user_code.nas_code import Fitted
from user_code.supernet_code import (
    Candidate,
    PathOfWeights,
    Space,
    Super,
    SuperImages,
    SuperWeights,
)

from testkit.nas_spaces import at_random

#: ``benchmarks.nas`` needs the last two.
pytestmark = pytest.mark.extension("fusion", "sharing", "simulation")

SPACE = nas.space(Space)
PARAMS = {
    "depth": 2, "op0": "tanh", "op1": "relu", "join": 1,
    "cell.0.op0": "a", "cell.0.op1": "b", "cell.1.inputs": "0+2", "cell.1.op0": "b",
    "cell.1.op1": "a",
}  # fmt: skip


def path_of(net):
    """The candidates that the last forward pass of a super-net took, by label."""
    found = {"depth": net.body.depth, "join": net.join.chosen[0]}
    found |= {each.label: each.key for each in net.body.children()}
    for number, node in enumerate(net.cell.nodes):
        if number:
            found[node.label] = "+".join(map(str, node.chosen))
        for slot, state in enumerate(node.chosen):
            operation = node.get_submodule(f"op{slot}_{state}")
            found[operation.label] = operation.key
    return found


def begin(code, shards=1, number=0):
    return loop.start(code, code.data(), 7, number, shards)


def epoch(training):
    return loop.run_epoch(training, lambda *_: None).metrics


def test_each_path_computes_what_its_model_does_with_the_weights_of_its_names():
    net = nas.supernet(Space)
    assert nas.size(SPACE) == 2 * (3 + 9 + 27) * 4 * (3 * 4)
    x = torch.rand(8, 3)
    used = Counter()
    for _ in range(15):
        out = net(x)
        path = without_inactive(path_of(net), parse_conditions(SPACE))
        one = nas.build(Space, path)
        assert one.architecture == path
        weights = net.state_dict()
        one.load_state_dict({name: weights[name] for name in one.state_dict()})
        one.train()
        with torch.no_grad():
            assert torch.equal(one(x), out)
        used.update(one.state_dict().keys())
    assert used.keys() <= net.state_dict().keys()


def test_every_choice_is_drawn_uniformly_and_independently():
    net = nas.supernet(Space)
    torch.manual_seed(3)
    draws, pairs, seen = 4000, Counter(), {}
    net.forward = lambda: None
    for _ in range(draws):
        net()
        path = path_of(net)
        pairs[path["op0"], path["op1"]] += 1
        for label in ("depth", "join", "op2", "cell.1.inputs"):
            seen.setdefault(label, Counter())[path[label]] += 1
    for label, found in {"pairs": pairs, **seen}.items():
        n = {"pairs": 9, "join": 2}.get(label, 3)
        assert len(found) == n
        chance = 1 / n
        spread = 5 * (draws * chance * (1 - chance)) ** 0.5
        assert all(abs(each - draws * chance) < spread for each in found.values()), (label, found)


def test_a_path_follows_from_torchs_seed_also_in_a_copy_and_in_evaluation():
    net = nas.supernet(Space)
    other = copy.deepcopy(net).eval()

    def paths(of):
        torch.manual_seed(5)
        for _ in range(6):
            of(torch.ones(3, 3))
            yield path_of(of)

    assert list(paths(net)) == list(paths(other))
    assert len({tuple(each.items()) for each in paths(net)}) == 6


def test_a_value_is_refused_by_name_unless_it_is_given():
    with pytest.raises(UsageError, match=r"one of \[4, 8\], given as in .*'width'") as caught:
        nas.supernet(Space, width=[4, 8])
    assert caught.value.field == "width"
    with pytest.raises(UsageError, match=r"params\['width'\] = 5 .*one of \[4, 8\]"):
        nas.supernet(Space, {"width": 5}, width=[4, 8])
    net = nas.supernet(Space, {"width": 4, "op1": "tanh", "lr": 0.1}, width=[4, 8])
    assert [list(each._modules) for each in net.body.children()] == [
        ["relu", "tanh", "skip"], ["tanh"], ["relu", "tanh", "skip"],
    ]  # fmt: skip
    assert net(torch.ones(2, 3)).shape == (2, 1)


def test_what_has_no_paths_and_what_is_no_model_with_choices_is_refused():
    [params] = at_random(SPACE, 1)
    with pytest.raises(UsageError, match=r"the model = 'Space' .*that params leaves open"):
        nas.supernet(Space, {"depth": 1, **PARAMS, **params, "op1": "skip", "op2": "skip"})
    with pytest.raises(UsageError, match=r"a class that derives from nas\.ModelSpace"):
        nas.supernet(nn.Linear)
    with pytest.raises(UsageError, match="a mapping of names to values"):
        nas.supernet(Space, ["depth"])


def test_one_label_with_different_candidates_is_refused_by_name():
    class Two(nas.ModelSpace):
        def __init__(self):
            super().__init__()
            self.one = nas.LayerChoice({"a": nn.ReLU, "b": nn.Tanh}, "op")
            self.other = nas.LayerChoice({"a": nn.ReLU}, "op")

    with pytest.raises(UsageError, match="the candidates of 'op'"):
        nas.supernet(Two)


class Watched(Super):
    """Notes the path of each shard."""

    def loss(self, model, batch):
        loss = super().loss(model, batch)
        self.paths.append(path_of(model))
        return loss


@pytest.mark.parametrize("shards", [1, 4])
def test_each_shard_trains_a_path_of_its_own_which_its_keys_draw(shards):
    code = Watched({})
    code.paths = []
    training = begin(code, shards)
    epoch(training)
    paths = code.paths[: 4 * shards]
    net = nas.supernet(Space)
    for step, shard in ((step, shard) for step in range(4) for shard in range(shards)):
        torch.manual_seed(key("step", 7, 0, 1, step + 1, shard))
        net(torch.ones(2, 3))
        assert path_of(net) == paths[step * shards + shard]
    assert len({tuple(each.items()) for each in paths}) == len(paths)


def test_a_step_leaves_what_no_shard_used_as_it_was():
    code = Watched({})
    code.paths = []
    training = begin(code)
    before = copy.deepcopy(training.model.state_dict())
    for _ in loop.time_steps(training, 1, lambda: None):
        pass
    [path] = code.paths
    one = nas.build(Space, path)
    changed = {n for n, t in training.model.state_dict().items() if not torch.equal(t, before[n])}
    assert {"stem.weight", "head.weight"} < changed <= set(one.state_dict())


def test_its_bits_are_the_same_at_both_widths_and_after_every_move(trainers):
    task = {"shards": 4, "metric": "loss", "trial": "s-0001"}
    one, other = trainers
    alone = one.carry_out(segment(Super, 1, 3, **task))
    hashes = [m["state_hash"] for m in alone if m["op"] == "epoch"]
    assert len(set(hashes)) == 3
    queues, members = ("cpu.0", "cpu.1"), [one.identity, other.identity]
    wide = segment(Super, 1, 2, **task, fence=2, queues=queues)
    for rank, trainer in enumerate(trainers):
        trainer.run(wide.model_copy(update={"rank": rank}), members)
    head, _ = [trainer.hear_out() for trainer in trainers]
    assert [m["state_hash"] for m in head if m["op"] == "epoch"] == hashes[:2]
    moved = other.carry_out(segment(Super, 3, 1, **task, fence=3, **known(one, head)))
    assert [m["state_hash"] for m in moved if m["op"] == "epoch"] == hashes[2:]


def test_one_whose_trainer_is_gone_is_replayed_to_the_same_bits(one_thread):
    task = {"metric": "loss", "trial": "s-0002"}
    whole = [m["state_hash"] for m in Trainer().train(Super, 1, 3, **task)]
    another = Trainer()
    third = another.train(Super, 3, 1, **task, expect=whole[1])
    assert [m["state_hash"] for m in third] == whole[2:]
    assert another.replays()


def test_it_is_not_trained_together_with_others(one_thread):
    with pytest.raises(NotFused, match="hooks"):
        structure_of(begin(Super({})))


@pytest.mark.extension("memory")
def test_its_memory_can_be_estimated():
    found = estimate(lambda: begin(Super({})))
    assert found["failed"] == ""
    assert found["persistent"] > 0


def estimate(make):
    from penstock.extensions.memory.traces.estimator import Estimator

    return Estimator().estimate(make)


def counted(training, epochs):
    """The allocator's own count over some epochs, from before the first step on."""
    from penstock.extensions.memory.traces.allocator import peak_bytes
    from penstock.extensions.memory.traces.scratch import allocations
    from penstock.extensions.memory.traces.storages import persistent

    before = persistent(training.model, training.optimizer)
    with profile(profile_memory=True) as seen:
        for _ in range(epochs):
            epoch(training)
    return before + peak_bytes(sorted(allocations(seen)))


@pytest.mark.extension("memory")
@pytest.mark.parametrize("code", [SuperImages, SuperWeights])
def test_the_memory_of_a_super_net_is_estimated_as_that_of_its_heaviest_path(code, one_thread):
    from penstock.extensions.memory.traces.storages import persistent

    found = estimate(lambda: begin(code({})))
    assert found["failed"] == ""
    training = begin(code({}))
    peak = counted(training, 12)  # 156 paths
    assert found["persistent"] == persistent(training.model, training.optimizer)
    assert found["persistent"] + found["ephemeral"] == pytest.approx(peak, rel=0.15)


@pytest.mark.extension("memory")
def test_the_first_steps_of_a_super_net_are_not_taken_for_what_it_needs(one_thread):
    trainer = Trainer()
    trainer.segments.hook["memory"].estimator.trained(1e6)
    trainer.train(SuperImages, metric="loss")
    assert not [each for each in trainer.said if each["op"] == "footprint"]


@pytest.mark.extension("memory")
def test_the_memory_of_a_candidate_is_that_of_an_evaluation(one_thread):
    def candidate():
        training = begin(PathOfWeights({}))
        training.instead = Recalibration(3)
        return training

    found = estimate(candidate)
    assert found["failed"] == ""
    weights = sum(each.nbytes for each in candidate().model.parameters())
    assert found["persistent"] == weights
    peak = counted(candidate(), 1)
    assert found["persistent"] + found["ephemeral"] == pytest.approx(peak, rel=0.05)
    assert found["ephemeral"] < weights, "it has no gradients"


@pytest.mark.extension("memory")
def test_a_waiting_candidate_is_estimated_as_one(trained, one_thread):
    trainer = Trainer()
    trainer.segments.hook["memory"].estimator.trained(1e6)
    other = {"trial": "s-0001", "number": 1, "params": PARAMS}
    told = of_supernet(trained[0]) | {"memory": {"estimate": [other]}}
    trainer.train(Candidate, params=PARAMS, metric="loss", ext=told)
    [said] = [each for each in trainer.said if each.get("of") == "s-0001"]
    net = nas.build(Space, PARAMS)
    assert said["persistent"] == sum(each.nbytes for each in net.state_dict().values())
    assert said["ephemeral"] > 0
    assert not said["failed"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A trained super-net in a store, as a segment names it; and its weights."""
    training = begin(Super({}))
    epoch(training)
    uri = Store(tmp_path_factory.mktemp("store").as_uri()).save(training.state(), 1)
    return {"uri": uri, "state_hash": training.hash(), "batches": 3}, training.model.state_dict()


def of_supernet(ref):
    """Return the values that the scheduler's end gives a candidate of a super-net."""
    return {"nas": {"supernet": ref}}


def by_hand(weights, params, number, batches):
    """The model of a candidate, and its validation loss: torch's own recalibration, no loop."""
    net = nas.build(Space, params)
    net.load_state_dict({name: weights[name] for name in net.state_dict()})
    data = Fitted({}).data()
    order = torch.randperm(64, generator=torch.Generator().manual_seed(key("order", 7, number, 1)))
    parts = [data.train.tensors[0][part] for part in islice(order.split(16), batches)]
    torch.optim.swa_utils.update_bn(parts, net)
    net.eval()
    with torch.no_grad():
        x, y = data.validation.tensors
        return net, nn.functional.mse_loss(net(x), y).double().item()


def test_a_candidate_has_the_value_that_direct_evaluation_gives(trained, one_thread):
    ref, weights = trained
    trainer, values = Trainer(), []
    for number, params in enumerate(at_random(SPACE, 3)):
        trial = f"s-{number:04d}"
        [said] = trainer.train(
            Candidate, params=params, trial=trial, metric="loss", ext=of_supernet(ref)
        )
        net, loss = by_hand(weights, params, number, 3)
        warm = trainer.segments._warm.get(trial).training
        assert said["metrics"] == {"loss": loss}
        for name, tensor in warm.model.state_dict().items():
            assert torch.equal(tensor, net.state_dict()[name]), name
        values.append(loss)
    assert len(set(values)) == 3


def test_a_candidate_is_recalibrated_over_so_many_batches_as_it_is_told(trained, one_thread):
    ref, weights = trained
    losses = []
    for batches in (1, 4, 99):
        told = ref | {"batches": batches}
        [said] = Trainer().train(Candidate, params=PARAMS, metric="loss", ext=of_supernet(told))
        assert said["metrics"]["loss"] == by_hand(weights, PARAMS, 0, batches)[1]
        losses.append(said["metrics"]["loss"])
    assert losses[0] != losses[1]
    assert losses[1] == losses[2], "an epoch has four"


def test_layers_have_the_momentum_that_they_had(trained):
    trainer = Trainer()
    trainer.train(Candidate, params=PARAMS, metric="loss", ext=of_supernet(trained[0]))
    model = trainer.segments._warm.get("s-0000").training.model
    assert {m.momentum for m in model.modules() if isinstance(m, nn.BatchNorm1d)} == {0.1}


class Wider(Candidate):
    """Not a path of the super-net."""

    def model(self):
        net = super().model()
        net.head = nn.Linear(8, 2)
        net.more = nn.Linear(1, 1)
        return net


def test_what_the_super_net_does_not_have_is_named(trained):
    with pytest.raises(TrialFailed, match=r"for head.weight, head.bias, more.weight, more.b") as e:
        Trainer().train(Wider, params=PARAMS, metric="loss", ext=of_supernet(trained[0]))
    assert e.value.kind == "fork"


def test_a_state_that_is_gone_ends_the_study_and_a_store_that_is_away_does_not(trained, tmp_path):
    gone = trained[0] | {"uri": f"{tmp_path.as_uri()}/00/{'0' * 64}.pt", "state_hash": "other"}
    with pytest.raises(TrialFailed, match="not in the store any more") as e:
        Trainer().train(Candidate, params=PARAMS, metric="loss", ext=of_supernet(gone))
    assert e.value.kind == "checkpoint"
    away = trained[0] | {"uri": f"{tmp_path.as_uri()}", "state_hash": "other"}
    with pytest.raises(Lost, match="cannot be read"):
        Trainer().train(Candidate, params=PARAMS, metric="loss", ext=of_supernet(away))
