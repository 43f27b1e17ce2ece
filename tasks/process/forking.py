"""Helpers of processes that fork: safety checks, forking, names of processes, and tracing."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

#: prctl's calls, from <linux/prctl.h>.
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_MM, _PR_SET_MM_MAP = 35, 14
_NO_FILE = 0xFFFFFFFF
#: The fields of ``struct prctl_mm_map`` but its last two, each with the number of the field in
#: /proc/self/stat whose value it keeps (counted as in proc(5)), or 0 if ``show`` sets it.
_STAT_FIELDS = {
    "start_code": 26, "end_code": 27, "start_data": 45, "end_data": 46, "start_brk": 47,
    "brk": 0, "start_stack": 28, "arg_start": 0, "arg_end": 0, "env_start": 0, "env_end": 0,
    "auxv": 0,
}  # fmt: skip

_shown: list[mmap.mmap] = []


def unsafe() -> str:
    """Return the reason why this process must not fork; empty if it may."""
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads > 1:
        return f"something that it imported has started threads ({threads} run)"
    for fd in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            opened = str(fd.readlink())
            if opened.startswith("/dev/nvidia"):
                return f"something that it imported has opened {opened}"
    return ""


def fork_twice() -> int:
    """Fork a grandchild whose parent ends at once. Return 0 in it, and its process id here.

    Raises ``OSError`` if the system refuses a process.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # they are None in a program that was started with them closed
            stream.flush()
    read, write = os.pipe()
    between = os.fork()
    if between == 0:
        try:
            pid = os.fork()
        except OSError:
            os._exit(1)
        if pid:
            os.write(write, b"%d" % pid)
            os._exit(0)
        os.close(read)
        os.close(write)
        return 0
    os.close(write)
    try:
        os.waitpid(between, 0)
        if not (pid_text := os.read(read, 32)):
            raise OSError("the system refuses another process")
        return int(pid_text)
    finally:
        os.close(read)


def adopt_orphans(on: bool = True) -> None:
    """Have the kernel give this process its orphaned descendants as children; not ``on``: stop."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0)


@contextmanager
def adopting() -> Iterator[None]:
    """Adopt orphaned descendants of this process in the block, such as processes forked twice."""
    adopt_orphans()
    try:
        yield
    finally:
        adopt_orphans(False)


def end_with_parent() -> None:
    """Have the kernel send this process SIGTERM when its parent ends, even after an exec.

    A parent that has ended before the call is not noticed.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def forbid_tracing() -> None:
    """Keep processes of the same user from tracing this one, and those that it forks.

    Otherwise a trial could stop processes that serve other trials, as their tracer. A process with
    CAP_SYS_PTRACE may always trace. A new program may be traced again. Some files in ``/proc`` of a
    process that may not be traced, such as ``environ``, belong to root, and it leaves no core dump.
    """
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def stat_field(n: int) -> int:
    """Return field ``n`` of /proc/self/stat, counted as in proc(5); ``n`` is 3 or more."""
    return int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[n - 3])


def show(arguments: Sequence[str], variables: Mapping[str, str]) -> bool:
    """Make ``/proc`` show this process with these arguments and variables.

    Return True if the kernel can do that (CONFIG_CHECKPOINT_RESTORE). It needs no privilege.
    """
    command_line = b"".join(os.fsencode(each) + b"\0" for each in arguments)
    has = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in variables.items())
    memory = mmap.mmap(
        -1, len(command_line) + len(has), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    )
    memory.write(command_line + has)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None)
    libc.sbrk.restype = ctypes.c_void_p
    values = {name: stat_field(field) for name, field in _STAT_FIELDS.items() if field}
    values["brk"] = libc.sbrk(0)
    values["arg_start"] = start
    values["arg_end"] = values["env_start"] = start + len(command_line)
    values["env_end"] = start + len(command_line) + len(has)
    layout = _Layout(**values, exe_fd=_NO_FILE)
    status = libc.prctl(_PR_SET_MM, _PR_SET_MM_MAP, ctypes.byref(layout), ctypes.sizeof(layout), 0)
    if status == 0:
        _shown[:] = [memory]  # /proc reads it as long as this process lives
    return bool(status == 0)


class _Layout(ctypes.Structure):
    """``struct prctl_mm_map``."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in _STAT_FIELDS),
        ("auxv_size", ctypes.c_uint32),
        ("exe_fd", ctypes.c_uint32),
    )
