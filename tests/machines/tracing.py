"""Processes that trace others, as a debugger does, or a trial by mistake."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from machines.system import missing

#: From <linux/prctl.h> and <linux/capability.h>.
_PR_CAPBSET_DROP, _CAP_SYS_PTRACE = 24, 19
#: Attaches to a process, prints 0 or the error's number, and holds the process until the end of its
#: standard input. Where it is killed, SIGSTOP remains with the process, as with any debugger.
TRACER = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
PTRACE_ATTACH, PTRACE_DETACH, WALL = 16, 17, 0x40000000
pid = int(sys.argv[1])
failed = libc.ptrace(PTRACE_ATTACH, pid, None, None)
print(ctypes.get_errno() if failed else 0, flush=True)
if not failed:
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT | WALL)
    print("holds", flush=True)
    sys.stdin.read()
    libc.ptrace(PTRACE_DETACH, pid, None, None)
"""


@contextmanager
def traced(pid: int, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """Have a process trace the thread ``pid`` in the block; its environment has ``variables``."""
    tracer = _start(pid, env={**os.environ, **variables})
    try:
        if tracer.stdout.readline().strip() != "0":
            missing("this system lets no process trace another one of its user")
        assert tracer.stdout.readline() == "holds\n"
        yield tracer
    finally:
        tracer.communicate("")


def error_of_tracing(pid: int) -> int:
    """The error with which a process of this user cannot trace ``pid``; 0 if it can."""
    tracer = _start(pid, env=None)
    return int(tracer.communicate("")[0].split()[0])


def without_privilege() -> None:
    """Have the programs that this process starts trace only what they may without a privilege."""
    ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, _CAP_SYS_PTRACE, 0, 0, 0)


def _start(pid: int, env: dict[str, str] | None) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", TRACER, str(pid)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=env, **pipes)
