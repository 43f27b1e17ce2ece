"""The kernel's files and the GPU's driver: real ones of this process, stand-ins for the rest."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from penstock.profiling.counters.capabilities import capabilities
from penstock.profiling.counters.gpu import GpuSource
from penstock.profiling.counters.process import ProcessSource
from penstock.profiling.counters.rates import GAUGES, RATES
from pynvml import (
    NVML_ERROR_DRIVER_NOT_LOADED,
    NVML_ERROR_NO_PERMISSION,
    NVML_ERROR_NOT_SUPPORTED,
    NVMLError,
    c_nvmlGpmMetricsGet_t,
)


def test_this_process_is_read_as_the_kernel_accounts_for_it(tmp_path):
    source = ProcessSource()
    before = source.read(0.0).counts
    until = time.process_time() + 0.2
    (tmp_path / "file").write_bytes(bytes(3 << 20))
    while time.process_time() < until:
        pass
    after = source.read(1.0)
    used = sum(after.counts[n].value - before[n].value for n in ("user_time", "system_time"))
    assert 150_000 < used < 400_000
    assert after.gauges["resident_bytes"] > 10 << 20
    if "written_bytes" in source.names:
        assert after.counts["written_bytes"].value - before["written_bytes"].value >= 3 << 20


@pytest.fixture
def kernel(tmp_path):
    proc, groups = tmp_path / "proc", tmp_path / "groups"
    (proc / "self").mkdir(parents=True)
    (proc / "pressure").mkdir()
    (groups / "a" / "b").mkdir(parents=True)
    (proc / "self" / "io").write_text("rchar: 10\nwchar: 20\nread_bytes: 0\n")
    (proc / "self" / "statm").write_text("100 50 10 1 0 40 0\n")
    (proc / "self" / "cgroup").write_text("1:cpu:/x\n0::/a/b\n")
    (groups / "a" / "b" / "cpu.stat").write_text("usage_usec 9\nnr_throttled 1\nthrottled_usec 7\n")
    for kind in ("cpu", "io", "memory"):
        text = "some avg10=1.00 avg60=0.00 avg300=0.00 total=5\nfull avg10=0.00 total=3\n"
        (proc / "pressure" / kind).write_text(text)
    return proc, groups


def test_the_kernels_files_are_read(kernel):
    source = ProcessSource(*kernel)
    read = source.read(0.0)
    assert source.missing == {}
    assert {name: count.value for name, count in read.counts.items()}.items() >= {
        "read_bytes": 10,
        "written_bytes": 20,
        "throttled": 7,
        "cpu_pressure": 5,
        "io_pressure": 5,
        "memory_pressure": 5,
    }.items()
    assert read.counts.keys() | read.gauges.keys() == set(source.names)
    (kernel[0] / "self" / "io").unlink()
    (kernel[0] / "self" / "statm").write_text("")
    (kernel[0] / "pressure" / "cpu").write_text("")
    later = source.read(1.0)
    assert later.counts.keys().isdisjoint({"read_bytes", "cpu_pressure"}), "gone, so absent"
    assert later.gauges == {}


def test_what_a_container_hides_is_absent_with_its_reason(kernel):
    proc, groups = kernel
    (proc / "pressure" / "io").unlink()
    (proc / "self" / "io").write_text("")
    (groups / "a" / "b" / "cpu.stat").write_text("usage_usec 9\n")
    source = ProcessSource(proc, groups)
    assert source.missing.keys() == {"io_pressure", "read_bytes", "written_bytes", "throttled"}
    assert "No such file" in source.missing["io_pressure"]
    assert "no such line" in source.missing["throttled"]
    assert source.missing.keys().isdisjoint(source.read(0.0).counts)


class Driver:
    """pynvml's functions over one H100 that uses half of everything; it may refuse some."""

    NVML_GPM_METRICS_GET_VERSION = 1
    c_nvmlGpmMetricsGet_t = c_nvmlGpmMetricsGet_t  # noqa: N815  # the library's name

    def __init__(self, *, gpm=True, refuses=()):
        self.gpm, self.refuses, self.samples = gpm, set(refuses), 0
        names = ("SM_UTIL", "SM_OCCUPANCY", "ANY_TENSOR_UTIL", "FP32_UTIL", "DRAM_BW_UTIL")
        for number, name in enumerate((*names, "PCIE_TX_PER_SEC", "PCIE_RX_PER_SEC")):
            setattr(self, f"NVML_GPM_METRIC_{name}", number)

    def __call__(self):
        return self

    def __getattr__(self, name):
        if name in self.refuses:
            raise NVMLError(NVML_ERROR_NO_PERMISSION)
        answers = {
            "nvmlDeviceGetHandleByUUID": "gpu",
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=50, memory=25),
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=1 << 30),
            "nvmlDeviceGetPowerUsage": 350_000,
            "nvmlGpmQueryDeviceSupport": SimpleNamespace(isSupportedDevice=self.gpm),
            "nvmlGpmSampleGet": None,
        }
        return lambda *_: answers[name]

    def nvmlGpmSampleAlloc(self):  # noqa: N802  # the library's name
        self.samples += 1

    def nvmlGpmSampleFree(self, sample):  # noqa: N802
        self.samples -= 1

    def nvmlGpmMetricsGet(self, asked):  # noqa: N802
        for place in range(asked.numMetrics):
            asked.metrics[place].value = 50.0
        asked.metrics[0].nvmlReturn = NVML_ERROR_NOT_SUPPORTED


def test_a_gpu_is_read_with_the_metrics_that_it_has():
    driver = Driver()
    source = GpuSource("GPU-a", driver)
    read = source.read(0.0).gauges
    assert read["gpu_busy_share"] == 0.5
    assert read["gpu_memory_busy_share"] == 0.25
    assert read["gpu_memory_bytes"] == 1 << 30
    assert read["gpu_power_w"] == 350
    assert read["gpu_tensor_share"] == 0.5
    assert read["gpu_pcie_sent_bytes_s"] == 50 << 20
    assert "gpu_sm_share" not in read, "the driver has no value for it"
    assert set(source.names) == GAUGES.keys() - {"resident_bytes"}
    driver.refuses = {"nvmlDeviceGetPowerUsage"}
    assert "gpu_power_w" not in source.read(1.0).gauges
    source.close()
    assert driver.samples == 0


def test_what_a_gpu_does_not_have_is_absent_with_its_reason():
    source = GpuSource("GPU-a", Driver(gpm=False, refuses=["nvmlDeviceGetPowerUsage"]))
    assert source.read(0.0).gauges.keys() == set(source.names)
    assert len(source.names) == 3
    assert "Hopper" in source.missing["gpu_sm_share"]
    assert "Permission" in source.missing["gpu_power_w"]

    def start():
        raise NVMLError(NVML_ERROR_DRIVER_NOT_LOADED)

    absent = GpuSource("GPU-a", start)
    assert (absent.names, absent.read(0.0).gauges) == ((), {})
    absent.close()


def test_the_probe_names_everything_that_readings_are_made_of():
    found = capabilities(["GPU-none"])
    names = {one.counter for one in found}
    assert names == {rate.counter for rate in RATES} | GAUGES.keys()
    assert len(names) == len(found)
    assert all(one.reason for one in found if not one.measured)
    assert {one.counter for one in found if one.measured} >= {"user_time", "resident_bytes"}
