"""The similarity service: like workloads are known, others are not, and bad samples change nothing.

Profiles here are made up (families of log-normal rates); real ones are in ``benchmarks.novelty``.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from penstock.base.errors import UsageError
from penstock.profiling.similarity.history import HistoryEntry
from penstock.profiling.similarity.service import MIN_DISTANCES, PRIOR_THRESHOLD, Similarity

RATES = ("steps_per_second", "faults_per_second", "switches_per_second", "cpu_seconds_per_sample")
SHARES = ("conv_share", "matmul_share", "wait_share")


def family(name, windows, seed=0, noise=0.1):
    """Profiles of one workload: its own rates and shares, each window with some noise."""
    of_family, of_window = random.Random(name), random.Random(f"{name}{seed}")
    centres = [math.exp(of_family.uniform(0, 8)) for _ in RATES]
    parts = [of_family.uniform(0.05, 0.9) for _ in SHARES]
    return [
        tuple(
            (feature, centre * math.exp(of_window.gauss(0, noise)))
            for feature, centre in zip(RATES, centres, strict=True)
        )
        + tuple(
            (feature, min(1.0, max(0.0, part + of_window.gauss(0, noise / 10))))
            for feature, part in zip(SHARES, parts, strict=True)
        )
        for _ in range(windows)
    ]


def entry(workload, profile, config=(), speedup=1.0, *, infeasible=False, at=0.0):
    return HistoryEntry(workload, "m", "s", profile, config, speedup, None, 4, at, infeasible)


def history(names, windows=5, **options):
    return [entry(name, p, **options) for name in names for p in family(name, windows)]


NAMES = [f"family{n}" for n in range(8)]
FAST, SLOW = (("threads", 1),), (("threads", 4),)


@cache
def plain():
    return Similarity.fit(history(NAMES))


@pytest.fixture
def service():
    return plain()


def changed(profile, **features):
    return tuple((name, features.get(name, value)) for name, value in profile)


def test_new_windows_of_known_families_are_known_and_others_are_not(service):
    seen = [service.ask(p) for name in NAMES for p in family(name, 5, seed=1)]
    new = [service.ask(p) for n in range(20, 28) for p in family(f"family{n}", 5)]
    # The level is 0.9; with 40 windows to go by and 40 to judge, a standard deviation is 0.07.
    assert sum(answer.known for answer in seen) >= 0.8 * len(seen)
    assert not any(answer.known for answer in new)
    assert all(answer.config is None and answer.threshold < answer.distance for answer in new)


def test_the_threshold_is_the_conformal_rank_of_leave_one_out_distances(service):
    """At level 0.9 of 40 windows: the 37th smallest of the distances, recomputed here by hand."""
    alone = [
        min(service._scales.distances(row, service._rows[[i for i in range(40) if i != place]]))
        for place, row in enumerate(service._rows)
    ]
    assert service.threshold == sorted(alone)[36]
    assert service.level == 0.9


def test_with_few_windows_the_level_is_what_they_allow():
    service = Similarity.fit(history(NAMES[:2], windows=4))
    assert service.level == 8 / 9


def test_one_known_workload_is_enough_for_an_answer_that_says_how_sure_it_is():
    """The second workload is answered, by a threshold that is stated: one window says none."""
    [profile] = family(NAMES[0], 1)
    service = Similarity.fit([entry(NAMES[0], profile, FAST, 2.0)])
    assert (service.threshold, service.level) == (PRIOR_THRESHOLD, None)
    [near] = family(NAMES[0], 1, seed=2)
    answer = service.ask(near)
    assert (answer.known, answer.config, answer.threshold) == (True, FAST, PRIOR_THRESHOLD)
    assert 1.2 < answer.expected_speedup < 1.8
    assert 0.8 < answer.sureness < 1
    assert answer.why == (
        "like 1 known workload (a stated threshold, no windows yet to confirm it), where this was"
        " 2.00 times as fast as the default (1 of 1 agree): almost surely faster here too"
        f" ({answer.sureness:.0%})"
    )
    assert not any(service.ask(family(name, 1)[0]).known for name in NAMES[1:])


def test_a_small_gain_next_door_is_told_as_a_perhaps():
    [profile] = family(NAMES[0], 1)
    answer = Similarity.fit([entry(NAMES[0], profile, FAST, 1.05)]).ask(profile)
    assert answer.config == FAST
    assert 0.5 < answer.sureness < 0.8
    assert "perhaps faster here too" in answer.why


def test_the_threshold_is_a_stated_one_until_enough_windows_tell():
    windows = family(NAMES[0], MIN_DISTANCES)
    few, enough = (
        Similarity.fit(entry(NAMES[0], each) for each in windows[:n])
        for n in (MIN_DISTANCES - 1, MIN_DISTANCES)
    )
    assert (few.threshold, few.level) == (PRIOR_THRESHOLD, None)
    assert enough.level == MIN_DISTANCES / (MIN_DISTANCES + 1)
    assert enough.threshold != PRIOR_THRESHOLD


def test_neighbours_that_teach_opposite_things_leave_the_answer_open():
    """Twice as fast for one of two that look alike, and half as fast for the other."""
    first, second = family(NAMES[0], 2)
    service = Similarity.fit([entry("a", first, FAST, 2.0), entry("b", second, FAST, 1 / 1.9)])
    answer = service.ask(family(NAMES[0], 1, seed=2)[0])
    assert answer.known
    assert answer.sureness is None or answer.sureness < 0.7


def test_a_failure_is_forgotten_after_a_week():
    profile = family(NAMES[0], 5)[0]
    failed = entry(NAMES[0], profile, FAST, 1.0, infeasible=True)
    service = Similarity.fit([*history(NAMES), entry(NAMES[0], profile, FAST, 2.0), failed])
    [near] = family(NAMES[0], 1, seed=2)
    assert service.ask(near, 6 * 24 * 3600.0).config == ()
    assert service.ask(near, 8 * 24 * 3600.0).config == FAST


def test_where_all_are_one_cluster_it_makes_nothing_alike():
    known = [*history(NAMES[:3]), entry(NAMES[1], family(NAMES[1], 1)[0], FAST, 2.0)]
    service = Similarity.fit(known)
    assert {*service.clusters.values()} == {0}
    answer = service.ask(family(NAMES[0], 1, seed=2)[0])
    assert (answer.known, answer.config) == (True, ())


def test_what_was_faster_there_is_reused_as_a_ratio():
    [profile, *_], [other, *_] = family(NAMES[0], 5), family(NAMES[1], 5)
    known = [
        *history(NAMES),
        entry(NAMES[0], profile, FAST, 2.0),
        entry(NAMES[0], profile, SLOW, 0.5),
        entry(NAMES[1], other, SLOW, 3.0),
    ]
    answer = Similarity.fit(known).ask(family(NAMES[0], 1, seed=2)[0])
    assert answer.known
    assert answer.config == FAST
    assert 1.5 < answer.expected_speedup < 2.0, "some of it may have been luck"
    assert answer.neighbours[0].workload == NAMES[0]


def test_where_nothing_beat_the_default_the_default_is_the_answer():
    known = [*history(NAMES), entry(NAMES[0], family(NAMES[0], 5)[0], SLOW, 0.5)]
    answer = Similarity.fit(known).ask(family(NAMES[0], 1, seed=2)[0])
    assert (answer.known, answer.config, answer.expected_speedup) == (True, (), 1.0)


def sized(profile, architecture, random):
    """``profile`` of an architecture about as large as this one."""
    near = replace(architecture, flops=round(architecture.flops * random.uniform(0.7, 1.4)))
    return (*profile, *near.profile)


@pytest.mark.extension("nas")
def test_a_configuration_is_reused_between_architectures_that_are_alike_only(monkeypatch):
    """All have the same readings: only their counts tell them apart."""
    from penstock.extensions.nas.models.architecture import Architecture

    # So few workloads would be one cluster.
    monkeypatch.setattr(
        "penstock.profiling.similarity.service.cluster", lambda points, names: [None] * len(points)
    )
    rng = random.Random(1)
    small = Architecture(parameters=10_000, flops=2_000_000, activations=50_000, operators=40)
    large = Architecture(10**7, 9 * 10**10, 10**7, 400)
    known = [
        entry(name, sized(p, of, rng), config, speedup)
        for name, of, config, speedup in (("small", small, FAST, 2.0), ("large", large, SLOW, 3.0))
        for p in family(NAMES[0], 5)
    ]
    service = Similarity.fit(known)
    assert service.aside == 0, "counts are no readings: none is absurd"
    for of, config in ((small, FAST), (large, SLOW)):
        windows = family(NAMES[0], 20, seed=2)
        answers = [service.ask(sized(window, of, rng)) for window in windows]
        known_ones = [answer for answer in answers if answer.known]
        assert len(known_ones) >= 12
        assert {answer.config for answer in known_ones} == {config}
    between = Architecture(parameters=300_000, flops=10**8, activations=500_000, operators=120)
    windows = family(NAMES[0], 20, seed=2)
    assert not any(service.ask(sized(window, between, rng)).known for window in windows)
    assert any(service.ask(window).known for window in windows), (
        "models of which nothing is counted"
    )


def test_what_did_not_fit_in_memory_is_not_reused():
    profile = family(NAMES[0], 5)[0]
    known = [
        *history(NAMES),
        entry(NAMES[0], profile, FAST, 2.0),
        entry(NAMES[0], profile, FAST, 1.0, infeasible=True, at=9.0),
    ]
    answer = Similarity.fit(known).ask(family(NAMES[0], 1, seed=2)[0])
    assert answer.config == ()


def test_groups_of_workloads_are_found_as_clusters():
    """Three kinds of machine load, four workloads of each: k is 3, nobody said so."""
    base = {"a": 1.0, "b": 400.0, "c": 3e5}
    names = [f"{kind}{n}" for kind in base for n in range(4)]
    profiles = {}
    for name in names:
        chance, scale = random.Random(name), base[name[0]]
        profiles[name] = [
            tuple((rate, scale * math.exp(chance.gauss(0, 0.2))) for rate in RATES)
            for _ in range(3)
        ]
    service = Similarity.fit(entry(name, p) for name in names for p in profiles[name])
    clusters = [{service.clusters[f"{kind}{n}"] for n in range(4)} for kind in base]
    assert all(len(found) == 1 for found in clusters)
    assert set.union(*clusters) == {0, 1, 2}


CORRUPTIONS = st.one_of(
    st.tuples(st.sampled_from(RATES), st.sampled_from([math.inf, -1.0, 4.93e16, 1e12])),
    st.tuples(st.sampled_from(SHARES), st.sampled_from([math.inf, -0.5, 100.0, 5e3])),
    st.tuples(st.sampled_from(RATES + SHARES), st.just(math.nan)),
)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(CORRUPTIONS, min_size=1, max_size=4),
    st.sampled_from([*NAMES, "a workload of its own"]),
)
def test_a_corrupted_sample_changes_no_cluster(corruptions, name):
    service = plain()  # not a fixture: Hypothesis would print it
    bad = changed(family(name if name in NAMES else NAMES[0], 1, seed=3)[0], **dict(corruptions))
    disturbed = Similarity.fit([*history(NAMES), entry(name, bad)])
    assert {n: disturbed.clusters[n] for n in NAMES} == service.clusters
    if any(not math.isnan(value) for value in dict(corruptions).values()):
        assert disturbed.aside == 1
        assert disturbed.threshold == service.threshold


def test_what_was_not_measured_is_no_zero():
    masked = [tuple(pair for pair in p if pair[0] != "wait_share") for p in family(NAMES[0], 5)]
    service = Similarity.fit([*history(NAMES[1:]), *(entry(NAMES[0], p) for p in masked)])
    [whole] = family(NAMES[0], 1, seed=1)
    answer = service.ask(whole)
    assert answer.neighbours[0].workload == NAMES[0]
    assert "wait_share" not in {d.feature for d in answer.neighbours[0].differences}
    assert service.ask(changed(whole, wait_share=math.nan)).known


def test_too_few_common_features_are_no_likeness(service):
    answer = service.ask(family(NAMES[0], 1)[0][:2])
    assert not answer.known
    assert "features" in answer.why


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ([], "no window to compare it with"),
        ([entry("w", ())], "no window to compare it with"),
        ([entry("w", (("steps", math.inf),))], "no usable window"),
        ([entry("w", family("w", 1)[0])], "above 2 (a stated threshold, no windows yet"),
    ],
)
def test_a_history_that_says_too_little_says_so(entries, why):
    answer = Similarity.fit(entries).ask(family(NAMES[0], 1)[0])
    assert not answer.known
    assert answer.config is None
    assert why in answer.why


def test_clusters_that_cannot_be_made_make_the_answer_unknown_with_the_words(monkeypatch):
    def unable(points, names):
        raise ValueError("no room")

    monkeypatch.setattr("penstock.profiling.similarity.service.cluster", unable)
    answer = Similarity.fit(history(NAMES)).ask(family(NAMES[0], 1)[0])
    assert not answer.known
    assert "k-means raised ValueError('no room')" in answer.why


def test_entries_of_two_machines_are_refused():
    other = HistoryEntry("w", "another", "s", (), (), 1.0, None, 1, 0.0)
    with pytest.raises(UsageError, match="one class of machine"):
        Similarity.fit([*history(NAMES), other])


def test_an_impossible_reading_is_answered_with_its_name(service):
    answer = service.ask(changed(family(NAMES[0], 1)[0], conv_share=3e4))
    assert not answer.known
    assert "conv_share" in answer.why


def test_workloads_with_the_same_profile_are_one_point():
    """scikit-learn warns, on the user's terminal, of more clusters than there are points."""
    kinds = {name: family(name, 1)[0] for name in NAMES[:3]}
    service = Similarity.fit(entry(f"{name} {n}", p) for name, p in kinds.items() for n in range(6))
    assert len(set(service.clusters.values())) == 3
