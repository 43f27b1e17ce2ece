"""Every act of hostile user code, and how its trial must end then.

An act runs inside a trainer, in the middle of the user's code. It returns nothing, and the code
continues as if nothing had happened, or a value that replaces the right one.

How a trial ends: ``fails`` (with ``words`` in kind or message), ``completes`` (with the right
values), or ``either``: what is ruined may be the very thing that training needs, but then the
failure's words must say so.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import process, spoils

#: In place of a value: the right one.
KEEP = object()


def perform(act: str, here: str) -> Any:
    """Do ``act``, in the code whose module is the file ``here``; what to report, or ``KEEP``."""
    if act == "nothing":
        return KEEP
    found = ACTS[act].do(Path(here))
    return KEEP if found is None and not ACTS[act].is_value else found


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


def out_of_memory(_: Path) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (3 << 30, resource.RLIM_INFINITY))
    bytearray(64 << 30)


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


@dataclass(frozen=True)
class Act:
    """An act. With ``hangs`` it ends only by ``epoch_timeout``, which imports do not have."""

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
    "segfault": _dies(process.segfault, "SIGSEGV"),
    "abort": _dies(lambda _: os.abort(), "SIGABRT"),
    "kills itself": _dies(lambda _: os.kill(os.getpid(), signal.SIGKILL), "SIGKILL|killed"),
    "kills its group": _dies(process.kill_own_group, "SIGKILL|killed"),
    # To a trainer SIGTERM is a drain, which is its node agent's.
    "terminates itself": _goes_on(lambda _: os.kill(os.getpid(), signal.SIGTERM)),
    "alarm": _dies(process.alarm, "SIGALRM"),
    "_exit(0)": _dies(lambda _: os._exit(0), r"_exit|ended itself|left|without (a word|saying)"),
    "_exit(3)": _dies(lambda _: os._exit(3), _EXITED),
    "sys.exit(0)": _raises(SystemExit(0), r"sys\.exit"),
    "sys.exit(text)": _raises(SystemExit("the cat left"), r"sys\.exit"),
    "stops its parent": _goes_on(process.stop_parent),
    "traces its parent": _goes_on(process.trace_parent),
    "stops all it can see": _may(process.stop_all, "lost|stopped|timeout"),
    "stops itself": Act(process.stop_self, "fails", "timeout|stopped|SIGSTOP", hangs=True),
    "overflows the stack": _may(process.overflow_stack, "SIGSEGV|RecursionError|SIGABRT"),
    "closes all descriptors": _may(process.close_all, _PIPE),
    "closes one descriptor": _may(process.close_one, _PIPE),
    "covers all descriptors": Act(process.cover_all, "either", _PIPE + "|timeout", hangs=True),
    "writes into all descriptors": _may(process.write_into_all, _PIPE),
    "fork without exit": _goes_on(process.fork_without_exit),
    "fork lives": _goes_on(process.fork_lives),
    "fork, then segfault": _dies(process.fork_then_segfault, "SIGSEGV"),
    "child deaf to SIGTERM": _goes_on(process.deaf_child),
    "stopped child": _goes_on(process.stopped_child),
    "child in a session": _goes_on(process.child_in_own_session),
    "daemon": _goes_on(process.daemon),
    "program lives": _goes_on(process.program_lives),
    "pool left": _goes_on(process.pool_left),
    "pool, then segfault": _dies(process.pool_then_segfault, "SIGSEGV"),
    "twenty children": _goes_on(process.many_children),
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
    "100 MB of noise": _goes_on(spoils.shout),
    "40 MB in a line": _goes_on(spoils.shout_without_lines),
    "binary": _goes_on(spoils.binary),
    "200 threads": _goes_on(spoils.many_threads),
    "endless thread": _goes_on(spoils.endless_thread),
    "exit that hangs": _goes_on(spoils.hanging_exit),
    "working folder deleted": _goes_on(spoils.cwd_deleted),
    "umask 0": _goes_on(spoils.umask),
    "locale": _goes_on(spoils.other_locale),
    "handlers": _may(spoils.handlers, "main thread"),
    "signals blocked": _goes_on(spoils.block_signals),
    "session of its own": _goes_on(spoils.own_group),
    "no streams": _goes_on(spoils.no_streams),
    "closed streams": _goes_on(spoils.closed_streams),
    "json patched": _may(
        spoils.patch_json, "json|callable|NoneType|timeout|ended|exit (code|status) [1-9]"
    ),
    "socket patched": _may(
        spoils.patch_socket, "socket|callable|NoneType|isinstance|ended|exit (code|status) [1-9]"
    ),
    "time patched": _may(spoils.patch_time, "time|clock|seconds|negative"),
    "threading patched": _may(
        spoils.patch_threading, "thread|callable|NoneType|ended|exit (code|status) [1-9]"
    ),
    "no modules": _may(spoils.no_modules, "modules|Error|import|ended|exit (code|status) [1-9]"),
    "no environment": _may(
        spoils.no_environment, "KeyError|environment|Error|ended|exit (code|status) [1-9]"
    ),
    "module deleted": _goes_on(spoils.delete_module),
    "module edited": _may(spoils.edit_module, "edited|chang|differ"),
    "litter": _goes_on(spoils.litter),
    "no collector": _goes_on(spoils.no_collector),
    "tracing": _may(spoils.tracing, "tracer that raises|Error"),
    "few files": _may(
        spoils.few_files, "too many open files|EMFILE|Errno 24|ImportError|ModuleNotFound"
    ),
    "no file may grow": _may(spoils.no_new_files, "SIGXFSZ|File too large|Errno 27"),
    "study in a study": Act(spoils.nested_study, "fails", "trainer"),
    "holds the lock in C": Act(spoils.backtrack, "fails", "timeout", hangs=True),
    "sleeps": Act(spoils.sleep, "fails", "timeout", hangs=True),
    "spins, deaf": Act(spoils.spin, "fails", "timeout", hangs=True),
}
