"""Keep a child that user code forks from reporting for its trainer or holding its sockets open.

Theory of operation. ``os.fork`` copies the trainer with everything it has. A child that does not
exit keeps running the user's code and returns into Penstock's: it would report the trial's epochs a
second time, and return a value of its own. While the child lives it also holds the trainer's
sockets, so no process would notice the trainer's death by their closing. Therefore the sockets are
closed in the child at once, and each part of Penstock's code that continues the trainer's work ends
a child that reaches it. A program started with ``subprocess`` inherits no socket and never reaches
this code.
"""

from __future__ import annotations

import os
import socket
import sys
import traceback
from contextlib import suppress
from weakref import WeakSet

#: The exit status of a forked child that reached Penstock's code.
STATUS = 1

_sockets: WeakSet[socket.socket] = WeakSet()
_trainer = 0


def watch() -> None:
    """Mark this process as a trainer. Its forked children are recognised from now on."""
    global _trainer  # noqa: PLW0603 - a process is one trainer at most
    _trainer = os.getpid()
    os.register_at_fork(after_in_child=_close_sockets)


def keep_from_children(sock: socket.socket) -> None:
    """Close ``sock`` in every child that this process forks."""
    _sockets.add(sock)


def end_child(error: BaseException | None = None) -> None:
    """End this process if it is a forked child of a trainer. ``error`` is its exception, if any.

    The child touches nothing of the trainer's: it takes no lock and runs no ``finally`` block.
    """
    if _trainer in {0, os.getpid()}:
        return
    if isinstance(error, SystemExit) and isinstance(error.code, int | None):
        os._exit((error.code or 0) & 0xFF)  # the exit that the child asked for
    raised = ""
    if error is not None:
        with suppress(BaseException):  # its own methods may raise
            raised = "".join(traceback.format_exception(error))
    words = (
        f"{raised}process {os.getpid()}, which the training code forked, ran on into Penstock's"
        f" code and was ended: only the trainer, process {_trainer}, speaks for its trial."
        " Leave a forked child with os._exit(), or start a program with subprocess.\n"
    )
    with suppress(OSError):
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, words.encode(errors="replace"))
    os._exit(STATUS)


def _close_sockets() -> None:
    for sock in list(_sockets):
        # By descriptor only: closing the object could wait for a lock that was held at the fork.
        number = sock.detach()
        if number >= 0:
            with suppress(OSError):
                os.close(number)
