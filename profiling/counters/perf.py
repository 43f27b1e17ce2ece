"""Counts of the kernel's and, if available, hardware events on every thread of this process.

The events of ``CORE`` and ``KERNEL`` count all the time; the pairs of ``PAIRS`` take turns. A group
is opened on each thread that exists at that time, and the threads that such a thread starts later
are counted with it. The events of a group are in the CPU's registers together or not at all, so
ratios are taken within a group. Only cache misses per 1000 instructions use two groups.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from .perf_events import CORE, KERNEL, PAIRS, PerfEvent
from .perf_syscall import Kernel, attributes, decode, explain_error
from .source import Readings
from .windows import Count

#: Seconds of a pair's turn, a little less than the time between two samples.
ROTATION_SECONDS = 0.9

Threads = Callable[[], Iterable[int]]


def own_threads() -> list[int]:
    """Return the kernel's ids of this process's threads; the caller's comes first."""
    own = threading.get_native_id()
    threads = (int(path.name) for path in Path("/proc/self/task").iterdir())
    return [own, *(thread for thread in threads if thread != own)]


class Group:
    """Events that are counted together on the same threads, from ``since`` on."""

    def __init__(
        self, events: Sequence[PerfEvent], threads: Sequence[int], since: float, kernel: Kernel
    ) -> None:
        """Open the events. Threads that have ended are left out.

        Raises ``OSError`` for events that cannot be opened.
        """
        self._since = since
        self._kernel = kernel
        self._files: dict[str, list[int]] = {event.name: [] for event in events}
        try:
            for thread in threads:
                with suppress(ProcessLookupError):
                    self._open_on(thread, events)
        except OSError:
            self.close()
            raise

    def _open_on(self, thread: int, events: Sequence[PerfEvent]) -> None:
        leader = -1
        for event in events:
            attr = attributes(event.kind, event.config, kernel=event.kernel, is_leader=leader < 0)
            file = self._kernel.open(attr, thread, leader)
            self._files[event.name].append(file)
            leader = file if leader < 0 else leader
        self._kernel.enable(leader)

    def read(self) -> dict[str, Count]:
        """Return the count of each event, summed over the threads."""
        counts = {}
        for name, files in self._files.items():
            values = zip(*(decode(self._kernel.read(file)) for file in files), strict=True)
            value, enabled, running = map(sum, values)
            counts[name] = Count(value, enabled, running, self._since)
        return counts

    def close(self) -> None:
        for files in self._files.values():
            for file in files:
                self._kernel.close(file)
            files.clear()


class PerfSource:
    """A source of the performance events that can be opened on this machine."""

    name = "kernel and CPU"

    def __init__(
        self, now: float, kernel: Kernel | None = None, threads: Threads = own_threads
    ) -> None:
        self._kernel = kernel or Kernel()
        self._threads = threads
        self.missing: dict[str, str] = {}
        always_on = (*CORE, *([event] for event in KERNEL))
        self._always_on = [self._start(self._available(group), now) for group in always_on]
        pairs = [self._available(pair) for pair in PAIRS]
        self._pairs = [pair for pair in pairs if pair]
        self._rotation = 0
        self._rotated_at = now
        self._rotating = self._start(self._pairs[0], now) if self._pairs else None

    @property
    def names(self) -> tuple[str, ...]:
        every = (event.name for group in (*CORE, *PAIRS, KERNEL) for event in group)
        return tuple(name for name in every if name not in self.missing)

    def _available(self, events: Sequence[PerfEvent]) -> list[PerfEvent]:
        """Return the events that this thread may open, tried one by one."""
        available = []
        for event in events:
            attr = attributes(event.kind, event.config, kernel=event.kernel, is_leader=True)
            try:
                self._kernel.close(self._kernel.open(attr, threading.get_native_id(), -1))
            except OSError as error:
                self.missing[event.name] = explain_error(error)
            else:
                available.append(event)
        return available

    def _start(self, events: Sequence[PerfEvent], now: float) -> Group | None:
        if not events:
            return None
        try:
            return Group(events, list(self._threads()), now, self._kernel)
        except OSError as error:
            self.missing |= {event.name: explain_error(error) for event in events}
            return None

    def read(self, now: float) -> Readings:
        counts: dict[str, Count] = {}
        for group in (*self._always_on, self._rotating):
            if group is not None:
                with suppress(OSError):  # absent from this sample: the window has fewer data
                    counts |= group.read()
        if len(self._pairs) > 1 and now - self._rotated_at >= ROTATION_SECONDS:
            self._rotate(now)
        return Readings(counts)

    def _rotate(self, now: float) -> None:
        if self._rotating is not None:
            self._rotating.close()
        self._rotated_at = now
        self._rotation = (self._rotation + 1) % len(self._pairs)
        self._rotating = self._start(self._pairs[self._rotation], now)

    def close(self) -> None:
        for group in (*self._always_on, self._rotating):
            if group is not None:
                group.close()
        self._always_on, self._rotating, self._pairs = [], None, []
