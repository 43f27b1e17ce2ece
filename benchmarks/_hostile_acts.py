"""What hostile user code does, act by act, and how its trial must end then.

An act runs inside a trainer, in the middle of the user's code. It gives ``KEEP``, and the code goes
on as if nothing had been, or a value that is reported or returned in place of the right one. What
processes it leaves behind it writes down (``mark``), so that they can be told from Penstock's own.

How a trial ends: ``fails`` (with ``words`` in kind or message), ``completes`` (with the right
values), or ``either``: what is ruined may be the very thing that training needs, but then the
failure's words must say so.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import locale
import os
import random
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KEEP = object()
EPOCHS = 3
#: What is reported by who may not speak for the trial.
IMPOSTOR = 9999.0
#: Seconds for which what should be ended would live.
LIVES = 600
NOISE = 100 << 20
#: The environment's word for where processes are written down that acts start.
MARKS = "HOSTILE_MARKS"
#: Acts do their deed in trainers only; the client, too, imports the module.
IN_TRAINER = "PENSTOCK_TRAINER"


def value(x: float, epoch: int) -> float:
    """The right value of an epoch, exact in binary for the x that are used."""
    return x * 100 + epoch


def mark(pid: int) -> None:
    """Write down a process that an act has started."""
    with Path(os.environ[MARKS]).open("a") as file:
        file.write(f"{pid}\n")


def perform(act: str, here: str) -> Any:
    """Do ``act``, in the code whose module is the file ``here``."""
    return KEEP if act == "nothing" else ACTS[act].do(Path(here))


# -- ends of the process ---------------------------------------------------------------------------


def segfault(_: Path) -> Any:
    return ctypes.string_at(0)


def kill_own_group(_: Path) -> Any:
    os.killpg(0, signal.SIGKILL)
    time.sleep(LIVES)
    return KEEP


def stop_self(_: Path) -> Any:
    os.kill(os.getpid(), signal.SIGSTOP)
    return KEEP


def overflow_stack(_: Path) -> Any:
    sys.setrecursionlimit(10**9)
    threading.stack_size(1 << 20)
    thread = threading.Thread(target=_down, args=(0,))
    thread.start()
    thread.join()
    return KEEP


def _down(n: int) -> int:
    return sorted([n], key=lambda m: _down(m + 1))[0]


def alarm(_: Path) -> Any:
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    time.sleep(1)
    return KEEP


# -- descriptors -----------------------------------------------------------------------------------


def close_all(_: Path) -> Any:
    os.closerange(3, 4096)
    return KEEP


def close_one(_: Path) -> Any:
    os.close(random.SystemRandom().choice(_descriptors()))
    return KEEP


def cover_all(_: Path) -> Any:
    null = os.open(os.devnull, os.O_RDWR)
    for fd in _descriptors():
        if fd != null:
            os.dup2(null, fd)
    return KEEP


def write_into_all(_: Path) -> Any:
    """What is no message, on every socket there is: the pipe to the worker among them."""
    for fd in _descriptors():
        with suppress(OSError):
            os.write(fd, b'{"op":\xff}\n[[[\n')
    return KEEP


def _descriptors() -> list[int]:
    return [fd for fd in (int(path.name) for path in Path("/proc/self/fd").iterdir()) if fd > 2]


# -- children --------------------------------------------------------------------------------------


def fork_without_exit(_: Path) -> Any:
    """The child goes on as if it were the trial, with values of its own."""
    child = os.fork()
    if child:
        mark(child)
        time.sleep(0.3)
        return KEEP
    return IMPOSTOR


def _child(*, then: Callable[[], Any] = lambda: None) -> int:
    child = os.fork()
    if child:
        mark(child)
        return child
    then()
    while True:
        time.sleep(LIVES)


def fork_lives(_: Path) -> Any:
    _child()
    return KEEP


def fork_then_segfault(_: Path) -> Any:
    _child()
    return segfault(_)


def deaf_child(_: Path) -> Any:
    _child(then=lambda: [signal.signal(n, signal.SIG_IGN) for n in (signal.SIGTERM, signal.SIGHUP)])
    return KEEP


def stopped_child(_: Path) -> Any:
    os.kill(_child(), signal.SIGSTOP)
    return KEEP


def child_in_own_session(_: Path) -> Any:
    _child(then=os.setsid)
    return KEEP


def daemon(_: Path) -> Any:
    """Twice forked, a session of its own, nothing of the environment."""
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
    return KEEP


def program_lives(_: Path) -> Any:
    mark(subprocess.Popen(["sleep", str(LIVES)], start_new_session=True).pid)
    return KEEP


_kept: list[Any] = []


def pool_left(_: Path) -> Any:
    pool = ProcessPoolExecutor(2)
    _kept.append(pool)
    for pid in pool.map(_pid, range(2)):
        mark(pid)
    return KEEP


def pool_then_segfault(_: Path) -> Any:
    pool_left(_)
    return segfault(_)


def _pid(_: int) -> int:
    time.sleep(0.05)
    return os.getpid()


def many_children(_: Path) -> Any:
    for _each in range(20):
        _child()
    return KEEP


# -- exceptions ------------------------------------------------------------------------------------


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class Exits(Exception):
    def __str__(self) -> str:
        os._exit(0)
        return ""


def _raise(error: BaseException) -> Callable[[Path], Any]:
    def act(_: Path) -> Any:
        raise error

    return act


def raise_own_cause(_: Path) -> Any:
    first, second = ValueError("the cat sat on itself"), KeyError("cat")
    first.__cause__, second.__cause__ = second, first
    raise first


def raise_long_chain(_: Path) -> Any:
    error: Exception = ValueError("the first cat")
    for _each in range(5000):
        link = ValueError("a cat in a chain of cats")
        link.__cause__ = error
        error = link
    raise error


def recursion(_: Path) -> Any:
    return recursion(_)


def out_of_memory(_: Path) -> Any:
    resource.setrlimit(resource.RLIMIT_AS, (3 << 30, resource.RLIM_INFINITY))
    return bytearray(64 << 30)


# -- values ----------------------------------------------------------------------------------------


class NoNumber:
    def __float__(self) -> float:
        raise RuntimeError("the cat ate the number")

    def __repr__(self) -> str:
        raise RuntimeError("the cat ate the words")


def deep_list(_: Path) -> Any:
    found: list[Any] = []
    for _each in range(100_000):
        found = [found]
    return found


def _give(found: Any) -> Callable[[Path], Any]:
    return lambda _: found


# -- noise -----------------------------------------------------------------------------------------


def shout(_: Path) -> Any:
    line = b"E" * 1023 + b"\n"
    for _each in range(NOISE >> 20):
        os.write(2, line * 1024)
    return KEEP


def shout_without_lines(_: Path) -> Any:
    for _each in range(40):
        sys.stdout.write("x" * (1 << 20))
    sys.stdout.flush()
    return KEEP


def binary(_: Path) -> Any:
    os.write(1, os.urandom(100_000))
    os.write(2, b"\x1b[2J\x1b]0;owned\x07\xff\xfe\x00" * 100)
    return KEEP


# -- state of the process --------------------------------------------------------------------------


def many_threads(_: Path) -> Any:
    for _each in range(200):
        threading.Thread(target=time.sleep, args=(LIVES,), daemon=True).start()
    return KEEP


def endless_thread(_: Path) -> Any:
    threading.Thread(target=time.sleep, args=(LIVES,), daemon=False).start()
    return KEEP


def hanging_exit(_: Path) -> Any:
    atexit.register(time.sleep, LIVES)
    return KEEP


def cwd_deleted(_: Path) -> Any:
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    Path(folder).rmdir()
    return KEEP


def umask(_: Path) -> Any:
    os.umask(0)
    return KEEP


def other_locale(_: Path) -> Any:
    for name in ("de_DE.UTF-8", "C"):
        with suppress(locale.Error):
            locale.setlocale(locale.LC_ALL, name)
    return KEEP


def handlers(_: Path) -> Any:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_IGN)
    return KEEP


def block_signals(_: Path) -> Any:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    return KEEP


def own_group(_: Path) -> Any:
    with suppress(OSError):
        os.setpgid(0, 0)
    with suppress(OSError):
        os.setsid()
    return KEEP


def no_streams(_: Path) -> Any:
    sys.stdout = sys.stderr = None  # type: ignore[assignment]
    return KEEP


def closed_streams(_: Path) -> Any:
    os.close(1)
    os.close(2)
    return KEEP


def patch_json(_: Path) -> Any:
    json.dumps = json.loads = None  # type: ignore[assignment]
    return KEEP


def patch_socket(_: Path) -> Any:
    socket.socket = socket.create_connection = None  # type: ignore[assignment,misc]
    return KEEP


def patch_time(_: Path) -> Any:
    time.monotonic = time.perf_counter = time.time = lambda: -1.0
    return KEEP


def patch_threading(_: Path) -> Any:
    threading.Thread = threading.Lock = threading.Event = None  # type: ignore[assignment,misc]
    return KEEP


def no_modules(_: Path) -> Any:
    sys.modules.clear()
    return KEEP


def no_environment(_: Path) -> Any:
    os.environ.clear()
    return KEEP


def delete_module(here: Path) -> Any:
    here.unlink(missing_ok=True)
    return KEEP


def edit_module(here: Path) -> Any:
    with here.open("a") as file:
        file.write("\nraise RuntimeError('edited while it ran')\n")
    return KEEP


def litter(_: Path) -> Any:
    """Write where this user can write: into logs, locks and beside checkpoints."""
    home = Path(os.environ["PENSTOCK_HOME"])
    for folder in (home, home / "run", home / "logs", home / "checkpoints"):
        with suppress(OSError):
            (folder / "litter").write_bytes(os.urandom(1000))
            (folder / "litter.lock").mkdir()
    for log in (home / "logs").glob("trainer-*.log"):
        log.write_bytes(b"\xff" * 100)
    return KEEP


def no_collector(_: Path) -> Any:
    gc.disable()
    gc.freeze()
    sys.setswitchinterval(1000)
    return KEEP


def tracing(_: Path) -> Any:
    def tracer(*_: Any) -> Any:
        raise RuntimeError("a tracer that raises")

    threading.settrace(tracer)
    sys.setprofile(lambda *_: None)
    return KEEP


def few_files(_: Path) -> Any:
    resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4))
    return KEEP


def no_new_files(_: Path) -> Any:
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    return KEEP


def nested_study(_: Path) -> Any:
    import penstock

    penstock.create_study().optimize(nested_study, n_trials=1)
    return KEEP


# -- time ------------------------------------------------------------------------------------------


def backtrack(_: Path) -> Any:
    """Holds the interpreter's lock in C for hours."""
    return re.match(r"(a+)+$", "a" * 60 + "b")


def sleep(_: Path) -> Any:
    time.sleep(LIVES)
    return KEEP


def spin(_: Path) -> Any:
    while True:
        with suppress(BaseException):
            while True:
                pass


@dataclass(frozen=True)
class Act:
    """``hangs``: it ends by the study's ``epoch_timeout``, which importing code has not."""

    do: Callable[[Path], Any]
    ends: str
    words: str = "."
    hangs: bool = False
    is_value: bool = False


def _dies(do: Callable[[Path], Any], words: str) -> Act:
    return Act(do, "fails", words)


def _raises(error: BaseException, words: str) -> Act:
    return Act(_raise(error), "fails", words)


def _value(found: Any, words: str) -> Act:
    return Act(_give(found), "fails", words, is_value=True)


def _goes_on(do: Callable[[Path], Any]) -> Act:
    return Act(do, "completes")


def _may(do: Callable[[Path], Any], words: str) -> Act:
    return Act(do, "either", words)


_EXITED = r"_exit|ended itself|without (a word|saying)|left|exit (code|status) [1-9]"
_PIPE = r"pipe|socket|connection|closed|descriptor|\bfd\b|no message|signal|exit|OSError|Errno"

ACTS: dict[str, Act] = {
    "segfault": _dies(segfault, "SIGSEGV"),
    "abort": _dies(lambda _: os.abort(), "SIGABRT"),
    "kills itself": _dies(lambda _: os.kill(os.getpid(), signal.SIGKILL), "SIGKILL|killed"),
    "kills its group": _dies(kill_own_group, "SIGKILL|killed"),
    "terminates itself": _dies(lambda _: os.kill(os.getpid(), signal.SIGTERM), "SIGTERM"),
    "alarm": _dies(alarm, "SIGALRM"),
    "_exit(0)": _dies(lambda _: os._exit(0), r"_exit|ended itself|left|without (a word|saying)"),
    "_exit(3)": _dies(lambda _: os._exit(3), _EXITED),
    "sys.exit(0)": _raises(SystemExit(0), r"sys\.exit"),
    "sys.exit(text)": _raises(SystemExit("the cat left"), r"sys\.exit"),
    "stops itself": Act(stop_self, "fails", "timeout|stopped|SIGSTOP", hangs=True),
    "overflows the stack": _may(overflow_stack, "SIGSEGV|RecursionError|SIGABRT"),
    "closes all descriptors": _may(close_all, _PIPE),
    "closes one descriptor": _may(close_one, _PIPE),
    "covers all descriptors": Act(cover_all, "either", _PIPE + "|timeout", hangs=True),
    "writes into all descriptors": _may(write_into_all, _PIPE),
    "fork without exit": _goes_on(fork_without_exit),
    "fork lives": _goes_on(fork_lives),
    "fork, then segfault": _dies(fork_then_segfault, "SIGSEGV"),
    "child deaf to SIGTERM": _goes_on(deaf_child),
    "stopped child": _goes_on(stopped_child),
    "child in a session": _goes_on(child_in_own_session),
    "daemon": _goes_on(daemon),
    "program lives": _goes_on(program_lives),
    "pool left": _goes_on(pool_left),
    "pool, then segfault": _dies(pool_then_segfault, "SIGSEGV"),
    "twenty children": _goes_on(many_children),
    "__str__ raises": _raises(Unspeakable(), "Unspeakable"),
    "__str__ exits": _raises(Exits(), "Exits|_exit|ended itself|without"),
    "surrogates": _raises(ValueError("the \ud800 cat"), "ValueError.*cat"),
    "escapes": _raises(ValueError("\x1b[2J\x1b]0;owned\x07 cat"), "ValueError.*cat"),
    "huge message": _raises(ValueError("cat " * (10 << 20)), "ValueError: cat"),
    "BaseException": _raises(BaseException("cat"), "BaseException.*cat"),
    "KeyboardInterrupt": _raises(KeyboardInterrupt(), "KeyboardInterrupt"),
    "GeneratorExit": _raises(GeneratorExit("cat"), "GeneratorExit"),
    "StopIteration": _raises(StopIteration("cat"), "StopIteration|RuntimeError"),
    "group": _raises(BaseExceptionGroup("cats", [ValueError("cat")]), "cats|ValueError"),
    "its own cause": Act(raise_own_cause, "fails", "cat sat on itself"),
    "long chain": Act(raise_long_chain, "fails", "chain of cats"),
    "recursion": Act(recursion, "fails", "RecursionError"),
    "out of memory": Act(out_of_memory, "fails", "MemoryError|memory"),
    "NaN": _value(float("nan"), "nan"),
    "infinity": _value(float("-inf"), "inf"),
    "text": _value("much", "number|much"),
    "None": _value(None, "number|None"),
    "huge integer": _value(10**400, "number|large|big|inf|integer"),
    "list": _value([[1.0]], "number|list"),
    "deep list": Act(deep_list, "fails", "number|list|Recursion", is_value=True),
    "object": _value(object(), "number|object"),
    "no number": _value(NoNumber(), "number|cat|NoNumber"),
    "bytes": _value(b"\xff\xfe", "number|bytes"),
    "100 MB of noise": _goes_on(shout),
    "40 MB in a line": _goes_on(shout_without_lines),
    "binary": _goes_on(binary),
    "200 threads": _goes_on(many_threads),
    "endless thread": _goes_on(endless_thread),
    "exit that hangs": _goes_on(hanging_exit),
    "working folder deleted": _goes_on(cwd_deleted),
    "umask 0": _goes_on(umask),
    "locale": _goes_on(other_locale),
    "handlers": _may(handlers, "main thread"),
    "signals blocked": _goes_on(block_signals),
    "session of its own": _goes_on(own_group),
    "no streams": _goes_on(no_streams),
    "closed streams": _goes_on(closed_streams),
    "json patched": _may(
        patch_json, "json|callable|NoneType|timeout|ended|exit (code|status) [1-9]"
    ),
    "socket patched": _may(
        patch_socket, "socket|callable|NoneType|isinstance|ended|exit (code|status) [1-9]"
    ),
    "time patched": _may(patch_time, "time|clock|seconds|negative"),
    "threading patched": _may(
        patch_threading, "thread|callable|NoneType|ended|exit (code|status) [1-9]"
    ),
    "no modules": _may(no_modules, "modules|Error|import|ended|exit (code|status) [1-9]"),
    "no environment": _may(
        no_environment, "KeyError|environment|Error|ended|exit (code|status) [1-9]"
    ),
    "module deleted": _goes_on(delete_module),
    "module edited": _may(edit_module, "edited|chang|differ"),
    "litter": _goes_on(litter),
    "no collector": _goes_on(no_collector),
    "tracing": _may(tracing, "tracer that raises|Error"),
    "few files": _may(few_files, "too many open files|EMFILE|Errno 24|ImportError|ModuleNotFound"),
    "no file may grow": _may(no_new_files, "SIGXFSZ|File too large|Errno 27"),
    "study in a study": Act(nested_study, "fails", "trainer"),
    "holds the lock in C": Act(backtrack, "fails", "timeout", hangs=True),
    "sleeps": Act(sleep, "fails", "timeout", hangs=True),
    "spins, deaf": Act(spin, "fails", "timeout", hangs=True),
}
