"""The events that are counted: PipeTune's list, without aliases and events of no use to Penstock.

PipeTune (Middleware 2020) counts 58 events. The following ones are left out. Seven are other events
under a second name (``cpu/X/``). A dozen count hardware transactions, which nothing here uses. Some
are clocks. On Intel the loads and stores of the data TLB are those of the first-level cache under
another name, and branch-loads are branches. Events of the uncore and of model registers count the
whole machine, not this process.

``CORE`` is counted all the time: six events. The pairs take turns next to it, a second each, so at
most eight events are counted at once. CPUs have four general registers, and often two for cycles
and instructions alone; the kernel's watchdog may hold one. A group that does not fit into the rest
never runs. So groups are small, and the kernel lets them take turns in the registers.
"""

from __future__ import annotations

from dataclasses import dataclass

from .perf_syscall import CACHE, HARDWARE, SOFTWARE

_L1D, _L1I, _LLC, _DTLB, _ITLB, _NODE = 0, 1, 2, 3, 4, 6
_LOAD, _STORE = 0, 1
_MISSED = 1 << 16


@dataclass(frozen=True, slots=True)
class PerfEvent:
    """An event of the kernel's ABI (linux/perf_event.h).

    ``kernel`` is True if the event is counted inside the kernel, too.
    """

    name: str
    kind: int
    config: int
    kernel: bool = False


def _cache(name: str, cache: int, access: int, missed: int = 0) -> PerfEvent:
    return PerfEvent(name, CACHE, cache | access << 8 | missed)


CORE = (
    (
        PerfEvent("cycles", HARDWARE, 0),
        PerfEvent("instructions", HARDWARE, 1),
        PerfEvent("branches", HARDWARE, 4),
        PerfEvent("branch_misses", HARDWARE, 5),
    ),
    (PerfEvent("cache_references", HARDWARE, 2), PerfEvent("cache_misses", HARDWARE, 3)),
)
PAIRS = (
    (_cache("l1d_loads", _L1D, _LOAD), _cache("l1d_load_misses", _L1D, _LOAD, _MISSED)),
    (_cache("llc_loads", _LLC, _LOAD), _cache("llc_load_misses", _LLC, _LOAD, _MISSED)),
    (
        _cache("dtlb_load_misses", _DTLB, _LOAD, _MISSED),
        _cache("dtlb_store_misses", _DTLB, _STORE, _MISSED),
    ),
    (_cache("llc_stores", _LLC, _STORE), _cache("llc_store_misses", _LLC, _STORE, _MISSED)),
    (
        _cache("l1i_load_misses", _L1I, _LOAD, _MISSED),
        _cache("itlb_load_misses", _ITLB, _LOAD, _MISSED),
    ),
    (_cache("node_loads", _NODE, _LOAD), _cache("node_load_misses", _NODE, _LOAD, _MISSED)),
    (_cache("l1d_stores", _L1D, _STORE), PerfEvent("bus_cycles", HARDWARE, 6)),
    (_cache("node_stores", _NODE, _STORE), _cache("node_store_misses", _NODE, _STORE, _MISSED)),
)
#: The kernel's own events, which need no CPU register. Switches and migrations occur in the kernel.
KERNEL = (
    PerfEvent("task_clock", SOFTWARE, 1),
    PerfEvent("page_faults", SOFTWARE, 2),
    PerfEvent("context_switches", SOFTWARE, 3, kernel=True),
    PerfEvent("migrations", SOFTWARE, 4, kernel=True),
)
