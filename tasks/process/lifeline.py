"""End a trainer, with all processes that it started, when its worker is gone."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

#: Environment variable of a process that runs users' code (mainly a trainer), and of all processes
#: that it starts. Its value names the parent: ``<process id>:<its start time>:<number>``.
MARK_VARIABLE = "PENSTOCK_TRAINER"
#: The exit status of a trainer if the user's code has closed the trainer's socket.
PIPE_CLOSED = 113


def end_all() -> NoReturn:
    """End this process at once, with its process group if it leads one."""
    if os.getpgid(0) == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


@contextmanager
def ending_with_us() -> Iterator[None]:
    """End this process at once if the block raises: the user's threads could keep it alive."""
    try:
        yield
    except BaseException:
        traceback.print_exc()
        os._exit(1)
