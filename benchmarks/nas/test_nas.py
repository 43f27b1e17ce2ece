"""Published spaces of models, counted by their own structure; random mutations, judged."""

import pytest
from penstock import UsageError, nas
from torch import nn

from benchmarks.nas.figures import PUBLISHED, at_random, works
from benchmarks.nas.supernet import steps, weights
from testkit.nas_mutations import figures, judged
from testkit.nas_nets import NETS, Net
from testkit.nas_spaces import NasBench201

pytestmark = pytest.mark.extension("nas", "sharing", "simulation")


def test_weights_out_of_a_super_net_are_those_of_the_files(tmp_path):
    paths = at_random(nas.space(NasBench201), 2)
    found = weights(paths, tmp_path) | steps(2, tmp_path)
    assert all(each > 0 for each in found["supernet_vs_checkpoint.ms"])
    assert found["supernet_vs_checkpoint.steps"] > 0


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_space_is_as_large_as_its_paper_says_and_can_be_built(name):
    model, published, _ = PUBLISHED[name]
    space = nas.space(model)
    assert nas.size(space) == published
    assert all(works(model, params) for params in at_random(space, 3))


def test_random_mutations_are_built_or_refused_with_names_and_always_alike():
    one, other = figures(8, "a seed"), figures(8, "a seed")
    assert one["reasons"] == other["reasons"]
    assert one["built"] == other["built"] > 0.5
    assert one["wrong_shapes"] == 0
    assert one["other"] == {}


class Careless(Net):
    """Gives a number too few for other images than its example's, which no example shows."""

    def layers(self, width):
        return nn.Conv2d(width, 4, 1), 4

    def forward(self, x):
        scores = self.head(self.body(self.stem(x)).mean((2, 3)))
        return scores if len(x) == len(self.example()) else scores[:, 1:]


def test_a_model_of_another_shape_is_told_by_other_images_than_its_example():
    assert judged(Careless, [])[0] == "wrong shape"


def raises_another_error(site):
    raise KeyError(site.name)


def nameless(site):
    raise UsageError("no")


@pytest.mark.parametrize(
    ("act", "fate"),
    [
        (raises_another_error, "raised KeyError"),
        (nameless, "refused"),
        (lambda site: site.insert("Dropout", 0.1), "built"),
    ],
)
def test_what_became_of_a_mutation_is_told_apart(act, fate):
    mutator = nas.Mutator("resize", lambda site: site.name == "stem.0", act, needed=True)
    assert judged(NETS["resnet"], [mutator])[0] == fate


def test_a_refusal_without_the_mutators_name_is_none():
    class NoExample(Careless):
        def example(self):
            return None

    mutator = nas.Mutator("resize", lambda site: True, nameless, needed=True)
    assert judged(NoExample, [mutator])[0] == "refused without names"
