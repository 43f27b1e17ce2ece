"""Windows over real counters of this process, and over sources that misbehave."""

from __future__ import annotations

import errno
import threading
import time

import pytest
from patience import PATIENCE
from penstock import UsageError
from penstock.profiling.counters.perf_syscall import Kernel
from penstock.profiling.counters.rates import LOOP, UNITS, Reading
from penstock.profiling.counters.source import Readings
from penstock.profiling.counters.windows import Count
from penstock.profiling.similarity.history import HistoryEntry
from penstock.profiling.similarity.profile import RATIOS, profile_of
from penstock.profiling.similarity.service import Similarity
from penstock.tasks.system import profiler as module
from penstock.tasks.system.profiler import Profiler


@pytest.fixture
def profiler():
    profiler = Profiler.start()
    yield profiler
    profiler.stop()


class Scripted:
    """Reads one value after another, a second apart."""

    name, missing = "scripted", {}
    names = ("user_time",)

    def __init__(self, *values):
        self.values = list(values)

    def read(self, now):
        return Readings({"user_time": Count(self.values.pop(0))})

    def close(self):
        self.values.clear()


def seconds():
    now = 0.0
    while True:
        yield now
        now += 1.0


def busy(until):
    while time.thread_time() < until:
        pass


def test_where_the_kernel_refuses_perf_events_a_workload_is_still_known(monkeypatch):
    """As in most containers: process, ``/proc`` and operator counts are enough for the service."""

    def refuse(kernel, attr, thread, leader):
        raise OSError(errno.EPERM, "not permitted")

    monkeypatch.setattr(Kernel, "open", refuse)
    profiler = Profiler.start()

    def window(calls):
        profiler.mark()
        busy(time.thread_time() + 0.1)
        reading = profiler.take().with_loop(0.0, 640)
        return profile_of(reading.values, calls, 10 / reading.seconds)

    convolutions = {"convolution": 30, "elementwise": 60, "matmul": 0, "reduction": 10}
    products = {"convolution": 0, "elementwise": 0, "matmul": 90, "reduction": 10}
    first, again, other = map(window, (convolutions, convolutions, products))
    profiler.stop()
    names = {name for name, _ in first}
    assert {"system_of_cpu_share", "minor_faults_cpu_s", "samples_cpu_s", "calls_cpu_s"} <= names
    assert not [name for name in names if name.endswith(RATIOS)]
    entry = HistoryEntry("w", "m", "s", first, (("threads", 1),), 2.0, None, 3, 0.0)
    service = Similarity.fit([entry])
    found, unlike = service.ask(again), service.ask(other)
    assert found.neighbours and unlike.neighbours  # enough features are shared to compare
    assert found.distance < unlike.distance


def test_a_window_says_what_the_process_did_in_it(profiler):
    busy(time.thread_time() + 0.2)
    began, before = time.monotonic(), time.process_time()
    profiler.mark()
    marked, spent = time.monotonic(), time.process_time()
    busy(time.thread_time() + 0.3)
    ended, used = time.monotonic(), time.process_time()
    taken = profiler.take()
    assert ended - marked <= taken.seconds <= time.monotonic() - began
    cpu = taken.values["user_share"] + taken.values["system_share"]
    # On a busy machine other threads of the process may run between two of these lines.
    assert 0.9 * (used - spent) <= cpu * taken.seconds <= 1.1 * (time.process_time() - before)
    assert taken.values.keys() <= UNITS.keys()
    assert taken.dropped == {}


def test_its_thread_samples_by_itself_until_it_is_stopped(monkeypatch):
    read = threading.Semaphore(0)

    class Noted(Scripted):
        def read(self, now):
            read.release()
            return Readings({})

    monkeypatch.setattr(module, "PERIOD", 0.01)
    monkeypatch.setattr(module, "open_sources", lambda now: (Noted(),))
    profiler = Profiler.start()
    for _ in range(4):
        assert read.acquire(timeout=PATIENCE), "its start, and three times its thread"
    profiler.stop()
    while read.acquire(blocking=False):
        pass
    assert not read.acquire(timeout=0.1)


def test_a_window_starts_at_its_mark():
    profiler = Profiler([Scripted(0, 10**6, 1_500_000, 1_750_000)], clock=seconds().__next__)
    profiler.mark()
    assert profiler.take().values == {"user_share": 0.5}
    assert profiler.take().values == {"user_share": 0.375}, "it goes on: 0.75 s of 2"


def test_what_runs_backwards_is_dropped_from_its_window_and_counted():
    profiler = Profiler([Scripted(5, 3, 4, 5)], clock=seconds().__next__, cores=1)
    profiler.sample()
    taken = profiler.take()
    assert (taken.values, taken.dropped) == ({}, {"user_time": "backwards"})
    profiler.mark()
    assert profiler.dropped == {"backwards": 1}


def test_the_loop_adds_what_it_knows():
    taken = Reading(2.0, {"user_share": 0.5, "system_share": 0.25}).with_loop(0.5, 100)
    assert taken.values == {
        "user_share": 0.5,
        "system_share": 0.25,
        "loader_wait_share": 0.25,
        "samples_s": 50.0,
        "cpu_s_per_sample": 0.015,
    }
    assert taken.values.keys() - {"user_share", "system_share"} == LOOP.keys()
    assert "cpu_s_per_sample" not in Reading(1.0, {}).with_loop(0.0, 5).values
    with pytest.raises(UsageError, match="wait_s"):
        taken.with_loop(3.0, 1)
    with pytest.raises(UsageError, match="samples"):
        taken.with_loop(0.0, -1)
