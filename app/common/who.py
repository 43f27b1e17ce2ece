"""The user who sends a command and the reason for it, for stories and reports."""

from __future__ import annotations

import getpass
import socket

from ...base.errors import UsageError

#: The longest reason, in characters.
LONGEST = 500


def user() -> str:
    """Return the user that sends a command, as *ada@lab-3*."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        return socket.gethostname()
    return f"{name}@{socket.gethostname()}"


def check_reason(why: str) -> str:
    """Return the reason ``why``. Raises UsageError if it is too long."""
    if len(why) > LONGEST:
        raise UsageError.refuse("reason", f"{why[:20]}...", f"{LONGEST} characters at most")
    return why
