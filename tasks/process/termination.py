"""SIGTERM is for the node agent. Where a system sends it to all of a node's processes, too.

SLURM may signal every process of a job, not its first one alone. That is a drain: the agent has
running segments end with their epoch, and then ends what it has started, by other means. So a
trainer that gets the signal goes on. The signal is caught rather than ignored, because a program
that user code starts would inherit that; and a child that it forks can be ended by it as ever.
"""

from __future__ import annotations

import os
import signal
from functools import cache


def leave_to_agent() -> None:
    """Go on when SIGTERM comes. Called in the main thread; a second call changes nothing."""
    signal.signal(signal.SIGTERM, _go_on)
    # A library's system call that is interrupted goes on, too.
    signal.siginterrupt(signal.SIGTERM, False)
    _watch_forks()


def _go_on(signum: int, frame: object) -> None:
    pass


@cache
def _watch_forks() -> None:
    os.register_at_fork(after_in_child=_as_ever)


def _as_ever() -> None:
    if signal.getsignal(signal.SIGTERM) is _go_on:  # not where user code has a handler of its own
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
