"""Values of a window: rates a second and ratios, by the names that the rest of Penstock uses.

``RATES`` and ``RATIOS`` list all of them with their units; docs/profiling.md explains them. A value
that was not measured in a window is absent.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ...base.errors import UsageError
from .windows import CounterWindow, Fault


@dataclass(frozen=True, slots=True)
class Rate:
    """A counter's growth per second, times ``factor``.

    ``max_rate`` is more than any machine's growth per second and busy core. A higher value means
    that the reading is corrupt.
    """

    name: str
    counter: str
    unit: str
    max_rate: float
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Ratio:
    """``factor`` times one counter (``numerator``) divided by another one of its group
    (``denominator``).
    """

    name: str
    numerator: str
    denominator: str
    unit: str
    factor: float = 1.0


#: Most events per second of one core: 10 per cycle at 10 GHz, more than any core reaches.
_EVENTS = 1e11
#: Most events per second that each need a call of the kernel.
_CALLS = 1e8
#: Most seconds that one clock may count in a second of another: they are not read at once.
_SECONDS = 1.5
_BYTES = 1e12


def _event(counter: str) -> Rate:
    return Rate(f"{counter}_s", counter, "1/s", _EVENTS)


def _call(counter: str) -> Rate:
    return Rate(f"{counter}_s", counter, "1/s", _CALLS)


def _share(name: str, counter: str, ticks: float) -> Rate:
    return Rate(name, counter, "s/s", _SECONDS * ticks, 1 / ticks)


RATES = (
    _event("cycles"),
    _event("instructions"),
    _event("cache_references"),
    _event("cache_misses"),
    _event("branches"),
    _event("branch_misses"),
    _event("l1d_loads"),
    _event("l1d_load_misses"),
    _event("l1d_stores"),
    _event("l1i_load_misses"),
    _event("llc_loads"),
    _event("llc_load_misses"),
    _event("llc_stores"),
    _event("llc_store_misses"),
    _event("dtlb_load_misses"),
    _event("dtlb_store_misses"),
    _event("itlb_load_misses"),
    _event("node_loads"),
    _event("node_load_misses"),
    _event("node_stores"),
    _event("node_store_misses"),
    _event("bus_cycles"),
    _share("task_clock_share", "task_clock", 1e9),
    _call("page_faults"),
    _call("context_switches"),
    _call("migrations"),
    _share("user_share", "user_time", 1e6),
    _share("system_share", "system_time", 1e6),
    _call("minor_faults"),
    _call("major_faults"),
    _call("voluntary_switches"),
    _call("involuntary_switches"),
    Rate("read_bytes_s", "read_bytes", "B/s", _BYTES),
    Rate("written_bytes_s", "written_bytes", "B/s", _BYTES),
    _share("throttled_share", "throttled", 1e6),
    _share("cpu_pressure_share", "cpu_pressure", 1e6),
    _share("io_pressure_share", "io_pressure", 1e6),
    _share("memory_pressure_share", "memory_pressure", 1e6),
)
RATIOS = (
    Ratio("instructions_per_cycle", "instructions", "cycles", "1"),
    Ratio("cache_miss_ratio", "cache_misses", "cache_references", "1"),
    Ratio("branch_miss_ratio", "branch_misses", "branches", "1"),
    Ratio("cache_misses_per_1000", "cache_misses", "instructions", "1/1000 instructions", 1e3),
    Ratio("branch_misses_per_1000", "branch_misses", "instructions", "1/1000 instructions", 1e3),
    Ratio("l1d_load_miss_ratio", "l1d_load_misses", "l1d_loads", "1"),
    Ratio("llc_load_miss_ratio", "llc_load_misses", "llc_loads", "1"),
    Ratio("llc_store_miss_ratio", "llc_store_misses", "llc_stores", "1"),
    Ratio("node_load_miss_ratio", "node_load_misses", "node_loads", "1"),
    Ratio("node_store_miss_ratio", "node_store_misses", "node_stores", "1"),
)
#: Gauges: means over the window of values that a source reads directly, with their units.
GAUGES = {
    "resident_bytes": "B",
    "gpu_busy_share": "1",
    "gpu_memory_busy_share": "1",
    "gpu_memory_bytes": "B",
    "gpu_power_w": "W",
    "gpu_sm_share": "1",
    "gpu_occupancy_share": "1",
    "gpu_tensor_share": "1",
    "gpu_fp32_share": "1",
    "gpu_memory_bandwidth_share": "1",
    "gpu_pcie_sent_bytes_s": "B/s",
    "gpu_pcie_received_bytes_s": "B/s",
}
#: Values that the training loop knows, added by ``Reading.with_loop``.
LOOP = {"loader_wait_share": "s/s", "samples_s": "1/s", "cpu_s_per_sample": "s"}
#: Every name that a reading may have, and its unit.
UNITS = {rate.name: rate.unit for rate in RATES} | {r.name: r.unit for r in RATIOS} | GAUGES | LOOP


def max_rates(cores: int) -> dict[str, float]:
    """Return the most that each counter can grow in a second on a machine with ``cores`` cores."""
    return {rate.counter: rate.max_rate * cores for rate in RATES}


@dataclass(frozen=True, slots=True)
class Reading:
    """One window: its length (seconds), its values by name (``UNITS``), and dropped counters.

    ``dropped`` maps a counter to the reason (``windows.Fault``). Its values are absent from
    ``values``.
    """

    seconds: float
    values: dict[str, float]
    dropped: dict[str, Fault] = field(default_factory=dict)

    def with_loop(self, wait_s: float, samples: int) -> Reading:
        """Return this reading with the loop's measurements over the same window.

        ``wait_s`` are the seconds that the loop waited for the loader; ``samples`` is the number of
        examples that it trained on. Raises ``UsageError`` for impossible values.
        """
        if not 0 <= wait_s <= self.seconds:
            raise UsageError.refuse("wait_s", wait_s, f"0 to the window's {self.seconds:.3f} s")
        if samples < 0:
            raise UsageError.refuse("samples", samples, "0 or more")
        if not self.seconds:
            return self
        loop_values = {
            "loader_wait_share": wait_s / self.seconds,
            "samples_s": samples / self.seconds,
        }
        cpu = [self.values.get(name) for name in ("user_share", "system_share")]
        if samples and None not in cpu:
            loop_values["cpu_s_per_sample"] = sum(filter(None, cpu)) * self.seconds / samples
        return replace(self, values=self.values | loop_values)


def reading(window: CounterWindow) -> Reading:
    """Return the values of ``window``."""
    totals = window.totals()
    values = {
        rate.name: rate.factor * total.scaled() / total.seconds
        for rate in RATES
        if (total := totals.get(rate.counter)) is not None and total.seconds > 0
    }
    for ratio in RATIOS:
        numerator, denominator = totals.get(ratio.numerator), totals.get(ratio.denominator)
        if numerator is not None and denominator is not None and denominator.scaled() > 0:
            values[ratio.name] = ratio.factor * numerator.scaled() / denominator.scaled()
    return Reading(window.seconds, values | window.gauges(), window.faults())
