import pickle
from collections import OrderedDict
from importlib import import_module

import pytest
from penstock.base.moved_modules import MOVED, loads, module_now, module_then


def by_name(module, name):
    """A pickle of what is called so there, whether or not it is."""
    return (
        b"\x80\x04"
        + b"".join(b"\x8c%c%s" % (len(e), e.encode()) for e in (module, name))
        + b"\x93."
    )


def of_module(name):
    """A pickle of a module as cloudpickle writes it."""
    called = by_name("cloudpickle.cloudpickle", "subimport")[:-1]
    return called + b"\x8c%c%s" % (len(name), name.encode()) + b"\x85R."


@pytest.mark.parametrize("then", MOVED)
def test_a_module_is_found_by_the_name_that_it_had_and_gets_that_name_back(then):
    now = module_now(f"{then}.part")
    assert now == f"{MOVED[then]}.part"
    assert module_then(now) == f"{then}.part"
    assert module_now(f"{then}s") != f"{MOVED[then]}s"


@pytest.mark.extension("adapters")
def test_code_by_value_of_before_finds_the_adapters():
    passes = import_module("penstock.extensions.adapters.passes")
    assert loads(by_name("penstock.tasks.adapters.passes", "Passes")) is passes.Passes


@pytest.mark.extension("nas")
def test_what_was_pickled_under_a_name_of_then_is_found():
    layers = import_module("penstock.extensions.nas.models.layers")
    assert loads(by_name("penstock.tasks.nas.layers", "Repeat")) is layers.Repeat
    assert loads(of_module("penstock.app.nas.names")) is import_module("penstock").nas
    assert loads(of_module("penstock.profiling.base.errors")).UsageError


def test_other_pickles_are_loaded_as_ever():
    value = OrderedDict(a=[1, 2.5, None], b=pickle.PickleError("x").args)
    assert loads(pickle.dumps(value)) == value
    assert type(loads(pickle.dumps(value))) is OrderedDict
