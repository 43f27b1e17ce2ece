"""The memory expected of a trial's process, and the margin for doubt."""

from __future__ import annotations

import pytest
from penstock.base.footprint import Footprint
from penstock.extensions.memory.margin import LEAST, OTHERS, RECURRENT
from penstock.extensions.memory.processes import Processes
from penstock.extensions.memory.resident import LOADED, MOST, SLOPE

MIB = 2**20
BASE = 100 * MIB


def tensors(size):
    return Footprint(size * MIB // 4, size * MIB - size * MIB // 4, size * MIB)


def known(**fields):
    found = Processes()
    found.observe_base(BASE, **{"recurrent": False} | fields)
    return found


def test_nothing_is_expected_without_a_base_and_of_what_could_not_be_traced():
    assert not Processes().expected(tensors(50), estimated=True)
    assert not known().expected(Footprint(0, 0, 0), estimated=True)


def test_an_estimate_gets_a_margin_and_a_measurement_none():
    size = known().expected(tensors(50), estimated=False)
    assert size == BASE + LOADED + round(SLOPE * 50 * MIB)
    assert known().expected(tensors(50), estimated=True) - size == pytest.approx(
        OTHERS * SLOPE * 50 * MIB
    )
    assert known(recurrent=True).margin == RECURRENT


def test_processes_show_the_slope_and_how_far_it_is_to_be_doubted():
    found = known()
    for n in range(10):
        found.observe_tensors(f"t{n}", tensors(50), tensors(50))
        found.observe_process(f"t{n}", BASE + LOADED + 150 * MIB)
    assert found.slope == pytest.approx(3.0)
    assert (found.doubt, found.margin) == (LEAST, LEAST)
    found.observe_process("t3", BASE + LOADED + 300 * MIB)
    found.observe_process("t3", BASE)  # a peak does not fall
    assert found.slope == pytest.approx(3.3)
    expected = BASE + LOADED + 3.3 * 50 * MIB
    assert found.doubt == pytest.approx((BASE + LOADED + 300 * MIB) / expected - 1, abs=1e-6)


def test_a_process_of_unknown_tensors_shows_nothing():
    found = known()
    found.observe_process("t", 10 * BASE)
    assert (found.slope, found.grown) == (SLOPE, {})


def test_the_newest_are_kept():
    found = known()
    for n in range(MOST + 5):
        found.observe_tensors(f"t{n}", tensors(50), tensors(40))
    assert len(found.grown) == len(found.errors) == MOST
    assert "t4" not in found.errors and f"t{MOST + 4}" in found.errors


def test_the_least_and_the_most_of_what_was_estimated():
    found = known()
    for size in (50, 20, 80):
        found.observe_estimate(tensors(size))
    found.observe_estimate(Footprint(0, 0, 0))
    assert found.least == found.expected(tensors(20), estimated=True)
    assert found.most == found.expected(tensors(80), estimated=True)
