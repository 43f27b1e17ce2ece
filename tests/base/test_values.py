"""Values of which many are made are as frozen dataclasses are, but that they may be set."""

import copy
import pickle
from dataclasses import dataclass, fields, replace

import pytest
from penstock.base.values import value_class


@value_class(frozen=True, slots=True)
class Quick:
    at: float
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Frozen:
    at: float
    names: tuple[str, ...] = ()


def test_they_compare_and_hash_as_frozen_ones():
    assert Quick(1.0, ("a",)) == Quick(1.0, ("a",)) != Quick(1.0)
    assert hash(Quick(1.0, ("a",))) == hash(Frozen(1.0, ("a",)))
    assert [each.name for each in fields(Quick)] == [each.name for each in fields(Frozen)]


@pytest.mark.parametrize("made", [replace, copy.copy, lambda v: pickle.loads(pickle.dumps(v))])
def test_they_are_copied_whole(made):
    assert made(Quick(1.0, ("a",))) == Quick(1.0, ("a",))


def test_who_asks_for_no_frozen_one_is_told():
    with pytest.raises(TypeError):
        value_class(slots=True)
