"""Joules are read whole or not at all: a powercap tree of files, a stand-in for a driver."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock import UsageError
from penstock.profiling.energy import (
    Energy,
    PowerMeter,
    RaplMeter,
    in_words,
    open_meters,
    shared,
    wrapped_difference,
)
from pynvml import NVML_ERROR_NOT_SUPPORTED, NVMLError


@pytest.fixture
def powercap(tmp_path):
    """Two packages, one with memory and cores, and the platform: as on a server."""
    names = {
        "intel-rapl:0": "package-0",
        "intel-rapl:0:0": "core",
        "intel-rapl:0:1": "dram",
        "intel-rapl:1": "package-1",
        "intel-rapl:2": "psys",
        "intel-rapl-mmio:0": "package-0",
    }
    for zone, name in names.items():
        (tmp_path / zone).mkdir()
        (tmp_path / zone / "name").write_text(f"{name}\n")
        (tmp_path / zone / "max_energy_range_uj").write_text("262143328850\n")
        (tmp_path / zone / "energy_uj").write_text("1000000\n")
    return tmp_path


def put(powercap, zone, microjoules):
    (powercap / zone / "energy_uj").write_text(f"{microjoules}\n")


def test_packages_and_memory_are_read_and_nothing_twice(powercap):
    meters, missing = open_meters(0.0, powercap=powercap)
    assert missing == {}
    assert [meter.name for meter in meters] == [
        "intel-rapl:0 package-0",
        "intel-rapl:0:1 dram",
        "intel-rapl:1 package-1",
    ]
    energy = Energy(meters)
    energy.mark(0.0)
    put(powercap, "intel-rapl:0", 51_000_000)
    put(powercap, "intel-rapl:0:1", 6_500_000)
    assert energy.take(1.0) == {
        "intel-rapl:0 package-0": 50.0,
        "intel-rapl:0:1 dram": 5.5,
        "intel-rapl:1 package-1": 0.0,
    }


def test_a_counter_that_comes_round_goes_on(powercap):
    put(powercap, "intel-rapl:0", 262_143_328_850 - 9_999_999)
    meter = RaplMeter(powercap / "intel-rapl:0", 0.0)
    put(powercap, "intel-rapl:0", 20_000_000)
    assert meter.read(1.0) == 30.0


def test_where_it_may_have_come_round_twice_nothing_is_known(powercap):
    meter = RaplMeter(powercap / "intel-rapl:0", 0.0)
    put(powercap, "intel-rapl:0", 2_000_000)
    assert meter.read(300.0) is None, "262 kJ are 262 s of the most that a package draws"
    put(powercap, "intel-rapl:0", 3_000_000)
    assert meter.read(301.0) == 1.0


def test_a_counter_that_began_anew_or_jumped_is_not_believed(powercap):
    put(powercap, "intel-rapl:0", 90_000_000_000)
    meter = RaplMeter(powercap / "intel-rapl:0", 0.0)
    put(powercap, "intel-rapl:0", 5)  # 172 kJ in a second, if it were a wrap
    assert meter.read(1.0) is None
    put(powercap, "intel-rapl:0", 262_143_328_851)  # more than it can be
    assert meter.read(2.0) is None


def test_one_lost_reading_makes_its_window_unknown_and_not_the_next(powercap):
    meters, _ = open_meters(0.0, powercap=powercap)
    energy = Energy(meters[:1])
    energy.mark(0.0)
    (powercap / "intel-rapl:0" / "energy_uj").write_text("")
    energy.sample(1.0)
    put(powercap, "intel-rapl:0", 9_000_000)
    assert energy.take(2.0) == {"intel-rapl:0 package-0": None}
    energy.mark(2.0)
    put(powercap, "intel-rapl:0", 10_000_000)
    assert energy.take(3.0) == {"intel-rapl:0 package-0": 1.0}
    put(powercap, "intel-rapl:0", "")
    energy.mark(4.0)
    put(powercap, "intel-rapl:0", 11_000_000)
    assert energy.take(5.0) == {"intel-rapl:0 package-0": None}, "some of it was before the mark"


def test_zones_that_only_root_may_read_say_so(powercap):
    for zone in powercap.iterdir():
        (zone / "energy_uj").unlink()
        (zone / "energy_uj").mkdir()  # root reads any file, and no folder
    meters, missing = open_meters(0.0, powercap=powercap)
    assert meters == []
    assert "only root" in missing["intel-rapl:0"]


def test_without_zones_there_is_no_energy_and_a_reason(tmp_path):
    meters, missing = open_meters(0.0, powercap=tmp_path / "none")
    assert meters == []
    assert "virtual machine" in missing["RAPL"]
    assert Energy(meters).take(1.0) == {}


@given(st.integers(1, 2**63), st.data())
def test_growth_over_one_wrap_is_growth(largest, data):
    before = data.draw(st.integers(0, largest))
    growth = data.draw(st.integers(0, largest))
    assert wrapped_difference(before, (before + growth) % (largest + 1), largest) == growth


@given(st.integers(1, 2**40), st.integers(1, 2**40))
def test_a_reading_beyond_the_range_is_refused(largest, beyond):
    with pytest.raises(UsageError, match="after"):
        wrapped_difference(0, largest + beyond, largest)


def test_power_is_integrated_by_trapezoids():
    watts = iter([100.0, 200.0, 200.0, None, 100.0, 100.0, 100.0])
    meter = PowerMeter("gpu", watts.__next__, 0.0)
    assert meter.read(2.0) == 300.0
    assert meter.read(3.0) == 200.0
    assert meter.read(4.0) is None, "not read"
    assert meter.read(5.0) is None, "nothing to go from"
    assert meter.read(6.0) == 100.0
    assert meter.read(60.0) is None, "a minute in which nobody looked"


@given(
    st.floats(0, 500),
    st.floats(-50, 50),
    st.lists(st.floats(0.01, 4), min_size=1, max_size=30),
)
def test_the_integral_of_a_straight_line_is_exact(watts, slope, gaps):
    times = [math.fsum(gaps[:count]) for count in range(len(gaps) + 1)]
    values = iter([watts + slope * at for at in times])
    meter = PowerMeter("gpu", values.__next__, 0.0)
    total = math.fsum(meter.read(at) for at in times[1:])
    end = times[-1]
    assert total == pytest.approx(watts * end + slope * end * end / 2, abs=1e-6)


def driver(millijoules=None, milliwatts=None):
    def answer(values):
        def ask(gpu):
            if not values:
                raise NVMLError(NVML_ERROR_NOT_SUPPORTED)
            return values.pop(0)

        return ask

    return SimpleNamespace(
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetTotalEnergyConsumption=answer(millijoules or []),
        nvmlDeviceGetPowerUsage=answer(milliwatts or []),
    )


def test_a_gpus_counter_is_read_and_its_power_where_it_has_none(tmp_path):
    with_counter = driver([1000, 51_000, 20])
    (meter,), _ = open_meters(0.0, ["GPU-a"], powercap=tmp_path, start=lambda: with_counter)
    assert meter.read(1.0) == 50.0
    assert meter.read(2.0) is None, "the driver was loaded again"
    assert meter.read(3.0) is None, "it does not answer any more"

    without = driver(milliwatts=[100_000, 100_000, 300_000])
    (meter,), _ = open_meters(0.0, ["GPU-a"], powercap=tmp_path, start=lambda: without)
    assert meter.read(1.0) == 200.0

    meters, missing = open_meters(0.0, ["GPU-a"], powercap=tmp_path, start=driver)
    assert meters == []
    assert "refuses" in missing["GPU-a"]


@given(st.floats(0, 1e9), st.dictionaries(st.text(), st.floats(1e-3, 1e6), min_size=1))
def test_what_is_shared_is_all_of_it(joules, seconds):
    parts = shared(joules, seconds)
    assert math.fsum(parts.values()) == pytest.approx(joules)


def test_joules_are_shared_by_seconds_and_none_stays_none():
    assert shared(90.0, {"a": 1.0, "b": 2.0}) == {"a": 30.0, "b": 60.0}
    assert shared(None, {"a": 1.0}) == {"a": None}
    assert shared(5.0, {"a": 0.0}) == {"a": None}
    with pytest.raises(UsageError, match="seconds"):
        shared(1.0, {"a": -1.0})


def test_what_was_not_read_is_said():
    assert in_words(None, 12.34) == "energy not measured, 12.3 device-seconds"
    assert in_words(1234.5, 12.34) == "1,234.5 J, 12.3 device-seconds"
