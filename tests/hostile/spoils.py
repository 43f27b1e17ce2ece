"""Hostile acts on what user code shares with others: streams, modules, limits, files, time."""

from __future__ import annotations

import atexit
import gc
import json
import locale
import os
import re
import resource
import signal
import socket
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from .terms import LIVES

NOISE = 100 << 20

# -- noise -----------------------------------------------------------------------------------------


def shout(_: Path) -> None:
    line = b"E" * 1023 + b"\n"
    for _each in range(NOISE >> 20):
        os.write(2, line * 1024)


def shout_without_lines(_: Path) -> None:
    for _each in range(40):
        sys.stdout.write("x" * (1 << 20))
    sys.stdout.flush()


def binary(_: Path) -> None:
    os.write(1, os.urandom(100_000))
    os.write(2, b"\x1b[2J\x1b]0;owned\x07\xff\xfe\x00" * 100)


# -- state of the process --------------------------------------------------------------------------


def many_threads(_: Path) -> None:
    for _each in range(200):
        threading.Thread(target=time.sleep, args=(LIVES,), daemon=True).start()


def endless_thread(_: Path) -> None:
    threading.Thread(target=time.sleep, args=(LIVES,), daemon=False).start()


def hanging_exit(_: Path) -> None:
    atexit.register(time.sleep, LIVES)


def cwd_deleted(_: Path) -> None:
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    Path(folder).rmdir()


def umask(_: Path) -> None:
    os.umask(0)


def other_locale(_: Path) -> None:
    for name in ("de_DE.UTF-8", "C"):
        with suppress(locale.Error):
            locale.setlocale(locale.LC_ALL, name)


def handlers(_: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_IGN)


def block_signals(_: Path) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def own_group(_: Path) -> None:
    with suppress(OSError):
        os.setpgid(0, 0)
    with suppress(OSError):
        os.setsid()


def no_streams(_: Path) -> None:
    sys.stdout = sys.stderr = None  # type: ignore[assignment]


def closed_streams(_: Path) -> None:
    os.close(1)
    os.close(2)


def patch_json(_: Path) -> None:
    json.dumps = json.loads = None  # type: ignore[assignment]


def patch_socket(_: Path) -> None:
    socket.socket = socket.create_connection = None  # type: ignore[assignment,misc]


def patch_time(_: Path) -> None:
    time.monotonic = time.perf_counter = time.time = lambda: -1.0


def patch_threading(_: Path) -> None:
    threading.Thread = threading.Lock = threading.Event = None  # type: ignore[assignment,misc]


def no_modules(_: Path) -> None:
    sys.modules.clear()


def no_environment(_: Path) -> None:
    os.environ.clear()


def delete_module(here: Path) -> None:
    here.unlink(missing_ok=True)


def edit_module(here: Path) -> None:
    with here.open("a") as file:
        file.write("\nraise RuntimeError('edited while it ran')\n")


def litter(_: Path) -> None:
    """Write where this user can write: into logs, locks and next to checkpoints."""
    home = Path(os.environ["PENSTOCK_HOME"])
    for folder in (home, home / "run", home / "logs", home / "checkpoints"):
        with suppress(OSError):
            (folder / "litter").write_bytes(os.urandom(1000))
            (folder / "litter.lock").mkdir()
    for log in (home / "logs").glob("trainer-*.log"):
        log.write_bytes(b"\xff" * 100)


def no_collector(_: Path) -> None:
    gc.disable()
    gc.freeze()
    sys.setswitchinterval(1000)


def tracing(_: Path) -> None:
    def tracer(*_: Any) -> Any:
        raise RuntimeError("a tracer that raises")

    threading.settrace(tracer)
    sys.setprofile(lambda *_: None)


def few_files(_: Path) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4))


def no_new_files(_: Path) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def nested_study(_: Path) -> None:
    import penstock

    penstock.create_study().optimize(nested_study, n_trials=1)


# -- time ------------------------------------------------------------------------------------------


def backtrack(_: Path) -> None:
    """Holds the interpreter's lock in C for hours."""
    re.match(r"(a+)+$", "a" * 60 + "b")


def sleep(_: Path) -> None:
    time.sleep(LIVES)


def spin(_: Path) -> None:
    while True:
        with suppress(BaseException):
            while True:
                pass
