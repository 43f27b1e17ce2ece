"""Leave SIGTERM to the node agent, even if a system sends it to all of a node's processes.

SLURM may signal every process of a job instead of its first one. That is a drain: the agent makes
running segments end with their epoch, and then ends the processes that it has started by other
means. So a trainer that gets the signal continues. The signal is caught rather than ignored,
because a program that user code starts would inherit an ignored signal; and the signal can still
end a child that user code forks.
"""

from __future__ import annotations

import os
import signal
from functools import cache


def leave_to_agent() -> None:
    """Let this process continue when SIGTERM arrives. Call this in the main thread.

    A second call changes nothing.
    """
    signal.signal(signal.SIGTERM, _go_on)
    # A library's system call that the signal interrupts is restarted.
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
