"""Evidence: what studies say of a configuration, how surely, and what that says of others."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from math import exp, inf, isfinite, log, nan, sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from penstock.profiling.similarity.evidence import (
    BETWEEN_STUDIES,
    BETWEEN_WORKLOADS,
    FORGOTTEN,
    NOISE,
    Evidence,
    failed_of,
    known_of,
    prior_of,
    sureness,
)
from penstock.profiling.similarity.history import (
    LATEST,
    MAX_DEVIATION,
    MAX_RATIO,
    MAX_WINDOWS,
    HistoryEntry,
    check,
)

LAST, ONE = (("memory_format", "channels_last"),), (("threads", 1),)


def entry(ratio, *, source="s", config=LAST, windows=2, spread=None, **changes):
    """An entry of a configuration that takes ``ratio`` of the default's time."""
    made = HistoryEntry("w", "m", source, (), config, 1 / ratio, None, windows, 0.0, spread=spread)
    return replace(made, **changes)


def test_one_study_is_known_as_well_as_its_windows_say_and_no_better_than_studies_differ():
    [one] = known_of([entry(0.8, spread=NOISE)])
    assert one == Evidence(
        LAST, pytest.approx(log(0.8)), pytest.approx(sqrt(NOISE**2 / 2 + BETWEEN_STUDIES**2)), 2, 1
    )
    [many] = known_of([entry(0.8, windows=10**6, spread=NOISE)])
    assert many.error == pytest.approx(BETWEEN_STUDIES, rel=0.001)
    [wild] = known_of([entry(0.8, windows=6, spread=1.0)])
    assert wild.error > 3 * one.error
    [few] = known_of([entry(0.8, spread=0.0)])
    assert few.error > 0.8 * one.error, "two equal windows are equal by chance"


def test_studies_that_agree_make_it_surer():
    [one], [three] = (known_of(entry(0.7, source=str(i)) for i in range(n)) for n in (1, 3))
    assert (three.windows, three.studies) == (6, 3)
    assert three.mean == pytest.approx(one.mean)
    assert three.error == pytest.approx(one.error / sqrt(3))
    assert 0.5 < sureness(one) < sureness(three) < 1


def test_two_studies_that_teach_opposite_things_leave_no_verdict():
    [found] = known_of([entry(0.6, windows=50), entry(1 / 0.6, source="t", windows=50)])
    assert found.mean == pytest.approx(0, abs=1e-9)
    assert found.error > 0.3
    assert sureness(found) == pytest.approx(0.5)
    uneven = [entry(0.6, windows=50), entry(1.1, source="t", windows=5)]
    [found] = known_of(uneven)
    assert found.error > 0.15


def test_one_study_whose_entries_differ_is_no_two_studies():
    [found] = known_of([entry(0.5, windows=10), entry(1.5, windows=10)])
    assert found.studies == 1
    [steady] = known_of([entry(0.87, windows=10), entry(0.87, windows=10)])
    assert found.error > 5 * steady.error


def test_configurations_are_apart_and_the_default_and_failures_are_none_of_them():
    failed = entry(1.0, infeasible=True)
    default = entry(1.0, config=())
    found = known_of([entry(0.9, config=ONE), failed, default, entry(0.8)])
    assert [each.config for each in found] == [LAST, ONE]
    assert known_of([failed, default]) == known_of([]) == ()


def test_a_failure_is_remembered_for_a_week():
    failed = [entry(1.0, infeasible=True, at=100.0), entry(0.5, config=ONE, at=100.0)]
    assert failed_of(failed, 100.0) == failed_of(failed, 99 + FORGOTTEN) == (LAST,)
    assert failed_of(failed, 101 + FORGOTTEN) == failed_of(failed, 200.0, seconds=50.0) == ()
    ahead = [entry(1.0, infeasible=True, at=LATEST)]
    assert failed_of(ahead, 100.0) == (), "a wrong clock is not believed for ever"


def test_a_neighbour_is_a_prior_however_much_was_measured_there():
    sure = Evidence(LAST, log(0.6), 0.001, 10**6, 50)
    [at_once], [further] = prior_of([(0.0, [sure])]), prior_of([(1.0, [sure])])
    assert at_once.mean == further.mean == pytest.approx(log(0.6))
    assert further.error > at_once.error >= sqrt(2) * BETWEEN_WORKLOADS
    assert (at_once.workloads, at_once.agreeing) == (1, 1)


def test_nearer_neighbours_count_for_more_and_those_who_disagree_are_counted():
    near, far = Evidence(LAST, -0.3, 0.05, 4, 1), Evidence(LAST, 0.1, 0.05, 4, 1)
    [found] = prior_of([(0.1, [near]), (2.0, [far]), (nan, [far]), (inf, [far]), (1e300, [far])])
    assert -0.3 < found.mean < -0.1
    assert (found.workloads, found.agreeing) == (2, 1)
    alike = [(0.1, [near])] * 4
    [more] = prior_of(alike)
    assert BETWEEN_WORKLOADS < more.error < found.error
    assert prior_of([]) == ()


ENTRIES = st.lists(
    st.builds(
        HistoryEntry,
        workload=st.just("w"),
        machine=st.just("m"),
        source=st.sampled_from("abc"),
        profile=st.just(()),
        config=st.sampled_from([(), LAST, ONE]),
        speedup=st.floats(1 / MAX_RATIO, MAX_RATIO),
        joules=st.none(),
        windows=st.integers(1, MAX_WINDOWS),
        at=st.floats(0, LATEST),
        infeasible=st.booleans(),
        spread=st.none() | st.floats(0, MAX_DEVIATION),
    )
)


@settings(deadline=None)
@given(entries=ENTRIES, distances=st.lists(st.floats(), max_size=3), now=st.floats(0, LATEST))
def test_whatever_may_stand_in_a_history_gives_finite_numbers(entries, distances, now):
    for each in entries:
        check(each)
    known = known_of(entries)
    ratios = [-log(each.speedup) for each in entries if each.config and not each.infeasible]
    for each in known:
        assert min(ratios) - 1e-6 <= each.mean <= max(ratios) + 1e-6
        assert 0 < each.error < inf
        assert 0 <= sureness(each) <= 1
    for prior in prior_of((distance, known) for distance in distances):
        assert isfinite(exp(prior.mean))
        assert BETWEEN_WORKLOADS <= prior.error < inf
        assert 0 <= prior.agreeing <= prior.workloads <= len(distances)
    assert known == known_of(reversed(entries)) or [
        (each.config, pytest.approx(each.mean, abs=1e-6)) for each in known
    ] == [(each.config, each.mean) for each in known_of(reversed(entries))]
    assert set(failed_of(entries, now)) <= {each.config for each in entries if each.infeasible}


def test_no_library_is_loaded_for_it():
    code = (
        "import sys, penstock.profiling.similarity.evidence;"
        "print({'numpy', 'sklearn', 'torch'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
