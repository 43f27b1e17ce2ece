"""Differences of counters: scaled where they are multiplexed, dropped where they are corrupt.

The hardware's readings are recorded ones: no machine of ours has a PMU.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.profiling.counters.rates import RATES, RATIOS, max_rates, reading
from penstock.profiling.counters.windows import Count, CounterWindow, Sample, find_count_fault

#: Seconds, event, value, nanoseconds enabled and running; a line a read, as perf gives them.
STEADY = """
0 instructions 1000000000 1000000000 1000000000
0 cycles       2000000000 1000000000 1000000000
1 instructions 4000000000 1800000000 1800000000
1 cycles       4000000000 1800000000 1800000000
2 instructions 7000000000 2600000000 2600000000
2 cycles       6000000000 2600000000 2600000000
"""
#: Half of the time on the CPU: what was counted stands for twice as much.
MULTIPLEXED = """
0 cache_references 100 0 0
0 cache_misses     10  0 0
1 cache_references 400 1000000000 500000000
1 cache_misses     40  1000000000 500000000
"""
#: Running for 0.3 s of the first second, for 0.1 s of the next: less than a quarter of the two.
SELDOM = """
0 branches 0    0          0
1 branches 300  1000000000 300000000
2 branches 400  2000000000 400000000
"""
NEVER = """
0 branches 7 1000000000 500000000
1 branches 7 2000000000 500000000
"""
#: The largest centroid of PipeTune's published model has one feature of 4.93e16.
CORRUPT = """
0 cycles 1000000000        0          0
1 cycles 3000000000        1000000000 1000000000
2 cycles 49300000000000000 2000000000 2000000000
3 cycles 49300003000000000 3000000000 3000000000
"""


def samples(recorded):
    rows = [line.split() for line in recorded.strip().splitlines()]
    times = sorted({float(row[0]) for row in rows})
    return [
        Sample(at, {row[1]: Count(*map(int, row[2:])) for row in rows if float(row[0]) == at})
        for at in times
    ]


def window(recorded, cores=2):
    first, *others = samples(recorded) if isinstance(recorded, str) else recorded
    window = CounterWindow(first, max_rates(cores))
    for sample in others:
        window.add(sample)
    return window


def test_counts_become_rates_and_ratios_of_what_grew_since_the_mark():
    found = reading(window(STEADY))
    assert found.seconds == 2
    assert found.values["instructions_s"] == 3e9
    assert found.values["cycles_s"] == 2e9
    assert found.values["instructions_per_cycle"] == 1.5
    assert found.dropped == {}
    assert "cache_miss_ratio" not in found.values, "it was not measured, so it is not zero"


def test_a_multiplexed_count_is_scaled_by_the_differences_of_its_times():
    found = reading(window(MULTIPLEXED)).values
    assert found["cache_references_s"] == 600
    assert found["cache_misses_s"] == 60
    assert found["cache_miss_ratio"] == 0.1


def test_a_count_that_seldom_ran_is_not_trusted():
    found = reading(window(SELDOM))
    assert found.values == {}
    assert found.dropped == {"branches": "distrusted"}
    first, second, _ = samples(SELDOM)
    assert reading(window([first, second])).values == {"branches_s": 1000}


def test_a_count_that_never_ran_is_absent():
    assert reading(window(NEVER)).dropped == {"branches": "not counted"}
    assert reading(window(NEVER)).values == {}


def test_one_corrupt_sample_costs_its_counter_its_window():
    found = reading(window(CORRUPT))
    assert found.dropped == {"cycles": "jumped"}
    assert found.values == {}
    *_, third, last = samples(CORRUPT)
    assert reading(window([third, last])).values == {"cycles_s": 3e9}, "the next one is well"


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        (Count(5), Count(5), None),
        (Count(2**48 - 5), Count(3), "backwards"),
        (Count(10**9), Count(10**9 - 1), "backwards"),
        (Count(2**48 - 5), Count(2**48 - 6), "backwards"),
        (Count(1, 10, 10), Count(2, 9, 9), "backwards"),
        (Count(1, 10, 5), Count(2, 20, 4), "backwards"),
        (Count(1, 10, 10), Count(2, 20, 21), "jumped"),
    ],
)
def test_a_reading_is_judged_beside_the_one_before(before, after, fault):
    assert find_count_fault(before, after) == fault


@given(
    st.lists(
        st.tuples(
            st.integers(0, 10**9),
            st.integers(1, 10**9),
            st.floats(0.3, 1.0),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_a_window_does_not_depend_on_how_often_it_was_sampled(growths):
    value = enabled = running = 0
    taken = [Sample(0.0, {"branches": Count(0)})]
    for at, (grown, more, share) in enumerate(growths, 1):
        value, enabled, running = value + grown, enabled + more, running + int(more * share)
        taken.append(Sample(float(at), {"branches": Count(value, enabled, running)}))
    often = reading(window(taken))
    once = reading(window([taken[0], taken[-1]]))
    assert often.values.keys() == once.values.keys()
    assert often.values == pytest.approx(once.values)


def test_an_event_opened_between_samples_counts_from_its_opening():
    found = reading(
        window(
            [
                Sample(0.0, {}),
                Sample(2.0, {"l1d_loads": Count(500, 10, 10, since=1.0)}),
                Sample(3.0, {"l1d_loads": Count(100, 10, 10, since=2.0)}),
                Sample(4.0, {}),
            ]
        )
    )
    assert found.values == {"l1d_loads_s": 300}, "600 in the two seconds in which it was open"


def test_two_samples_at_one_time_lose_nothing():
    taken = [Sample(at, {"page_faults": Count(value)}) for at, value in ((0, 0), (0, 5), (1, 8))]
    assert reading(window(taken)).values == {"page_faults_s": 8}


def test_gauges_are_means_over_time():
    found = reading(
        window(
            [
                Sample(0.0, {}, {"gpu_power_w": 900.0}),
                Sample(1.0, {}, {"gpu_power_w": 100.0}),
                Sample(4.0, {}, {"gpu_power_w": 200.0}),
            ]
        )
    )
    assert found.values == {"gpu_power_w": 175.0}


def test_every_name_is_there_once_and_every_ratio_is_of_what_is_counted():
    names = [each.name for each in (*RATES, *RATIOS)]
    assert len(names) == len(set(names))
    counters = {rate.counter for rate in RATES}
    assert {name for ratio in RATIOS for name in (ratio.numerator, ratio.denominator)} <= counters
