"""Control groups: the memory, processor time and cores that they leave this process.

Theory of operation. A container's limits are those of its control group and of every group around
it; the narrowest one counts. ``/proc/self/cgroup`` names the process's group in each hierarchy.
``/proc/self/mountinfo`` says where a hierarchy is mounted and which group is the mount's root (in a
container often the container's own). Version 2 has one hierarchy, version 1 one for each
controller; a hybrid host has both. A group that cannot be seen from here, or a file that is missing
or holds no number, is taken as no limit, and never as a limit of zero.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

#: Version 1 writes a limit of at least this many bytes to say that there is none.
UNLIMITED = 1 << 60


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """The limits of the control groups; None where there is none.

    ``memory`` is in bytes, ``cpus`` in processors' worth of time. ``cores`` are the cores that the
    process may run on; it is empty if no group says so.
    """

    memory: int | None = None
    cpus: float | None = None
    cores: frozenset[int] = frozenset()


def read_limits(root: Path) -> GroupLimits:
    """Return this process's limits. ``root`` is the folder of ``proc`` and mounts (for tests)."""
    memory, cpus, cores = list[int](), list[float](), list[frozenset[int]]()
    for folder in _groups(root, "memory"):
        memory += _bytes(folder)
    for folder in _groups(root, "cpu"):
        cpus += _cpus(folder)
    for folder in _groups(root, "cpuset"):
        cores += _cores(folder)
    return GroupLimits(
        min(memory, default=None),
        min(cpus, default=None),
        frozenset.intersection(*cores) if cores else frozenset(),
    )


def usable_memory(root: Path = Path("/")) -> int | None:
    """Return the bytes that the processes of this control group may use; None if not known."""
    try:
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None
    limit = read_limits(root).memory
    return physical if limit is None else min(physical, limit)


def available_memory(root: Path = Path("/")) -> int | None:
    """Return the bytes that can be taken now without evicting other memory; None if not known.

    The result is the least over the machine and the process's control groups. File pages that were
    not used for long count as free, since the kernel gives them up.
    """
    free = []
    if (machine := _fields(root / "proc/meminfo", ":").get("MemAvailable")) is not None:
        free.append(1024 * machine)
    limits = [(folder, min(_bytes(folder), default=None)) for folder in _groups(root, "memory")]
    free += [max(0, limit - _taken(folder)) for folder, limit in limits if limit is not None]
    return min(free, default=None)


def usable_cores(cores: Iterable[int], root: Path = Path("/")) -> tuple[int, ...]:
    """Return the ``cores`` that this process may run on, limited by its share of processor time.

    At least one is returned, however small the share is.
    """
    limits, every_core = read_limits(root), sorted(cores)
    # A control group's set that contains none of ``cores`` has another numbering, and is ignored.
    allowed = [core for core in every_core if core in limits.cores] or every_core
    return tuple(allowed if limits.cpus is None else allowed[: max(1, int(limits.cpus))])


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Yield the visible folders of the process's group and of the groups around it."""
    lines = _lines(root / "proc/self/cgroup")
    mounts = [line.split() for line in _lines(root / "proc/self/mountinfo")]
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        unified = number == "0" and not controllers
        if not unified and controller not in controllers.split(","):
            continue
        for fields in mounts:
            mount = _mount(fields, "cgroup2" if unified else "cgroup")
            if mount is None or not (unified or controller in mount[2]):
                continue
            top = root / mount[1].lstrip("/")
            yield from _ancestors(top, group, mount[0])


def _mount(fields: list[str], kind: str) -> tuple[str, str, list[str]] | None:
    """Return root group, mount point and options of a line of ``mountinfo``.

    The result is None if the line is of another kind.
    """
    try:
        after = fields.index("-")
        if fields[after + 1] != kind:
            return None
        return fields[3], fields[4].replace("\\040", " "), fields[after + 3].split(",")
    except (ValueError, IndexError):
        return None


def _ancestors(top: Path, group: str, mounted: str) -> Iterator[Path]:
    """Yield the folders from the group's own up to ``top``, the folder of group ``mounted``.

    A group that is not below ``mounted``, as seen from a container, has its limits in ``top``.
    """
    inside = PurePosixPath(group)
    parts = inside.relative_to(mounted).parts if inside.is_relative_to(mounted) else ()
    if ".." in parts:
        parts = ()
    for length in range(len(parts), -1, -1):
        folder = top.joinpath(*parts[:length])
        if folder.is_dir():
            yield folder


def _bytes(folder: Path) -> Iterator[int]:
    for name in ("memory.max", "memory.high", "memory.limit_in_bytes"):
        for line in _lines(folder / name):
            yield from _limit(line)
    for line in _lines(folder / "memory.stat"):  # version 1: covers groups out of sight
        name, _, value = line.partition(" ")
        if name == "hierarchical_memory_limit":
            yield from _limit(value)


def _taken(folder: Path) -> int:
    """Return the bytes of the group's processes, without file pages that were unused for long."""
    for name, old in (
        ("memory.current", "inactive_file"),
        ("memory.usage_in_bytes", "total_inactive_file"),
    ):
        for line in _lines(folder / name):
            if line.strip().isdecimal():
                return int(line) - _fields(folder / "memory.stat", " ").get(old, 0)
    return 0


def _fields(file: Path, mark: str) -> dict[str, int]:
    """Return the first number of each line of the form ``name<mark> number``, by name."""
    numbers = {}
    for line in _lines(file):
        name, _, rest = line.partition(mark)
        value = rest.split()
        if value and value[0].isdecimal():
            numbers[name] = int(value[0])
    return numbers


def _limit(text: str) -> Iterator[int]:
    if text.strip().isdecimal() and 0 < int(text) < UNLIMITED:
        yield int(text)


def _cpus(folder: Path) -> Iterator[float]:
    fields = " ".join(_lines(folder / "cpu.max")).split()
    if not fields:
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        fields = [line.strip() for name in names for line in _lines(folder / name)]
    # "max", and -1 in version 1, are no limit.
    if len(fields) == 2 and all(word.isdecimal() and int(word) > 0 for word in fields):
        yield int(fields[0]) / int(fields[1])


def _cores(folder: Path) -> Iterator[frozenset[int]]:
    for name in ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"):
        for line in _lines(folder / name):
            if cores := _numbers(line):
                yield cores


def _numbers(text: str) -> frozenset[int]:
    """Return the numbers in a list such as ``0-2,5``; empty if ``text`` is no such list."""
    numbers = set[int]()
    for part in text.strip().split(","):
        first, dash, last = part.partition("-")
        bounds = (first, last if dash else first)
        if not all(end.isdecimal() for end in bounds):
            return frozenset()
        numbers.update(range(int(bounds[0]), int(bounds[1]) + 1))
    return frozenset(numbers)


def _lines(file: Path) -> list[str]:
    """Return the lines of a file; empty if it cannot be read."""
    try:
        return file.read_text(errors="replace").splitlines()
    except OSError:
        return []
