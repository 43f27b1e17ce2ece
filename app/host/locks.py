"""Locks of this machine's services: a service lives exactly as long as its lock is held.

Theory of operation. Each service has a file ``<run>/<name>.lock``. The process that starts the
service takes the kernel's lock on the open file, lets the child inherit that file, and closes its
own copy. The lock then belongs to the child: the kernel frees it at the moment the child dies,
however it dies, and nothing that was not cleaned up can keep it held. A process id alone would not
do: ids are reused, and a file that contains one outlives its process.

The file's text is the holder's process id. The child writes the id before it becomes the service,
so the file of a running service never has a wrong id. Signals go through a pidfd, and the lock is
checked once more after the pidfd was opened. So a signal never hits another process that got a dead
service's id.

The lock is an open-file-description lock. Like flock it belongs to the open file and passes to a
child with it. Unlike flock, its holder can be queried without taking the lock. So processes that
check the lock (four times a second, from several processes) never block one that takes it.

A service adopts the lock that it inherited (``hold``), and keeps it from its own children. A
service started by hand takes the lock itself. So does any other process that must be the only one
at its task, such as cutting logs or making a backup. Only folders are locked by flock, because they
support nothing else (``alone_in``).
"""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from ...base.errors import BackendError, UsageError
from .logs import open_log
from .pidfd import Pidfd

log = logging.getLogger(__name__)

#: Seconds within which a new process writes its id.
TAKEOVER_TIMEOUT = 1.0
#: The kernel's PID_MAX_LIMIT: all process ids are below it, so a file with a larger id is damaged.
MAX_PIDS = 1 << 22
FD_VARIABLE = "PENSTOCK_LOCK_FD"
# struct flock, for the whole file.
_FLOCK = "hhqqi0q"

# A shell that writes its own id into the lock's file, then becomes the service with the same id.
_BECOME = 'echo $$ > "$0" && exec "$@"'


# Our own children, kept so that they are reaped when they end (and Python does not complain).
_started: list[subprocess.Popen[bytes]] = []


def spawn_service(
    run: Path,
    name: str,
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    log: Path,
    cwd: Path | None = None,
    stdin: int | None = None,
) -> subprocess.Popen[bytes] | None:
    """Start ``argv`` detached, owning the lock ``name``; return None if the service already runs.

    Output is appended to ``log``. ``stdin`` is a file descriptor, by default nothing.
    """
    _started[:] = [process for process in _started if process.poll() is None]
    with to_pass_on(run, name) as fd:
        if fd is None:
            return None
        with open_log(log) as output:
            process = subprocess.Popen(
                ["/bin/sh", "-c", _BECOME, str(_path(run, name)), *argv],
                stdin=subprocess.DEVNULL if stdin is None else stdin,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env={**env, FD_VARIABLE: str(fd)},
                pass_fds=(fd,),
                start_new_session=True,
            )
    _started.append(process)
    return process


@contextmanager
def to_pass_on(run: Path, name: str) -> Iterator[int | None]:
    """Take the lock ``name`` for a process that the block starts, and yield its descriptor.

    Yields None if the lock is held. The new process inherits the descriptor, and writes its id into
    the file.
    """
    fd = _open(run, name)
    try:
        is_taken = _take(fd)
        if is_taken:
            os.ftruncate(fd, 0)
        yield fd if is_taken else None
    finally:
        os.close(fd)


class Held:
    """A lock that this process holds."""

    def __init__(self, fd: int, path: Path) -> None:
        self._fd = fd
        self._path = path

    def is_current(self) -> bool:
        """Return True if the lock's file is still in its place."""
        try:
            return os.path.samestat(os.fstat(self._fd), self._path.stat())
        except OSError:
            return False


@contextmanager
def hold(run: Path, name: str, *, wait: bool = False) -> Iterator[Held]:
    """Own the lock ``name`` during the block: the inherited one, or one taken now.

    If the lock is held, wait for it, or without ``wait`` raise UsageError naming the holder.
    """
    inherited = _inherited(run, name)
    fd = _open(run, name) if inherited is None else inherited
    try:
        if inherited is None:
            _take_over(fd, run, name, wait=wait)
        yield Held(fd, _path(run, name))
    finally:
        os.close(fd)


def share(run: Path, name: str) -> None:
    """Hold the lock ``name``, shared with other processes, for as long as this process lives."""
    fcntl.fcntl(_open(run, name), fcntl.F_OFD_SETLK, _whole_file(fcntl.F_RDLCK))


def remove(run: Path, name: str) -> None:
    """Remove the file of the lock ``name``, which nobody holds or will take any more."""
    _path(run, name).unlink(missing_ok=True)


@contextmanager
def alone_in(folder: Path, held: Held, ended: Callable[[], bool]) -> Iterator[bool]:
    """Lock ``folder`` itself, and yield True; this holds even if the file of ``held`` was moved.

    A moved file takes its lock along, so a second process may lock another file in its place. Both
    lock the folder as well, and only one of them can. Yields False if this process gave up waiting:
    ``ended()`` became true, or its own file is no longer in place.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        while not _lock_folder(fd):
            if ended() or not held.is_current():
                yield False
                return
            time.sleep(0.05)
        yield True
    finally:
        os.close(fd)


def is_running(run: Path, name: str) -> bool:
    """Return True if a living process holds the lock ``name``."""
    try:
        fd = os.open(_path(run, name), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        lock_state = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _whole_file())
        return bool(struct.unpack(_FLOCK, lock_state)[0] != fcntl.F_UNLCK)
    finally:
        os.close(fd)


def check(run: Path, name: str) -> None:
    """Raise OSError if the file of the lock ``name`` is there and cannot be opened to take it."""
    path = _path(run, name)
    if os.path.lexists(path):
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))


def age(run: Path, name: str) -> float | None:
    """Return the seconds for which the lock ``name`` has been held; None if nobody holds it."""
    if not is_running(run, name):
        return None
    # The file is written only when its lock changes hands.
    return max(0.0, time.time() - _path(run, name).stat().st_mtime)


def pid_of(run: Path, name: str) -> int | None:
    """Return the holder's process id; None if nobody holds the lock."""
    deadline = time.monotonic() + TAKEOVER_TIMEOUT
    while is_running(run, name) and time.monotonic() < deadline:
        try:
            pid = int(_path(run, name).read_text())
        except ValueError:
            pid = 0  # just started: it is about to write its id
        if 0 < pid < MAX_PIDS:
            return pid
        time.sleep(0.001)
    return None


def send_signal(run: Path, name: str, signum: signal.Signals) -> bool:
    """Send ``signum`` to the holder of ``name`` and no other process; return False without one."""
    pid = pid_of(run, name)
    if pid is None:
        return False
    try:
        with Pidfd.of(pid) as process:
            return pid_of(run, name) == pid and process.send(signum)
    except ProcessLookupError:
        return False


def stop(run: Path, name: str, *, grace: float) -> bool:
    """End the holder of ``name``: SIGTERM, then SIGKILL after ``grace`` seconds.

    Returns False if there was no holder. The lock is free afterwards.
    """
    if not is_running(run, name):
        return False
    # If it was just started, it may not have written its id yet.
    while not send_signal(run, name, signal.SIGTERM) and not wait_gone(run, name, 0.01):
        pass
    if not wait_gone(run, name, grace):
        send_signal(run, name, signal.SIGKILL)
        if not wait_gone(run, name, 5.0):
            raise BackendError(f"{name} (process {pid_of(run, name)}) could not be killed")
    return True


def wait_gone(run: Path, name: str, timeout: float) -> bool:
    """Wait at most ``timeout`` seconds until nobody holds ``name``; return True if so."""
    deadline = time.monotonic() + timeout
    while is_running(run, name):
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            return False
        # Not by a pidfd: the holder may not have written its id, or a child may share its lock.
        time.sleep(min(remaining, 0.005))
    return True


def _lock_folder(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        log.debug("this file system does not support locks on folders")
    return True


def _path(run: Path, name: str) -> Path:
    return run / f"{name}.lock"


def _open(run: Path, name: str) -> int:
    run.parent.parent.mkdir(parents=True, exist_ok=True)
    for folder in (run.parent, run):
        folder.mkdir(mode=0o700, exist_ok=True)
    return os.open(_path(run, name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _take_over(fd: int, run: Path, name: str, *, wait: bool) -> None:
    if wait:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLKW, _whole_file())
    elif not _take(fd):
        raise UsageError(f"{name} is running already in {run.parent} (process {pid_of(run, name)})")
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)


def _take(fd: int) -> bool:
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _whole_file())
    except BlockingIOError:
        return False
    return True


def _whole_file(kind: int = fcntl.F_WRLCK) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, 0, 0, 0)


def _inherited(run: Path, name: str) -> int | None:
    """Return the inherited descriptor of this lock, no longer inheritable; None without one."""
    text = os.environ.get(FD_VARIABLE)
    if text is None:
        return None
    try:
        fd = int(text)
        same = os.path.samestat(os.fstat(fd), _path(run, name).stat())
    except (ValueError, OSError):
        return None
    if not same:
        return None
    del os.environ[FD_VARIABLE]
    os.set_inheritable(fd, False)
    return fd
