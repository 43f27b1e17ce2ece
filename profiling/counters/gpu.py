"""Counters of one GPU from NVIDIA's management library (NVML), with GPM's metrics if available.

GPM (GPU performance monitoring) comes with Hopper. All values are the device's, not this process's:
trials that share a GPU have the same readings. Shares are the percentages of NVML's reference,
divided by 100.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pynvml import NVMLError

from ..devices.nvml import start_nvml
from .source import Readings

_MIB = float(1 << 20)
#: GPM's metric for each gauge, and the factor from the metric's unit to the gauge's.
_GPM = {
    "gpu_sm_share": ("NVML_GPM_METRIC_SM_UTIL", 0.01),
    "gpu_occupancy_share": ("NVML_GPM_METRIC_SM_OCCUPANCY", 0.01),
    "gpu_tensor_share": ("NVML_GPM_METRIC_ANY_TENSOR_UTIL", 0.01),
    "gpu_fp32_share": ("NVML_GPM_METRIC_FP32_UTIL", 0.01),
    "gpu_memory_bandwidth_share": ("NVML_GPM_METRIC_DRAM_BW_UTIL", 0.01),
    "gpu_pcie_sent_bytes_s": ("NVML_GPM_METRIC_PCIE_TX_PER_SEC", _MIB),
    "gpu_pcie_received_bytes_s": ("NVML_GPM_METRIC_PCIE_RX_PER_SEC", _MIB),
}
_NVML_GAUGES = ("gpu_busy_share", "gpu_memory_busy_share", "gpu_memory_bytes", "gpu_power_w")


class GpuSource:
    """A source of the counters of GPU ``uuid``. ``start`` initialises NVML and returns pynvml."""

    name = "GPU"

    def __init__(self, uuid: str, start: Callable[[], Any] = start_nvml) -> None:
        self.missing: dict[str, str] = {}
        self._readers: list[Callable[[], dict[str, float]]] = []
        self._gpm: _Gpm | None = None
        try:
            self._nvml = start()
            self._gpu = self._nvml.nvmlDeviceGetHandleByUUID(uuid)
        except NVMLError as error:
            self.missing |= dict.fromkeys(
                (*_NVML_GAUGES, *_GPM), f"the driver does not answer: {error}"
            )
            return
        self._add_reader(("gpu_busy_share", "gpu_memory_busy_share"), self._busy)
        self._add_reader(("gpu_memory_bytes",), self._memory)
        self._add_reader(("gpu_power_w",), self._power)
        try:
            if self._nvml.nvmlGpmQueryDeviceSupport(self._gpu).isSupportedDevice:
                self._gpm = _Gpm(self._nvml, self._gpu)
            else:
                self.missing |= dict.fromkeys(_GPM, "this GPU has no GPM: it comes with Hopper")
        except NVMLError as error:
            self.missing |= dict.fromkeys(_GPM, f"the driver refuses GPM: {error}")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name in (*_NVML_GAUGES, *_GPM) if name not in self.missing)

    def _add_reader(self, names: Iterable[str], reader: Callable[[], dict[str, float]]) -> None:
        try:
            reader()
        except NVMLError as error:
            self.missing |= dict.fromkeys(names, f"the driver refuses: {error}")
        else:
            self._readers.append(reader)

    def read(self, now: float) -> Readings:
        gauges: dict[str, float] = {}
        readers = self._readers if self._gpm is None else [*self._readers, self._gpm.read]
        for reader in readers:
            try:
                gauges |= reader()
            except NVMLError:
                continue  # absent from this sample
        return Readings({}, gauges)

    def close(self) -> None:
        if self._gpm is not None:
            self._gpm.close()
            self._gpm = None

    def _busy(self) -> dict[str, float]:
        rates = self._nvml.nvmlDeviceGetUtilizationRates(self._gpu)
        return {"gpu_busy_share": rates.gpu / 100, "gpu_memory_busy_share": rates.memory / 100}

    def _memory(self) -> dict[str, float]:
        return {"gpu_memory_bytes": float(self._nvml.nvmlDeviceGetMemoryInfo(self._gpu).used)}

    def _power(self) -> dict[str, float]:
        return {"gpu_power_w": self._nvml.nvmlDeviceGetPowerUsage(self._gpu) / 1e3}


class _Gpm:
    """GPM's metrics between the last two reads."""

    def __init__(self, nvml: Any, gpu: Any) -> None:
        self._nvml = nvml
        self._gpu = gpu
        self._samples = [nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()]
        nvml.nvmlGpmSampleGet(gpu, self._samples[0])

    def read(self) -> dict[str, float]:
        nvml = self._nvml
        before, after = self._samples
        nvml.nvmlGpmSampleGet(self._gpu, after)
        self._samples.reverse()
        request = nvml.c_nvmlGpmMetricsGet_t()
        request.version = nvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(_GPM)
        request.sample1, request.sample2 = before, after
        for index, (metric, _) in enumerate(_GPM.values()):
            request.metrics[index].metricId = getattr(nvml, metric)
        nvml.nvmlGpmMetricsGet(request)
        return {
            name: request.metrics[index].value * unit
            for index, (name, (_, unit)) in enumerate(_GPM.items())
            if request.metrics[index].nvmlReturn == 0
        }

    def close(self) -> None:
        for sample in self._samples:
            self._nvml.nvmlGpmSampleFree(sample)
