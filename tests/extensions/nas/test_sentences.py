"""Stories say what a model came to be, and what was counted of it."""

from __future__ import annotations

import pytest
from penstock.app.show.stories.sentences import sentence
from penstock.extensions.nas.events import Derived, Described
from penstock.extensions.nas.models.architecture import Architecture

FENCED = {"at": 1.0, "trial": "s-0001", "fence": 5}
COUNTED = Architecture(parameters=12, flops=30, activations=4, operators=2)


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (
            Derived(
                **FENCED,
                base="b" * 64,
                digest="d" * 64,
                log='[{"operation": "update", "at": "second", "by": "widen",'
                ' "values": {"out_channels": 24}}]',
            ),
            "its model is architecture dddddddddddd, made of bbbbbbbbbbbb: widen: update second(",
        ),
        (
            Derived(**FENCED, base="b" * 64, digest="b" * 64, log="[]"),
            f"its model is architecture {'b' * 12}, which no mutator changed",
        ),
        (
            Described(**FENCED, of="s-0001", architecture=COUNTED, choices=()),
            "its model has 12 parameters, 30 operations and 4 activations an example, 2 operators",
        ),
        (
            Described(**FENCED, of="s-0007", architecture=COUNTED, choices=()),
            "the model of trial 7 has 12 parameters",
        ),
    ],
)
def test_what_a_model_came_to_be_has_its_sentence(event, words):
    assert sentence(event, "v", {}, {5: 2}).startswith(words)
