"""The kernel's events: real ones of the software kind, recorded ones of the hardware's."""

from __future__ import annotations

import errno
import os
import resource
import struct
import threading
import time

import pytest
from penstock.profiling.counters.perf import PerfSource
from penstock.profiling.counters.perf_events import CORE, KERNEL, PAIRS
from penstock.profiling.counters.perf_syscall import Kernel, attributes, decode, explain_error
from penstock.profiling.counters.rates import RATES, RATIOS, max_rates, reading
from penstock.profiling.counters.windows import CounterWindow, Sample


class Refusing(Kernel):
    def __init__(self, code):
        self.code = code

    def open(self, attr, thread, leader):
        raise OSError(self.code, os.strerror(self.code))


class Recorded(Kernel):
    """A CPU with a PMU: each event counts ``hertz`` a second, and runs ``share`` of the time."""

    def __init__(self, share=1.0, missing=()):
        self.now = 0.0
        self.share = share
        self.missing = set(missing)
        self.files = {}
        self.most_at_once = 0
        self._rotate = 100

    def open(self, attr, thread, leader):
        kind, _, config = struct.unpack("IIQ", attr[:16])
        if (kind, config) in self.missing:
            raise OSError(errno.ENOENT, "")
        if thread == 666:
            raise ProcessLookupError(errno.ESRCH, "")
        self._rotate += 1
        self.files[self._rotate] = (kind, config, self.now)
        return self._rotate

    def enable(self, leader):
        hardware = sum(kind != 1 for kind, _, _ in self.files.values())
        self.most_at_once = max(self.most_at_once, hardware)

    def read(self, file):
        _, config, since = self.files[file]
        enabled = int((self.now - since) * 1e9)
        running = int(enabled * self.share)
        return struct.pack("QQQ", int(running / 1e9 * (1000 + config % 1000)), enabled, running)

    def close(self, file):
        del self.files[file]


def rows(events):
    return {(event.kind, event.config) for event in events}


def test_the_attributes_are_laid_out_as_the_kernel_wants_them():
    attr = attributes(0, 1, kernel=False, is_leader=True)
    kind, size, config, _, _, form, flags = struct.unpack("IIQQQQQ", attr[:48])
    assert (kind, size, config, form) == (0, 112, 1, 3)
    assert len(attr) == 112
    assert flags == (1 << 0) | (1 << 1) | (1 << 5) | (1 << 6) | (1 << 35)
    with pytest.raises(OSError, match="Input/output"):
        decode(b"")


def test_software_events_are_those_of_this_process_and_its_new_threads():
    source = PerfSource(time.monotonic())
    if "task_clock" in source.missing:
        pytest.skip(f"task_clock: {source.missing['task_clock']}")
    usage, before = resource.getrusage(resource.RUSAGE_SELF), source.read(time.monotonic()).counts
    began = time.process_time()
    thread = threading.Thread(target=lambda: [bytes(1 << 22) for _ in range(200)])
    thread.start()
    thread.join()
    spent = time.process_time() - began
    after, later = source.read(time.monotonic()).counts, resource.getrusage(resource.RUSAGE_SELF)
    source.close()
    clock = (after["task_clock"].value - before["task_clock"].value) / 1e9
    assert clock == pytest.approx(spent, rel=0.3, abs=0.005)
    faults = after["page_faults"].value - before["page_faults"].value
    assert 0 < faults <= later.ru_minflt + later.ru_majflt - usage.ru_minflt - usage.ru_majflt


@pytest.mark.parametrize("code", [errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EINVAL])
def test_what_the_kernel_refuses_is_absent_with_its_reason(code):
    source = PerfSource(0.0, Refusing(code))
    assert source.names == ()
    assert source.read(1.0).counts == {}
    reasons = set(source.missing.values())
    assert len(source.missing) == len(rows(KERNEL)) + sum(map(len, (*CORE, *PAIRS)))
    assert reasons == {explain_error(OSError(code, ""))}
    assert errno.errorcode[code] in reasons.pop()
    source.close()


def test_pairs_take_turns_beside_the_core_and_are_scaled():
    kernel = Recorded(share=0.5)
    source = PerfSource(0.0, kernel, lambda: [1])
    window = CounterWindow(Sample(0.0, source.read(0.0).counts), max_rates(1))
    for second in range(1, len(PAIRS) + 1):
        kernel.now = float(second)
        window.add(Sample(kernel.now, source.read(kernel.now).counts))
    found = reading(window)
    assert kernel.most_at_once <= 8
    assert found.dropped == {}
    assert found.values["cycles_s"] == pytest.approx(1000)
    assert found.values["instructions_s"] == pytest.approx(1001)
    for event in (event for pair in PAIRS for event in pair):
        assert found.values[f"{event.name}_s"] == pytest.approx(1000 + event.config % 1000, abs=2)
    source.close()
    assert kernel.files == {}


def test_every_thread_is_followed_and_one_that_has_ended_is_left_out():
    kernel = Recorded()
    source = PerfSource(0.0, kernel, lambda: [1, 666, 2])
    before = source.read(0.0).counts["cycles"].value
    kernel.now = 0.5
    assert source.read(0.5).counts["cycles"].value - before == 1000, "two threads, half a second"


def test_an_event_that_this_cpu_lacks_costs_nothing_but_itself():
    node = PAIRS[5]
    kernel = Recorded(missing=rows(node) | {(0, 3)})
    source = PerfSource(0.0, kernel, lambda: [1])
    assert source.missing.keys() == {"node_loads", "node_load_misses", "cache_misses"}
    assert "cycles" in source.read(0.0).counts


def test_an_event_that_fails_is_absent_from_then_on():
    kernel = Recorded()
    source = PerfSource(0.0, kernel, lambda: [1])
    kernel.read = lambda file: b""
    assert source.read(0.5).counts == {}


def test_the_table_of_values_has_every_event():
    every = {event.name for group in (*CORE, KERNEL, *PAIRS) for event in group}
    assert every <= {rate.counter for rate in RATES}
    groups = [{event.name for event in group} for group in (*CORE, *PAIRS)]
    for ratio in RATIOS:
        together = any({ratio.numerator, ratio.denominator} <= group for group in groups)
        assert together or ratio.name == "cache_misses_per_1000"
