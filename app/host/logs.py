"""The logs of a state folder: open them, and read their end.

The output of a service, a worker or a trainer goes straight to a file that was opened for
appending. No process is in between, so a writer never waits, and outlives any reader. Logs are kept
small while they are written (``log_keeper``).
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import IO

from ...tasks.process.output import MARK
from ..common.plain import plain

#: The beginning of the line that says how much was cut.
CUT = "[penstock: about "
#: The line of a traceback that names the exception.
_EXCEPTION = re.compile(r"[\w.]+(Error|Warning|Exception|Interrupt|Exit)(: |$)")

#: The beginning of a traceback.
_TRACEBACK = "Traceback (most recent call last):"


def open_log(path: Path) -> IO[bytes]:
    """Open ``path`` for appending. A new file is readable only by its owner."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    how = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    return os.fdopen(os.open(path, how, 0o600), "ab", buffering=0)


def tail(path: Path, lines: int = 12) -> str:
    """Return the last lines of a log, for messages, without trials' marks; empty without a log."""
    try:
        # Never waits: user code may have put a pipe in its place.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 8192))
            text = file.read(8192).decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(plain(MARK.sub("", line, 1)) for line in text.splitlines()[-lines:])


def last_error(path: Path, since: int = 0) -> str:
    """Return the last line at a log's end that names an exception, or else the last line of all.

    Empty if there is no line, or if nothing follows the first ``since`` bytes.
    """
    with suppress(OSError):
        if path.stat().st_size == since:
            return ""
    lines = [line for line in tail(path, lines=60).splitlines() if line.strip()]
    return next(filter(_EXCEPTION.match, reversed(lines)), "") or (lines[-1] if lines else "")


def uncaught(path: Path, since: int) -> str:
    """Return the exception of the traceback at a log's end; empty if the log ends otherwise.

    Also empty if nothing follows the first ``since`` bytes.
    """
    try:
        if path.stat().st_size == since:
            return ""
    except OSError:
        return ""
    _, heading, traced = tail(path, lines=200).rpartition(_TRACEBACK)
    # Indented lines are the places. In Python's own format nothing follows the exception.
    lines = [line for line in traced.splitlines()[1:] if line.strip() and line[0] != " "]
    return lines[0] if heading and len(lines) == 1 else ""
