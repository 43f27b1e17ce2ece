"""Joules are read whole or not at all: a powercap tree of files, a stand-in for a driver."""

from __future__ import annotations

import math
import os
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock import UsageError
from penstock.profiling.counters.energy import (
    Energy,
    PowerMeter,
    RaplMeter,
    cpu_seconds,
    device_energy,
    open_meters,
    wrapped_difference,
)
from penstock.profiling.counters.zeus import ZeusMeter
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
    energy = Energy(meters, None)
    begin = energy.sample(0.0)
    put(powercap, "intel-rapl:0", 51_000_000)
    put(powercap, "intel-rapl:0:1", 6_500_000)
    assert energy.between(begin, energy.sample(1.0)) == 50.0 + 5.5


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
    energy = Energy(meters[:1], None)
    begin = energy.sample(0.0)
    (powercap / "intel-rapl:0" / "energy_uj").write_text("")
    energy.sample(1.0)
    put(powercap, "intel-rapl:0", 9_000_000)
    end = energy.sample(2.0)
    assert energy.between(begin, end) is None
    put(powercap, "intel-rapl:0", 10_000_000)
    assert energy.between(end, energy.sample(3.0)) == 1.0
    put(powercap, "intel-rapl:0", "")
    begin = energy.sample(4.0)
    put(powercap, "intel-rapl:0", 11_000_000)
    assert energy.between(begin, energy.sample(5.0)) is None, "some of it was before the mark"


def test_zones_that_only_root_may_read_say_so(powercap):
    for zone in powercap.iterdir():
        (zone / "energy_uj").unlink()
        (zone / "energy_uj").mkdir()  # root reads any file, and no folder
    meters, missing = open_meters(0.0, powercap=powercap)
    assert meters == []
    assert "only root" in missing["intel-rapl:0"]
    assert "Zeus" in missing["Zeus"], "whose daemon might have read them"


def test_zeus_reads_a_cpu_with_its_memory():
    errors = pytest.importorskip("zeus.exception", reason="the extra `energy` is not installed")
    readings = [(1000, 100), (51_000, 5100), (500, None), None]

    class Cpus:
        def get_total_energy_consumption(self, index):
            if readings[0] is None:
                raise errors.ZeusBaseError("gone")
            cpu, dram = readings.pop(0)
            return SimpleNamespace(cpu_mj=cpu, dram_mj=dram)

    meter = ZeusMeter(Cpus(), 0)
    assert meter.read(1.0) == 55.0
    assert meter.read(2.0) is None, "it began anew"
    assert meter.read(3.0) is None


def test_without_zones_there_is_no_energy_and_a_reason(tmp_path):
    meters, missing = open_meters(0.0, powercap=tmp_path / "none")
    assert meters == []
    assert "virtual machine" in missing["RAPL"]


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


class Counter:
    """A meter and CPU-seconds that say what they are told, a reading after another."""

    name = "counter"

    def __init__(self, joules, seconds=()):
        self.joules, self.seconds = list(joules), list(seconds)

    def read(self, now):
        return self.joules.pop(0)

    def use(self):
        return self.seconds.pop(0)


def test_a_process_has_its_part_of_the_cpu_seconds_of_a_window():
    counter = Counter([5.0, 60.0, 30.0], [(1.0, 10.0), (1.5, 11.0), (3.0, 14.0)])
    energy = Energy([counter], counter.use)
    begin = energy.sample(0.0)
    energy.sample(1.0)
    assert energy.between(begin, energy.sample(2.0)) == 90.0 * 2.0 / 4.0


def test_no_process_has_more_than_all_and_what_comes_before_a_tick_is_shared_out_at_it():
    counter = Counter(
        [0.0, 8.0, 8.0, 2.0], [(0.0, 0.0), (0.013, 0.01), (0.013, 0.01), (0.018, 0.02)]
    )
    energy = Energy([counter], counter.use)
    begin = energy.sample(0.0)
    middle = energy.sample(1.0)
    assert energy.between(begin, middle) == 8.0
    idle = energy.sample(2.0)
    assert energy.between(middle, idle) == 0.0
    assert energy.between(idle, energy.sample(3.0)) == pytest.approx((8.0 + 2.0) * 0.5)


def test_trials_on_a_gpu_have_equal_parts_while_they_are_at_work_together():
    energy = Energy([Counter([0.0, 100.0, 60.0, 10.0, 7.0])], None)
    begin = energy.sample(0.0)
    energy.share(2, 1.0)  # 100 J alone until here
    energy.share(1, 2.0)  # 60 J of two
    energy.sample(3.0)
    assert energy.between(begin, energy.sample(4.0)) == 100.0 + 30.0 + 10.0 + 7.0


def test_how_many_share_a_cpu_is_told_by_its_seconds_alone():
    counter = Counter([0.0, 10.0], [(0.0, 0.0), (1.0, 1.0)])
    energy = Energy([counter], counter.use)
    begin = energy.sample(0.0)
    energy.share(2, 0.5)
    assert energy.between(begin, energy.sample(1.0)) == 10.0


def test_own_cpu_seconds_are_part_of_the_machines():
    before, all_before = cpu_seconds()
    while cpu_seconds()[0] < before + 0.3:
        pass
    own, all_ = cpu_seconds()
    assert 0.3 <= own - before <= all_ - all_before + 0.1


def test_ticks_without_idle_time_are_the_machines_seconds(tmp_path):
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 20 30 99999 777 4 6 500 100 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
    assert cpu_seconds(stat)[1] == 160 / os.sysconf("SC_CLK_TCK")


def test_a_device_has_all_of_its_meters_or_says_which_it_lacks(powercap, tmp_path):
    energy, why = device_energy(None, powercap, 0.0)
    assert energy is not None
    assert why == ""
    (powercap / "intel-rapl:1" / "energy_uj").unlink()
    (powercap / "intel-rapl:1" / "energy_uj").mkdir()
    energy, why = device_energy(None, powercap, 0.0)
    assert energy is None
    assert why.startswith("intel-rapl:1: ")
    assert "virtual machine" in device_energy(None, tmp_path / "none", 0.0)[1]
