"""Published spaces of models, counted by their own structure."""

import pytest
from penstock import nas

from benchmarks.nas import PUBLISHED, at_random, works


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_space_is_as_large_as_its_paper_says_and_can_be_built(name):
    model, published, _ = PUBLISHED[name]
    space = nas.space(model)
    assert nas.size(space) == published
    assert all(works(model, params) for params in at_random(space, 3))
