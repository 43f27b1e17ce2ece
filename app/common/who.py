"""The user who sends a command, as stories and reports name them."""

from __future__ import annotations

import getpass
import socket


def user() -> str:
    """Return who sends a command, as *ada@lab-3*."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        return socket.gethostname()
    return f"{name}@{socket.gethostname()}"
