"""Shape repair: each kind of layer, adaptors, gates, weights carried over, and what is refused."""

from __future__ import annotations

import pytest
import torch
from penstock import UsageError, nas
from torch import nn


def model(forward, example, **parts):
    """A class of model with parts that these functions make."""

    class Made(nas.ModelSpace):
        def __init__(self):
            super().__init__()
            for name, part in parts.items():
                self.add_module(name, part())

        def example(self):
            return example

    Made.forward = forward
    return Made


def through(example, *layers):
    """A class of model in which layers "a", "b", ... follow one another."""

    def forward(self, x):
        for layer in self.children():
            x = layer(x)
        return x

    return model(forward, example, **dict(zip("abcdef", layers, strict=False)))


def act_at(net, name, act, *, repair=None):
    """The model after ``act`` was done at the site of this name, by the mutator "resize"."""
    torch.manual_seed(0)
    resize = nas.Mutator("resize", lambda site: site.name == name, act, needed=True)
    return nas.build(net, {}, mutators=[resize], repair=repair)


def changed(net, name, *, repair=None, **arguments):
    """The model after the layer of this name was updated."""
    return act_at(net, name, lambda site: site.update(**arguments), repair=repair)


def repairs(net):
    """Return the changes of the repair, by node."""
    return {
        each.at: each.values.get("arguments") or each.values["layer"]
        for each in net.derivation.log
        if each.by == "repair"
    }


IMAGES = torch.randn(2, 3, 8, 8)
ROWS = torch.randn(3, 6)
SEQUENCES = torch.randn(2, 5, 6)


def stem():
    return nn.Conv2d(3, 8, 3, padding=1)


def projection():
    return nn.Linear(6, 8)


@pytest.mark.parametrize(
    ("layer", "last", "change"),
    [
        (lambda: nn.Conv2d(8, 8, 3), 8, {"in_channels": 12}),
        (lambda: nn.ConvTranspose2d(8, 8, 2), 8, {"in_channels": 12}),
        (
            lambda: nn.Conv2d(8, 8, 3, groups=8),
            8,
            {"in_channels": 12, "out_channels": 12, "groups": 12},
        ),
        (
            lambda: nn.Conv2d(8, 16, 3, groups=8),
            16,
            {"in_channels": 12, "out_channels": 24, "groups": 12},
        ),
        (lambda: nn.Conv2d(8, 16, 3, groups=4), 16, {"in_channels": 12}),
        (lambda: nn.BatchNorm2d(8), 8, {"num_features": 12}),
        (lambda: nn.InstanceNorm2d(8, affine=True), 8, {"num_features": 12}),
        (lambda: nn.GroupNorm(4, 8), 8, {"num_channels": 12}),
        (lambda: nn.LayerNorm([8, 8, 8]), 8, {"normalized_shape": (12, 8, 8)}),
        (lambda: nn.PReLU(8), 8, {"num_parameters": 12}),
    ],
)
def test_a_layer_behind_a_convolution_is_made_to_fit(layer, last, change):
    net = changed(through(IMAGES, stem, layer, lambda: nn.Conv2d(last, 2, 1)), "a", out_channels=12)
    assert repairs(net)["b"] == change
    assert net(IMAGES).shape[:2] == (2, 2)


@pytest.mark.parametrize(
    ("layer", "change"),
    [
        (lambda: nn.Linear(8, 8), {"in_features": 12}),
        (lambda: nn.LayerNorm(8), {"normalized_shape": (12,)}),
    ],
)
def test_a_layer_behind_a_linear_one_is_made_to_fit(layer, change):
    net = changed(
        through(SEQUENCES, projection, layer, lambda: nn.Linear(8, 2)), "a", out_features=12
    )
    assert repairs(net)["b"] == change
    assert net(SEQUENCES).shape == (2, 5, 2)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_recurrent_layer_is_made_to_fit(kind):
    def forward(self, x):
        states, _ = self.cells(self.first(x))
        return self.head(states)

    net = model(
        forward,
        SEQUENCES,
        first=projection,
        cells=lambda: kind(8, 4, batch_first=True, bidirectional=True),
        head=lambda: nn.Linear(8, 2),
    )
    net = changed(net, "first", out_features=12)
    assert repairs(net) == {"cells": {"input_size": 12}}
    assert net.cells.bidirectional and net.cells.hidden_size == 4


def attending(heads=2):
    def forward(self, x):
        x = self.first(x)
        memory = self.memory(x)
        found, _ = self.attention(x, memory, memory)
        return self.head(found)

    return model(
        forward,
        SEQUENCES,
        first=projection,
        memory=lambda: nn.Linear(8, 8),
        attention=lambda: nn.MultiheadAttention(8, heads, batch_first=True),
        head=lambda: nn.Linear(8, 2),
    )


def test_attention_follows_its_query_its_keys_and_its_values():
    net = changed(attending(), "memory", out_features=10)
    assert repairs(net) == {"attention": {"embed_dim": 8, "kdim": 10, "vdim": 10}}
    net = changed(attending(), "first", out_features=12)
    assert repairs(net) == {
        "memory": {"in_features": 12},
        "attention": {"embed_dim": 12, "kdim": 8, "vdim": 8},
        "head": {"in_features": 12},
    }
    assert net(SEQUENCES).shape == (2, 5, 2)


def test_attention_whose_heads_do_not_divide_the_width_stops_with_the_choices():
    with pytest.raises(UsageError, match=r"attention \(Mult.*num_heads may be \[1, 3, 9\]"):
        changed(attending(), "first", out_features=9)


TOKENS = torch.tensor([[1, 4, 9], [0, 2, 3]])


def embedding():
    return through(TOKENS, lambda: nn.Embedding(10, 6), lambda: nn.Linear(6, 2))


def test_what_follows_an_embedding_is_made_to_fit():
    net = changed(embedding(), "a", embedding_dim=4)
    assert repairs(net) == {"b": {"in_features": 4}}


def test_an_embedding_keeps_a_row_for_each_token_that_comes_in():
    net = act_at(embedding(), "a", lambda site: site.replace("Embedding", 5, 6))
    assert repairs(net) == {"a": {"num_embeddings": 10}}
    net = act_at(embedding(), "a", lambda site: site.replace("Embedding", 20, 6))
    assert repairs(net) == {}


def residual(forward=None, example=IMAGES, **parts):
    def plain(self, x):
        x = self.first(x)
        return self.head(x + self.branch(x))

    parts = {"first": stem, "branch": lambda: nn.Conv2d(8, 8, 3, padding=1), **parts}
    return model(forward or plain, example, **parts | {"head": lambda: nn.Conv2d(8, 2, 1)})


@pytest.mark.parametrize(
    ("policy", "adapted", "sizes", "head"),
    [("shortcut", "first", [8, 12, 1], 12), ("branch", "branch", [12, 8, 1], 8)],
)
def test_an_addition_gets_an_adaptor_as_the_policy_says(policy, adapted, sizes, head):
    net = changed(residual(), "branch", out_channels=12, repair=nas.Repair(additions=policy))
    layer = repairs(net)[adapted]
    assert (layer["make"], layer["args"]) == ("torch.nn:Conv2d", sizes)
    assert net.head.in_channels == head
    [adaptor] = net.mutated.children()
    x = net.first(IMAGES)
    sides = (adaptor(x), net.branch(x)) if policy == "shortcut" else (x, adaptor(net.branch(x)))
    assert torch.equal(net(IMAGES), net.head(sides[0] + sides[1]))


def test_an_addition_is_refused_where_the_policy_says_so():
    with pytest.raises(UsageError, match=r"resize made.*at add: .*first.*branch.*'shortcut' or"):
        changed(residual(), "branch", out_channels=12, repair=nas.Repair(additions="refuse"))
    with pytest.raises(UsageError, match="additions = 'adapt' is refused"):
        nas.Repair(additions="adapt")
    with pytest.raises(UsageError, match="carry = 'all' is refused"):
        nas.Repair(carry="all")


def test_a_stride_in_a_branch_is_followed_by_the_adaptor():
    def pooled(self, x):
        x = self.first(x)
        return self.head((x + self.branch(x)).mean((2, 3), keepdim=True))

    net = changed(residual(pooled), "branch", stride=2)
    assert repairs(net)["first"] == {
        "make": "torch.nn:Conv2d", "args": [8, 8, 1], "kwargs": {"stride": 2},
    }  # fmt: skip


def test_sides_that_differ_in_more_than_channels_stop_with_their_names():
    with pytest.raises(
        UsageError, match=r"at add: .*first \(2, 8, 8, 8\).*branch.*rewire"
    ) as caught:
        changed(residual(), "branch", padding=0)
    assert caught.value.field == "resize"


def test_a_new_connection_gets_an_adaptor():
    def sequences(self, x):
        return self.head(self.branch(self.first(x)))

    kinds = {
        "first": projection,
        "branch": lambda: nn.Linear(8, 4),
        "head": lambda: nn.Linear(4, 2),
    }
    net = act_at(
        model(sequences, SEQUENCES, **kinds),
        "branch",
        lambda site: site.connect(site.find("first")),
    )
    assert repairs(net)["first"]["args"] == [8, 4]
    assert repairs(net)["first"]["make"] == "torch.nn:Linear"


def gated(self, x):
    x = self.first(x)
    gate = self.gate(x.mean((2, 3), keepdim=True)).sigmoid()
    return self.head(x * gate)


def test_a_gate_follows_what_it_gates():
    net = changed(residual(gated, gate=lambda: nn.Conv2d(8, 8, 1)), "first", out_channels=12)
    assert (net.gate.in_channels, net.gate.out_channels) == (12, 12)
    assert "mutated" not in dict(net.named_children())


def test_a_gate_has_no_size_of_its_own_and_one_of_one_channel_stays():
    net = changed(residual(gated, gate=lambda: nn.Conv2d(8, 1, 1)), "first", out_channels=12)
    assert net.gate.out_channels == 1
    net = changed(residual(gated, gate=lambda: nn.Conv2d(8, 8, 1)), "gate", out_channels=12)
    assert net.gate.out_channels == 8
    assert net.derivation.digest == net.derivation.base


def test_of_two_sides_of_one_size_the_one_that_is_as_it_was_follows():
    def multiplied(self, x):
        return self.head(self.first(x) * self.branch(x).tanh())

    net = residual(multiplied, branch=stem)
    assert changed(net, "first", out_channels=12).branch.out_channels == 12
    assert changed(net, "branch", out_channels=12).first.out_channels == 12
    with pytest.raises(UsageError, match=r"at mul: its sides do not fit: first.*tanh"):

        def both(site):
            site.update(out_channels=12)
            site.find("branch").update(out_channels=6)

        act_at(net, "first", both)


def test_a_gate_that_differs_in_more_than_channels_stops_with_its_names():
    def shrunk(self, x):
        x = self.first(x)
        small = self.branch(x)
        gate = self.gate(small.mean((2, 3), keepdim=True)).sigmoid()
        return self.head(small * gate)

    net = residual(
        shrunk,
        branch=lambda: nn.Conv2d(8, 8, 3, 2, 1),
        gate=lambda: nn.Conv2d(8, 8, 1),
    )
    with pytest.raises(UsageError, match=r"at mul: its sides do not fit: branch.*sigmoid"):
        act_at(net, "gate", lambda site: site.rewire(0, site.find("first")))


def test_broadcasting_does_not_hide_sides_that_have_come_apart():
    net = changed(residual(gated, gate=lambda: nn.Conv2d(8, 8, 1)), "gate", out_channels=1)
    assert net.gate.out_channels == 8
    net = changed(residual(), "branch", out_channels=1)
    assert repairs(net)["first"]["args"] == [8, 1, 1]


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (("Conv2d", 8, 8, 3, 1, 0, 1, 4), r"4 groups do not divide.*groups may be \[1, 2\]"),
        (("GroupNorm", 4, 8), r"num_groups may be \[1, 2, 5, 10\]"),
        (("BatchNorm1d", 8), "expected 2D or 3D input"),
    ],
)
def test_what_has_several_answers_or_none_stops_with_the_node_and_the_choices(layer, why):
    net = through(IMAGES, stem, nn.Identity, lambda: nn.Conv2d(8, 2, 1))

    def put(site):
        site.find("a").update(out_channels=10)
        site.replace(*layer)

    with pytest.raises(UsageError, match=rf"resize made cannot be repaired at b \(.*{why}"):
        act_at(net, "b", put)


def test_a_concatenation_goes_on_and_takes_images_of_one_size():
    def forward(self, x):
        one = self.first(x)
        return self.head(torch.cat([one, self.branch(one)], 1).mean((2, 3), keepdim=True))

    net = model(
        forward,
        IMAGES,
        first=stem,
        branch=lambda: nn.Conv2d(8, 4, 3, padding=1),
        head=lambda: nn.Conv2d(12, 2, 1),
    )
    assert changed(net, "branch", out_channels=6).head.in_channels == 14
    assert repairs(changed(net, "branch", stride=2)) == {
        "first": {"make": "torch.nn:Conv2d", "args": [8, 8, 1], "kwargs": {"stride": 2}}
    }
    parts = r"repaired at cat: what it joins.*first \(2, 8, 8, 8\), branch"
    with pytest.raises(UsageError, match=parts):
        changed(net, "branch", padding=0)
    with pytest.raises(UsageError, match=parts):
        changed(net, "branch", stride=2, repair=nas.Repair(additions="refuse"))


def test_sizes_that_forward_has_as_numbers_are_named():
    def forward(self, x):
        return self.head(self.first(x).view(-1, 8 * 8 * 8))

    net = model(forward, IMAGES, first=stem, head=lambda: nn.Linear(512, 2))
    with pytest.raises(UsageError, match=r"at view: it gives \(4, 512\), and gave \(2, 512\)"):
        changed(net, "first", out_channels=16)

    def follows(self, x):
        return self.head(self.first(x).flatten(1))

    net = model(follows, IMAGES, first=stem, head=lambda: nn.Linear(512, 2))
    assert changed(net, "first", out_channels=16).head.in_features == 1024


def test_a_model_that_gives_another_shape_is_refused():
    with pytest.raises(UsageError, match=r"at output: the model gives .*\(2, 3, 8, 8\).*\(2, 2, 8"):
        changed(residual(), "head", out_channels=3)


def test_an_opaque_part_is_run_for_its_shape_and_named_where_it_does_not_fit():
    class Branch(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(8, 1, 1))

        def forward(self, x):
            return x * self.scale if x.sum() > 0 else x + self.scale

    net = residual(branch=Branch)
    assert changed(net, "first", kernel_size=5, padding=2)(IMAGES).shape == (2, 2, 8, 8)
    with pytest.raises(UsageError, match=r"repaired at branch \(Branch\): RuntimeError"):
        changed(net, "first", out_channels=12)


def test_a_layer_called_with_two_sizes_stops():
    def forward(self, x):
        x = self.first(x)
        return self.head(self.branch(self.middle(self.branch(x))))

    net = residual(forward, middle=lambda: nn.Conv2d(8, 8, 1))
    with pytest.raises(UsageError, match=r"at branch \(Conv2d\): it is also called at branch"):
        changed(net, "middle", out_channels=12)


class NotBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise RuntimeError("no way back")


class OneWay(nn.Module):
    """Fails in the backward pass alone."""

    def forward(self, x):
        return NotBackward.apply(x)


def test_a_model_that_fails_only_in_backward_is_refused_by_name():
    with pytest.raises(
        UsageError, match=r"what resize made cannot be trained.*no way back"
    ) as caught:
        act_at(residual(), "branch", lambda site: site.insert(OneWay))
    assert caught.value.field == "resize"


def test_overlapping_weights_are_carried_over_and_noted():
    base = act_at(residual(), "branch", lambda site: None)
    net = changed(residual(), "branch", out_channels=12, repair=nas.Repair(carry=True))
    assert torch.equal(net.branch.weight[:8], base.branch.weight)
    assert torch.equal(net.head.weight[:, :8], base.head.weight)
    first, second, *_ = net.derivation.log
    assert first.values["carried"] == {"weight": [8, 8, 3, 3], "bias": [8]}
    plain = changed(residual(), "branch", out_channels=12)
    assert not torch.equal(plain.branch.weight[:8], base.branch.weight)
    assert plain.derivation.digest == net.derivation.digest
    again = nas.replay(residual()(), net.derivation)
    assert again.branch.weight.shape == (12, 8, 3, 3)
    assert str(second).startswith("repair: insert first(")


def test_weights_of_another_class_of_layer_are_not_carried():
    net = through(ROWS, lambda: nn.BatchNorm1d(6), lambda: nn.Linear(6, 2))
    net = act_at(net, "a", lambda site: site.replace("LayerNorm", 6), repair=nas.Repair(carry=True))
    assert "carried" not in net.derivation.log[0].values


def test_a_repaired_layer_stays_frozen_in_its_mode_and_in_its_type():
    class Frozen(nas.ModelSpace):
        def __init__(self):
            super().__init__()
            self.first, self.norm = nn.Linear(6, 8), nn.BatchNorm1d(8)
            self.head = nn.Linear(8, 2)
            self.norm.requires_grad_(False).eval()
            self.double()

        def example(self):
            return ROWS.double()

        def forward(self, x):
            return self.head(self.norm(self.first(x)))

    net = changed(Frozen, "first", out_features=12)
    assert net.norm.num_features == 12
    assert not net.norm.training
    assert not any(each.requires_grad for each in net.norm.parameters())
    assert net.first.weight.requires_grad
    assert {each.dtype for each in net.parameters()} == {torch.float64}


def test_a_trial_run_leaves_no_trace_in_the_model_and_in_random_numbers():
    def build():
        return changed(
            through(
                ROWS, projection, lambda: nn.BatchNorm1d(8), nn.Dropout, lambda: nn.Linear(8, 2)
            ),
            "a",
            out_features=12,
        )

    net, state = build(), torch.get_rng_state()
    assert net.b.num_batches_tracked == 0
    assert torch.equal(net.b.running_mean, torch.zeros(12))
    assert all(each.grad is None for each in net.parameters())
    assert net.training
    build()
    assert torch.equal(torch.get_rng_state(), state)
