"""``perf_event_open`` through ctypes: the kernel's counters of a thread and of those it starts.

The layout is that of ``struct perf_event_attr`` (linux/perf_event.h, version 5: 112 bytes). The
bits and the meaning of a read are those of the manual page perf_event_open(2).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import struct

HARDWARE, SOFTWARE, CACHE = 0, 1, 3

_SYSCALL = {"x86_64": 298, "aarch64": 241}
_SIZE = 112
_ENABLED_AND_RUNNING = 1 | 2
_DISABLED, _INHERIT, _EXCLUDE_KERNEL, _EXCLUDE_HV = 1 << 0, 1 << 1, 1 << 5, 1 << 6
_INHERIT_THREAD = 1 << 35
_CLOSE_ON_EXEC = 8
_ENABLE = 0x2400
_FOR_THE_GROUP = 1
_READ = struct.Struct("QQQ")


def attributes(kind: int, config: int, *, kernel: bool, is_leader: bool) -> bytes:
    """Return the attributes of one event (a packed ``struct perf_event_attr``).

    With ``kernel``, events inside the kernel count, too. Threads that the counted thread starts are
    counted with it; processes are not (Linux 5.13; older kernels refuse with EINVAL). The leader of
    a group (``is_leader``) is opened disabled, and the group's other events follow its state.
    """
    flags = _INHERIT | _INHERIT_THREAD
    if is_leader:
        flags |= _DISABLED
    if not kernel:
        flags |= _EXCLUDE_KERNEL | _EXCLUDE_HV
    head = struct.pack("IIQQQQQ", kind, _SIZE, config, 0, 0, _ENABLED_AND_RUNNING, flags)
    return head.ljust(_SIZE, b"\0")


class Kernel:
    """The system calls on performance events, in a class that tests replace."""

    def open(self, attr: bytes, thread: int, leader: int) -> int:
        """Open an event of ``thread`` on any CPU, in the group of ``leader`` (-1: a new group).

        Returns the event's file descriptor. Raises ``OSError``: EPERM, EACCES, ENOSYS, ENOENT,
        EINVAL ...
        """
        number = _SYSCALL.get(platform.machine())
        if number is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        libc = ctypes.CDLL(None, use_errno=True)
        file = libc.syscall(
            ctypes.c_long(number),
            ctypes.c_char_p(attr),
            ctypes.c_int(thread),
            ctypes.c_int(-1),
            ctypes.c_int(leader),
            ctypes.c_ulong(_CLOSE_ON_EXEC),
        )
        if file < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return int(file)

    def enable(self, leader: int) -> None:
        """Start a group's counters."""
        fcntl.ioctl(leader, _ENABLE, _FOR_THE_GROUP)

    def read(self, file: int) -> bytes:
        """Return the 24 bytes of an event's reading; fewer if the event has failed."""
        return os.read(file, _READ.size)

    def close(self, file: int) -> None:
        os.close(file)


def decode(read: bytes) -> tuple[int, int, int]:
    """Return an event's (value, enabled, running) since it was enabled; the times are nanoseconds.

    Raises ``OSError`` (EIO) for the reading of a failed event.
    """
    if len(read) != _READ.size:
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    value, enabled, running = _READ.unpack(read)
    return value, enabled, running


def explain_error(error: OSError) -> str:
    """Return an error's meaning in words, followed by its name."""
    name = errno.errorcode.get(error.errno or 0, str(error.errno))
    return f"{_MEANING.get(error.errno or 0, os.strerror(error.errno or 0))} ({name})"


_NOT_PERMITTED = (
    "not permitted: the container's seccomp profile, or kernel.perf_event_paranoid, forbids it"
)
_NO_EVENT = "this CPU has no such event, or its virtual machine hides the performance counters"
_MEANING = {
    errno.EPERM: _NOT_PERMITTED,
    errno.EACCES: _NOT_PERMITTED,
    errno.ENOSYS: "there is no perf_event_open in this kernel or container",
    errno.ENOENT: _NO_EVENT,
    errno.ENODEV: _NO_EVENT,
    errno.EOPNOTSUPP: _NO_EVENT,
    errno.EINVAL: "the kernel refuses it; counting the threads of one process asks for Linux 5.13",
    errno.EMFILE: "this process has too many open files",
}
