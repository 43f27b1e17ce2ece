"""The caching allocator's arithmetic, and the margin of estimates."""

from __future__ import annotations

import random

import pytest
from penstock.extensions.memory.margin import FEW, LEAST, OTHERS, RECURRENT, margin
from penstock.extensions.memory.resident import LOADED, SLOPE, Grown, resident_bytes, slope
from penstock.extensions.memory.traces.allocator import MIB, peak_bytes, reserved_bytes


@pytest.mark.parametrize(
    ("changes", "reserved"),
    [
        ([], 0),
        ([(0, 1)], 2 * MIB),  # from the small pool
        ([(0, MIB)], 2 * MIB),
        ([(0, MIB), (1, MIB)], 2 * MIB),  # two halves of one segment
        ([(0, MIB), (1, MIB), (2, 1)], 4 * MIB),
        ([(0, MIB + 1)], 20 * MIB),  # from the large pool
        ([(0, 9 * MIB), (1, 9 * MIB)], 20 * MIB),
        ([(0, 9 * MIB), (1, 9 * MIB), (2, 3 * MIB)], 40 * MIB),
        ([(0, 10 * MIB)], 10 * MIB),  # a segment of its own
        ([(0, 10 * MIB + 1)], 12 * MIB),
        # What is freed is taken again, and its neighbours join.
        ([(0, 30 * MIB), (0, -30 * MIB), (1, 30 * MIB)], 30 * MIB),
        ([(0, 8 * MIB), (1, 8 * MIB), (0, -8 * MIB), (1, -8 * MIB), (2, 20 * MIB)], 20 * MIB),
        # A rest of at most 1 MiB of a large block stays with it.
        ([(0, 30 * MIB), (0, -30 * MIB), (1, 29 * MIB), (2, MIB + 1)], 50 * MIB),
        ([(0, 30 * MIB), (0, -30 * MIB), (1, 28 * MIB), (2, MIB + 1)], 30 * MIB),
        # The smallest block that fits: 12, not 40.
        (
            [
                *((0, 40 * MIB), (1, 12 * MIB), (0, -40 * MIB), (1, -12 * MIB)),
                *((2, 11 * MIB), (3, 40 * MIB)),
            ],
            52 * MIB,
        ),
        # Holes that are too small: the peak is 24 MiB, 44 are taken.
        (
            [(i, 4 * MIB) for i in range(5)] + [(1, -4 * MIB), (3, -4 * MIB), (9, 12 * MIB)],
            32 * MIB,
        ),
    ],
)
def test_what_is_taken_from_the_device(changes, reserved):
    assert reserved_bytes(changes) == reserved


@pytest.mark.parametrize("seed", range(20))
def test_no_block_overlaps_another_and_nothing_is_lost(seed):
    """Random orders: never less than the peak, and a second pass takes nothing more."""
    draw = random.Random(seed)
    live: dict[int, int] = {}
    changes = []
    for name in range(400):
        if live and draw.random() < 0.45:
            gone = draw.choice(list(live))
            changes.append((gone, -live.pop(gone)))
        else:
            size = int(2 ** draw.uniform(4, 26))
            live[name] = size
            changes.append((name, size))
    ending = changes + [(name, -size) for name, size in live.items()]
    reserved = reserved_bytes(ending)
    assert peak_bytes(ending) <= reserved <= 4 * peak_bytes(ending)
    assert reserved % (2 * MIB) == 0
    shifted = [(name + 1000, size) for name, size in ending]
    assert reserved_bytes(ending + shifted) <= reserved * 1.2


def test_the_peak_is_the_most_at_one_time():
    assert peak_bytes([(0, 5), (1, 7), (0, -5), (2, 4)]) == 12
    assert peak_bytes([]) == 0


def test_with_few_errors_what_is_assumed_counts_and_with_many_their_order():
    assert margin([]) == OTHERS
    assert margin([], recurrent=True) == RECURRENT
    assert margin([0.01] * (FEW - 1)) == OTHERS
    assert margin([0.7]) == 0.7
    assert margin([0.07] * FEW) == pytest.approx(0.07)
    assert margin([-0.2] * 10) == margin([0.01] * FEW) == LEAST
    errors = [i / 100 for i in range(39)]
    assert margin(errors) == 0.37  # the ceil(40 x 0.95) = 38th of 39


def test_the_next_one_is_within_the_margin_as_often_as_it_says():
    """It holds for any distribution of errors: 2,000 draws of 60 errors and one more."""
    draw = random.Random(5)
    inside = 0
    for _ in range(2000):
        *errors, last = (draw.lognormvariate(-3, 1) for _ in range(61))
        inside += last <= margin(errors)
    assert inside / 2000 >= 0.94


def test_a_process_grows_by_more_than_its_tensors_as_others_of_its_family_did():
    assert resident_bytes(100 * MIB, 50 * MIB, slope([])) == 100 * MIB + LOADED + round(
        SLOPE * 50 * MIB
    )
    seen = [
        Grown(10 * MIB, 100 * MIB, 130 * MIB + LOADED),
        Grown(40 * MIB, 90 * MIB, 170 * MIB + LOADED),
        Grown(0, 90 * MIB, 170 * MIB),
    ]
    assert resident_bytes(100 * MIB, 50 * MIB, slope(seen)) == 100 * MIB + LOADED + round(
        2.2 * 50 * MIB
    )
    # Never less than its tensors.
    shrunk = [Grown(40 * MIB, 100 * MIB, 100 * MIB)]
    assert resident_bytes(0, 50 * MIB, slope(shrunk)) == LOADED + 50 * MIB
