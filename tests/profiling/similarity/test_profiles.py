"""A window's readings as a profile: what the load changes is not in it."""

from __future__ import annotations

import pytest
from penstock.profiling.similarity.profile import profile_of

READING = {
    "user_share": 1.5,
    "system_share": 0.5,
    "minor_faults_s": 200.0,
    "involuntary_switches_s": 40.0,
    "cpu_pressure_share": 0.3,
    "resident_bytes": 1e9,
    "samples_s": 1000.0,
    "cpu_s_per_sample": 0.002,
    "cache_miss_ratio": 0.1,
    "loader_wait_share": 0.05,
}


def test_rates_are_per_second_of_cpu_time_and_load_is_left_out():
    assert dict(profile_of(READING, {"matmul": 30, "reduction": 10, "memory": 900}, 20.0)) == {
        "cache_miss_ratio": 0.1,
        "loader_wait_share": 0.05,
        "minor_faults_cpu_s": 100.0,
        "calls_cpu_s": 40 * 20.0 / 2.0,
        "calls_matmul_share": 0.75,
        "calls_reduction_share": 0.25,
        "samples_cpu_s": pytest.approx(500.0),
        "system_of_cpu_share": 0.25,
    }


def test_the_same_work_on_a_machine_half_as_free_has_the_same_profile():
    rates = ("user_share", "system_share", "minor_faults_s", "samples_s")
    slower = {n: v / 2 if n in rates else v for n, v in READING.items()}
    calls = {"matmul": 30}
    assert profile_of(slower, calls, 10.0) == profile_of(READING, calls, 20.0)


def test_what_was_not_measured_is_absent():
    assert profile_of({}, {}) == ()
    assert profile_of({"minor_faults_s": 5.0}, {}) == (), "per second of what CPU time?"
    assert profile_of({"user_share": 0.0, "system_share": 0.0, "minor_faults_s": 1.0}, {}) == ()
