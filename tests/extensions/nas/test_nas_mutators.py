"""Mutators: the six primitives, their log, digests of what they make, replay, and refusals."""

from __future__ import annotations

import copy
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from penstock import UsageError, nas
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.act = nn.ReLU()

    def forward(self, x):
        return x + self.act(self.linear(x))


class Net(nas.ModelSpace):
    def __init__(self, width=8, blocks=2):
        super().__init__()
        self.stem = nn.Linear(3, width)
        self.body = nn.Sequential(*(Block(width) for _ in range(blocks)))
        self.head = nn.Linear(width, 2)

    def example(self):
        return torch.randn(4, 3)

    def forward(self, x):
        return self.head(self.body(self.stem(x)).tanh())


BASE = [
    f"{layer}.{name}"
    for layer in ("stem", "body.0.linear", "body.1.linear", "head")
    for name in ("weight", "bias")
]
X = torch.linspace(-1, 1, 12).reshape(4, 3)


def built(*acts, params=None, model=Net, **options):
    """The model with these mutators: pairs of a match and what to do, or mutators."""
    mutators = [
        each if not isinstance(each, tuple) else nas.mutator(match=each[0])(each[1])
        for each in acts
    ]
    torch.manual_seed(0)
    return nas.build(model, params or {}, mutators=mutators, **options)


def named(name):
    return lambda site: site.name == name


@nas.mutator(match=nn.ReLU)
def activation(site):
    site.replace(site.choose("act", ["ReLU", "GELU", "SiLU"]))


def log(net):
    return [(each.operation, each.at) for each in net.derivation.log]


def test_a_mutator_chooses_and_its_choices_are_parameters_of_the_space():
    space = nas.space(Net, mutators=[activation])
    assert {label: each.choices for label, each in space.items()} == {
        "act": ("ReLU", "GELU", "SiLU")
    }
    net = nas.build(Net, {"act": "SiLU", "lr": 0.1}, mutators=[activation])
    assert [type(each.act) for each in net.body] == [nn.SiLU, nn.SiLU]
    assert net.architecture == {"act": "SiLU"}
    assert log(net) == [("replace", "body_0_act"), ("replace", "body_1_act")]
    assert isinstance(net, Net)


def test_what_is_not_touched_keeps_its_names_and_its_weights():
    base = built(model=Net)
    net = built((nn.ReLU, lambda site: site.replace("GELU")))
    assert list(net.state_dict()) == list(base.state_dict()) == BASE
    assert all(torch.equal(net.state_dict()[name], base.state_dict()[name]) for name in BASE)
    plain = Net()
    plain.load_state_dict(net.state_dict())  # a checkpoint of the one is one of the other
    expected = copy.deepcopy(plain)
    for block in expected.body:
        block.act = nn.GELU()
    assert torch.equal(net(X), expected(X))


def test_a_layer_is_inserted_behind_a_site_and_a_removed_one_is_gone():
    def act(site):
        new = site.insert("LayerNorm", 8)
        assert new.name == "mutated.body_0_linear_layernorm"

    net = built((named("body.0.linear"), act), (named("body.1.act"), lambda site: site.remove()))
    one, two = net.body
    norm = net.mutated.body_0_linear_layernorm
    assert not hasattr(two, "act")
    x = net.stem(X)
    x = x + one.act(norm(one.linear(x)))
    assert torch.equal(net(X), net.head((x + two.linear(x)).tanh()))


def test_a_connection_adds_or_concatenates():
    net = built((named("body.1.linear"), lambda site: site.connect(site.find("stem"))))
    x = net.stem(X)
    first = x + net.body[0].act(net.body[0].linear(x))
    second = first + net.body[1].act(net.body[1].linear(first) + x)
    assert torch.equal(net(X), net.head(second.tanh()))
    net = built((named("tanh"), lambda site: site.connect(site.find("stem"), "cat")))
    assert net.head.in_features == 16


def test_a_site_reads_another_one_and_what_nobody_reads_any_more_is_gone():
    def act(site):
        [only] = site.inputs
        assert only.name == "add_1"
        site.rewire(0, site.find("body.0.linear"))

    net = built((named("tanh"), act))
    assert torch.equal(net(X), net.head(net.body[0].linear(net.stem(X)).tanh()))
    assert list(net.state_dict()) == BASE[:4] + BASE[6:]


def test_a_connection_from_a_later_place_puts_the_graph_in_order():
    class Two(Net):
        def forward(self, x):
            one = self.stem(x)
            one = self.body[0].act(one)
            other = self.body[1].linear(self.stem(x * 2))
            return self.head(one + other)

    def act(site):
        site.connect(site.find("body.1.linear"))

    net = built((named("body.0.act"), act), model=Two)
    other = net.body[1].linear(net.stem(X * 2))
    assert torch.equal(net(X), net.head(net.body[0].act(net.stem(X)) + other + other))


def test_an_operation_can_be_replaced_by_a_layer():
    net = built((lambda site: site.function == "tanh", lambda site: site.replace("Hardtanh")))
    assert type(net.mutated.tanh) is nn.Hardtanh
    assert torch.equal(net(X), net.head(nn.functional.hardtanh(net.body(net.stem(X)))))


def test_arguments_of_a_layer_are_updated():
    net = built((nn.ReLU, lambda site: site.update(inplace=True)))
    assert net.body[1].act.inplace


def test_mutators_are_applied_in_their_order_and_not_to_what_they_add():
    def double(site):
        site.insert("ReLU")

    net = built((nn.ReLU, double), (nn.ReLU, lambda site: site.replace("SiLU")))
    assert [each[0] for each in log(net)] == ["insert"] * 2 + ["replace"] * 4
    assert [each.by for each in net.derivation.log][:3] == ["double", "double", "<lambda>"]


def test_a_shared_layer_is_one_site_with_all_its_calls():
    class Shared(Net):
        def forward(self, x):
            return self.head(self.body(self.body(self.stem(x))))

    seen = []

    def act(site):
        seen.append(site.name)
        site.insert("Tanh")

    net = built((named("body.0.linear"), act), model=Shared)
    assert seen == ["body.0.linear"]
    assert len([*net.mutated.children()]) == 1
    with pytest.raises(UsageError, match=r"'rewired' at body\.0\.linear.*called in several places"):

        @nas.mutator(match=named("body.0.linear"))
        def rewired(site):
            site.rewire(0, site.find("stem"))

        built(rewired, model=Shared)


def insert_remove(site):
    site.insert("Sigmoid").remove()


def around(site):
    site.insert("Identity").connect(site.find("stem"))


def to_and_fro(site):
    site.replace("Tanh")
    site.replace("GELU")


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ([(nn.ReLU, lambda site: site.replace("GELU"))], [(nn.ReLU, to_and_fro)], True),
        ([(nn.ReLU, insert_remove)], [], True),
        ([(nn.ReLU, lambda site: site.replace("Identity"))],
         [(nn.ReLU, lambda site: site.remove())], True),
        ([(named("body.0.linear"), lambda site: site.connect(site.find("stem")))],
         [(named("stem"), lambda site: None),
          (named("body.0.linear"), around)],
         True),
        ([(named("body.0.act"), lambda site: site.replace("GELU"))],
         [(named("body.1.act"), lambda site: site.replace("GELU"))], False),
        ([(nn.ReLU, lambda site: site.replace("LeakyReLU", 0.1))],
         [(nn.ReLU, lambda site: site.replace("LeakyReLU", 0.2))], False),
        ([(nn.ReLU, lambda site: site.replace("GELU"))], [], False),
    ],
)  # fmt: skip
def test_equal_architectures_have_one_digest_however_they_came_about(one, other, equal):
    digests = [built(*each, (nn.Linear, lambda site: None)).derivation for each in (one, other)]
    assert digests[0].base == digests[1].base
    assert (digests[0].digest == digests[1].digest) is equal


def test_sides_of_an_addition_may_change_places_and_shared_weights_are_not_like_ones():
    class Sides(Net):
        def forward(self, x):
            return self.sum(self.body[0].linear(self.stem(x)), self.body[1].linear(self.stem(x)))

    def digest(add):
        nothing = nas.mutator(match=nn.Linear)(lambda site: None)
        return built(nothing, model=type("Made", (Sides,), {"sum": add})).derivation.digest

    one = digest(lambda self, x, y: self.head(x + y.relu()))
    assert one == digest(lambda self, x, y: self.head(torch.add(y.relu(), x)))
    assert one == digest(lambda self, x, y: self.head(y + x.relu()))
    assert one != digest(lambda self, x, y: self.head(x - y.relu()))
    twice = digest(lambda self, x, y: self.head(x + y))
    assert twice != digest(lambda self, x, y: self.head(x + x))


def test_names_do_not_count_and_a_class_of_ones_own_counts_with_its_attributes():
    class Scale(nn.Module):
        def __init__(self, factor):
            super().__init__()
            self.factor = factor

        def forward(self, x):
            return x * self.factor if x.sum() > 0 else x

    def digest(name, factor):
        class Opaque(nas.ModelSpace):
            def __init__(self):
                super().__init__()
                self.add_module(name, Scale(factor))
                self.head = nn.Linear(3, 1)

            def example(self):
                return torch.ones(2, 3)

            def forward(self, x):
                return self.head(getattr(self, name)(x))

        nothing = nas.mutator(match=nn.Linear)(lambda site: None)
        return nas.build(Opaque, {}, mutators=[nothing]).derivation.digest

    assert digest("a", 2.0) == digest("b", 2.0)
    assert digest("a", 2.0) != digest("a", 3.0)


def everything(site):
    site.insert("BatchNorm1d", 1)
    site.find("body.0.act").replace(nn.LeakyReLU, negative_slope=0.3)
    site.connect(site.find("stem"))
    site.find("head").update(bias=False)
    site.update(out_features=12)


def test_a_derivation_is_replayed_from_its_json_without_mutators_and_repair():
    made = built((named("body.1.linear"), everything), repair=nas.Repair(carry=True))
    text = json.dumps(made.derivation.as_json())
    derivation = nas.Derivation.from_json(json.loads(text))
    assert len(derivation.log) > 5  # with repairs
    torch.manual_seed(0)
    again = nas.replay(Net(), derivation)
    assert again.derivation.digest == made.derivation.digest
    assert list(again.state_dict()) == list(made.state_dict())
    again.load_state_dict(made.state_dict())
    assert torch.equal(again.eval()(X), made.eval()(X))


def test_a_derivation_is_replayed_on_its_base_alone_and_gives_what_it_gave():
    derivation = built((nn.ReLU, lambda site: site.replace("GELU"))).derivation
    with pytest.raises(UsageError, match="the model to replay on"):
        nas.replay(Net(width=4), derivation)
    other = nas.Derivation(derivation.base, derivation.log[:1], derivation.digest)
    with pytest.raises(UsageError, match="the architecture = "):
        nas.replay(Net(), other)
    same = nas.Derivation(derivation.base, (), derivation.base)
    assert nas.replay(Net(), same).derivation == same
    with pytest.raises(UsageError, match="from_json"):
        nas.replay(Net(), derivation.as_json())
    for wrong in ("{}", {"base": ""}, {"base": "", "log": [{}], "digest": ""}, None):
        with pytest.raises(UsageError, match="what as_json gave"):
            nas.Derivation.from_json(wrong)


def test_equal_mutated_models_have_one_class_and_can_be_copied():
    one, other = (built((nn.ReLU, lambda site: site.replace("GELU"))) for _ in range(2))
    assert type(one) is type(other)
    assert type(one) is not type(built((nn.ReLU, lambda site: site.replace("SiLU"))))
    twin = copy.deepcopy(one)
    with torch.no_grad():
        twin.stem.weight.zero_()
    assert torch.equal(one(X), other(X))
    assert not torch.equal(twin(X), one(X))


def test_a_choice_of_a_mutator_is_there_where_its_site_is():
    class Choosing(nas.ModelSpace):
        def __init__(self):
            super().__init__()
            candidates = {
                "relu": nn.ReLU,
                "deep": lambda: nn.Sequential(nn.Linear(3, 3), nn.Tanh()),
            }
            self.op = nas.LayerChoice(candidates, "op")
            self.head = nn.Linear(3, 1)

        def example(self):
            return torch.ones(2, 3)

        def forward(self, x):
            return self.head(self.op(x))

    @nas.mutator(match=nn.Tanh, needed=False)
    def slope(site):
        if site.choose("leaky", [False, True]):
            site.replace("LeakyReLU", site.choose(f"slope.{site.name}", [0.1, 0.2]))

    space = nas.space(Choosing, mutators=[slope])
    assert {label: each.when for label, each in space.items()} == {
        "op": None, "leaky": {"op": ["deep"]}, "slope.op.deep.1": {"leaky": [True]},
    }  # fmt: skip
    params = {"op": "deep", "leaky": True, "slope.op.deep.1": 0.2}
    net = nas.build(Choosing, params, mutators=[slope])
    assert net.op.deep[1].negative_slope == 0.2
    assert log(nas.build(Choosing, {"op": "relu"}, mutators=[slope])) == []


def test_a_mutator_that_matches_nothing_is_refused_by_name():
    @nas.mutator(match=nn.Conv2d)
    def kernels(site):
        raise AssertionError

    for make in (nas.space, nas.build):
        arguments = (Net,) if make is nas.space else (Net, {})
        with pytest.raises(UsageError, match="'kernels' matches nothing") as caught:
            make(*arguments, mutators=[kernels])
        assert caught.value.field == "kernels"


def test_a_mutator_that_matches_nothing_is_told_what_is_opaque():
    class Opaque(Net):
        def forward(self, x):
            return self.head(self.stem(x) if x.sum() > 0 else self.stem(-x))

    with pytest.raises(UsageError, match=r"'activation' matches nothing.*the model is opaque: "):
        nas.build(Opaque, {"act": "GELU"}, mutators=[activation])
    some = nas.mutator(match=nn.ReLU, needed=False)(activation.act)
    net = nas.build(Opaque, {}, mutators=[some])
    assert net(X).shape == (4, 2)
    assert net.derivation.base == net.derivation.digest


def endless(site):
    while True:
        site = site.insert("ReLU")


def circle(site):
    site.rewire(0, site.find("head"))


def itself(site):
    site.connect(site.find("add"))


@pytest.mark.filterwarnings("ignore:Initializing zero-element")
@pytest.mark.parametrize(
    ("act", "why"),
    [
        (endless, "applied 1000 primitives, and does not end"),
        (circle, "body_0_linear cannot read head.*a loop"),
        (itself, "body_0_linear cannot read add.*a loop"),
        (lambda site: site.connect(site.find("stem"), "times"), "how to connect = 'times'"),
        (lambda site: site.connect("stem"), r"the other site = 'stem' .*site\.find"),
        (lambda site: site.rewire(0, None), "the other site = None"),
        (lambda site: site.rewire(1, site.find("stem")), "0 to 0"),
        (lambda site: site.find("add").remove(), "add reads stem, body_0_act"),
        (lambda site: site.find("add").replace("ReLU"), "add reads stem, body_0_act"),
        (lambda site: site.find("add").update(bias=False), "no layer"),
        (lambda site: site.find("stern"), "one of stem, body.0.linear"),
        (lambda site: site.update(width=3), "one of in_features, out_features, bias"),
        (lambda site: site.update(out_features=-1), "refuses"),
        (lambda site: site.update(out_features=0), r"the shape of weight of a Linear = \[0, "),
        (lambda site: site.replace("ReLu"), "the name of a layer in torch.nn"),
        (lambda site: site.replace(lambda: Block(8)), "a class or function of a module"),
        (lambda site: site.replace(None), "the layer = None is refused"),
        (lambda site: site.replace(Block, nn.ReLU), "numbers, strings"),
        (lambda site: site.replace("Linear", 3), "cannot be made"),
        (lambda site: site.replace(json.dumps, 3), "gives a module"),
        (lambda site: (site.insert("Tanh"), site.remove(), site.update(bias=False)), "any more"),
    ],
)
def test_a_primitive_that_is_impossible_is_refused_with_the_mutators_name(act, why):
    mutator = nas.Mutator("broken", named("body.0.linear"), act, needed=True)
    with pytest.raises(UsageError, match=rf"(?s)'broken' at body\.0\.linear.*{why}") as caught:
        nas.build(Net, {}, mutators=[mutator])
    assert caught.value.field == "broken"


def test_an_error_of_a_mutators_own_says_where_it_was():
    with pytest.raises(ZeroDivisionError) as caught:
        built((named("head"), lambda site: 1 / 0))
    assert caught.value.__notes__ == ["in the mutator '<lambda>' at head"]


@pytest.mark.parametrize("match", ["ReLU", 3, (), (nn.ReLU, "x"), nn.ReLU()])
def test_a_match_that_is_none_is_refused(match):
    with pytest.raises(UsageError, match="the match of a mutator"):
        nas.mutator(match=match)


def test_mutators_need_an_example():
    class Bare(nas.ModelSpace):
        def __init__(self):
            super().__init__()
            self.act = nn.ReLU()

    with pytest.raises(UsageError, match=r"Bare has no example\(\)"):
        nas.build(Bare, {"act": "GELU"}, mutators=[activation])


def test_threads_mutate_models_while_others_run():
    plain, stop = Net(), threading.Event()
    expected = plain(X)

    def running():
        runs = []
        while not stop.is_set():
            runs.append(torch.equal(plain(X), expected))
        return runs

    def building(act):
        return [nas.build(Net, {"act": act}, mutators=[activation]) for _ in range(8)]

    with ThreadPoolExecutor(3) as pool:
        runs = pool.submit(running)
        try:
            made = [*pool.map(building, ["GELU", "SiLU"])]
        finally:
            stop.set()
    assert len(runs.result()) > 10
    assert all(runs.result())
    assert [{type(each.body[0].act) for each in nets} for nets in made] == [{nn.GELU}, {nn.SiLU}]


def test_weights_that_layers_share_and_hooks_are_not_lost():
    class Tied(Net):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(8, 8)
            self.head.weight = self.body[0].linear.weight

    with pytest.raises(UsageError, match=r"head shares its weights with body\.0\.linear\.weight"):
        built((named("head"), lambda site: site.update(bias=False)), model=Tied)

    class Hooked(Net):
        def __init__(self):
            super().__init__()
            self.stem.register_forward_hook(lambda module, inputs, output: output * 2)

    with pytest.raises(UsageError, match="a layer without hooks"):
        built((named("stem"), lambda site: site.update(out_features=4)), model=Hooked)
