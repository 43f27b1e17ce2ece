"""A configuration as numbers."""

from __future__ import annotations

from dataclasses import replace

from penstock.app.spec.space import Categorical, Float, Int, parse_space
from penstock.scheduler.state.encoding import features_of
from worlds.drive_world import spec

SPACE = parse_space(
    {
        "lr": Float(1e-4, 1.0, log=True),
        "layers": Int(1, 5),
        "kind": Categorical(["a", "b", "c"]),
    }
)
STUDY = replace(spec(), space=SPACE)


def test_numbers_are_where_they_are_in_their_range_and_choices_one_hot():
    assert features_of(STUDY, (("lr", 1e-2), ("layers", 4), ("kind", "c"))) == (0.0, 0.5, 0.0, 1.0)
    assert features_of(STUDY, (("lr", 1e-4), ("layers", 1), ("kind", "a"))) == (-1, -1, 0, 0)


def test_what_is_not_there_and_what_is_outside_does_no_harm():
    assert features_of(STUDY, ()) == (0.0, 0.0, 0.0, 0.0)
    assert features_of(STUDY, (("lr", 100.0), ("layers", 99), ("kind", "?"))) == (1, 1, 0, 0)


def test_without_a_space_there_are_none():
    assert features_of(replace(STUDY, space=None), (("lr", 1.0),)) == ()
