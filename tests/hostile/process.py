"""Hostile acts on the own process, on its descriptors, and by child processes.

An act records the processes that it leaves behind (``mark``), to tell them from Penstock's.
"""

from __future__ import annotations

import ctypes
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from .terms import IMPOSTOR, LIVES, MARKS, mark

PTRACE_ATTACH = 16

# -- ends of the process ---------------------------------------------------------------------------


def segfault(_: Path) -> None:
    ctypes.string_at(0)


def kill_own_group(_: Path) -> None:
    os.killpg(0, signal.SIGKILL)
    time.sleep(LIVES)


def stop_self(_: Path) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def stop_parent(_: Path) -> None:
    """Stop the process that starts the trainers of the node."""
    os.kill(os.getppid(), signal.SIGSTOP)


def trace_parent(_: Path) -> None:
    """Attach to it as a debugger does, which stops it; where that is forbidden nothing happens."""
    ctypes.CDLL(None, use_errno=True).ptrace(PTRACE_ATTACH, os.getppid(), None, None)


def stop_all(code: Path) -> None:
    """Stop every process of the node that can be seen: all that have its state folder.

    Once: the next attempt of the trial would also stop who has come to continue them.
    """
    stopped = code.with_suffix(".stopped")
    if stopped.exists():
        return
    stopped.touch()
    home = f"PENSTOCK_HOME={os.environ['PENSTOCK_HOME']}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            known = (process / "environ").read_bytes().split(b"\0")
            if home in known and int(process.name) != os.getpid():
                os.kill(int(process.name), signal.SIGSTOP)


def overflow_stack(_: Path) -> None:
    sys.setrecursionlimit(10**9)
    threading.stack_size(1 << 20)
    thread = threading.Thread(target=_down, args=(0,))
    thread.start()
    thread.join()


def _down(n: int) -> int:
    return sorted([n], key=lambda m: _down(m + 1))[0]


def alarm(_: Path) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    time.sleep(1)


# -- descriptors -----------------------------------------------------------------------------------


def close_all(_: Path) -> None:
    os.closerange(3, 4096)


def close_one(_: Path) -> None:
    os.close(random.SystemRandom().choice(_descriptors()))


def cover_all(_: Path) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for fd in _descriptors():
        if fd != null:
            os.dup2(null, fd)


def write_into_all(_: Path) -> None:
    """Write garbage to every socket, the pipe to the worker among them."""
    for fd in _descriptors():
        with suppress(OSError):
            os.write(fd, b'{"op":\xff}\n[[[\n')


def _descriptors() -> list[int]:
    return [fd for fd in (int(path.name) for path in Path("/proc/self/fd").iterdir()) if fd > 2]


# -- children --------------------------------------------------------------------------------------


def fork_without_exit(_: Path) -> float | None:
    """Fork a child that continues as if it were the trial, with values of its own."""
    child = os.fork()
    if not child:
        return IMPOSTOR
    mark(child)
    time.sleep(0.3)
    return None


def _child(*, then: Callable[[], Any] = lambda: None) -> int:
    child = os.fork()
    if child:
        mark(child)
        return child
    then()
    while True:
        time.sleep(LIVES)


def fork_lives(_: Path) -> None:
    _child()


def fork_then_segfault(_: Path) -> None:
    _child()
    segfault(_)


def deaf_child(_: Path) -> None:
    _child(then=lambda: [signal.signal(n, signal.SIG_IGN) for n in (signal.SIGTERM, signal.SIGHUP)])


def stopped_child(_: Path) -> None:
    os.kill(_child(), signal.SIGSTOP)


def child_in_own_session(_: Path) -> None:
    _child(then=os.setsid)


def daemon(_: Path) -> None:
    """Start a daemon: forked twice, in a session of its own, with an empty environment."""
    program = (
        "import os, sys, time\n"
        "if os.fork(): os._exit(0)\n"
        "os.setsid()\n"
        "if os.fork(): os._exit(0)\n"
        "open(sys.argv[1], 'a').write(f'{os.getpid()}\\n')\n"
        f"time.sleep({LIVES})\n"
    )
    command = [sys.executable, "-S", "-c", program, os.environ[MARKS]]
    subprocess.run(command, env={}, check=True)


def program_lives(_: Path) -> None:
    mark(subprocess.Popen(["sleep", str(LIVES)], start_new_session=True).pid)


_kept: list[Any] = []


def pool_left(_: Path) -> None:
    pool = ProcessPoolExecutor(2)
    _kept.append(pool)
    for pid in pool.map(_pid, range(2)):
        mark(pid)


def pool_then_segfault(_: Path) -> None:
    pool_left(_)
    segfault(_)


def _pid(_: int) -> int:
    time.sleep(0.05)
    return os.getpid()


def many_children(_: Path) -> None:
    for _each in range(20):
        _child()
