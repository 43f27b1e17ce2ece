"""Counters of this process: the kernel's accounting, its throttling, and the machine's pressure.

CPU time, faults and switches are those of all threads, including ended ones (getrusage(2)). Bytes
are from ``/proc/self/io``, which containers may hide. Throttling is that of the control group
(version 2). Pressure is the whole machine's, as stall times in microseconds
(Documentation/accounting/psi.rst).
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from .source import Readings, failure_reason
from .windows import Count

PROC = Path("/proc")
GROUPS = Path("/sys/fs/cgroup")
_PAGE = os.sysconf("SC_PAGE_SIZE")

#: Errors that reading a file of an unexpected form raises.
_NO_SUCH_LINE = (KeyError, ValueError, IndexError)

_Reader = Callable[[], dict[str, int]]


class ProcessSource:
    """A source of this process's counters, which the kernel shows under ``proc`` and ``groups``."""

    name = "process"

    def __init__(self, proc: Path = PROC, groups: Path = GROUPS) -> None:
        self._io = proc / "self" / "io"
        self._memory = proc / "self" / "statm"
        self._pressure = proc / "pressure"
        self.missing: dict[str, str] = {}
        self._readers: list[_Reader] = [_usage]
        self._add_reader(("read_bytes", "written_bytes"), self._io, self._read_io)
        for kind in ("cpu", "io", "memory"):
            file = self._pressure / kind
            self._add_reader((f"{kind}_pressure",), file, _pressure_reader(file, kind))
        self._throttling = _control_group(proc, groups) / "cpu.stat"
        self._add_reader(("throttled",), self._throttling, self._read_throttling)
        self._gauges: tuple[str, ...] = ("resident_bytes",)
        try:
            self._resident()
        except OSError as error:
            self.missing["resident_bytes"] = failure_reason(self._memory, error)
            self._gauges = ()
        self.names: tuple[str, ...] = (
            *(n for reader in self._readers for n in reader()),
            *self._gauges,
        )

    def _add_reader(self, names: tuple[str, ...], file: Path, reader: _Reader) -> None:
        try:
            reader()
        except OSError as error:
            self.missing |= dict.fromkeys(names, failure_reason(file, error))
        except _NO_SUCH_LINE:
            self.missing |= dict.fromkeys(names, f"{file} has no such line")
        else:
            self._readers.append(reader)

    def read(self, now: float) -> Readings:
        counts: dict[str, Count] = {}
        for reader in self._readers:
            with suppress(OSError, *_NO_SUCH_LINE):  # absent from this sample
                counts |= {name: Count(value) for name, value in reader().items()}
        gauges: dict[str, float] = {}
        with suppress(OSError, *_NO_SUCH_LINE):
            gauges = {name: float(self._resident()) for name in self._gauges}
        return Readings(counts, gauges)

    def close(self) -> None:
        """Do nothing: no file is kept open."""

    def _resident(self) -> int:
        return int(self._memory.read_text().split()[1]) * _PAGE

    def _read_io(self) -> dict[str, int]:
        fields = _fields(self._io)
        return {"read_bytes": fields["rchar"], "written_bytes": fields["wchar"]}

    def _read_throttling(self) -> dict[str, int]:
        return {"throttled": _fields(self._throttling)["throttled_usec"]}


def _usage() -> dict[str, int]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "user_time": round(usage.ru_utime * 1e6),
        "system_time": round(usage.ru_stime * 1e6),
        "minor_faults": usage.ru_minflt,
        "major_faults": usage.ru_majflt,
        "voluntary_switches": usage.ru_nvcsw,
        "involuntary_switches": usage.ru_nivcsw,
    }


def _pressure_reader(file: Path, kind: str) -> _Reader:
    def read_pressure() -> dict[str, int]:
        some = file.read_text().splitlines()[0]
        return {f"{kind}_pressure": int(some.rpartition("total=")[2])}

    return read_pressure


def _fields(file: Path) -> dict[str, int]:
    """Return numbers by name, from lines of a name and a number, with or without a colon."""
    lines = (line.replace(":", " ").split() for line in file.read_text().splitlines())
    return {name: int(value) for name, value in lines}


def _control_group(proc: Path, groups: Path) -> Path:
    """Return the folder of this process's control group.

    If the process has none of version 2, the folder does not exist.
    """
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return groups / "none"
    path = next((line[3:] for line in lines if line.startswith("0::")), "/none")
    return groups / path.lstrip("/")
