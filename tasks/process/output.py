"""Mark a trainer's output with the time and with the trial that printed it.

Theory of operation. A trainer shares its log with the other trainers of its lane, and it runs
different trials in turn. So each line that goes through ``sys.stdout`` or ``sys.stderr`` while a
trial is at work begins with the time and the trial's id. The trial is a property of the process,
not of a thread: one trial at a time is at work in a trainer, and threads and forked children of its
code print as the trial. Output that bypasses both streams, from C or from a program that the code
starts, has no mark.

    2026-11-27T07:19:32.123Z digits-3f2a9c1e-0007| loss 0.1
"""

from __future__ import annotations

import io
import os
import re
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

#: A line's mark: the time, and the trial's id.
MARK = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) (\S+)\| ")

_trial = ""
_streams: list[TextIO] = []


def mark_output() -> None:
    """Mark what is printed in this process from now on."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        stream.flush()
        text_stream = io.TextIOWrapper(
            _Marked(stream.fileno(), stream.name),
            encoding=stream.encoding,
            errors=stream.errors,
            line_buffering=True,
        )
        setattr(sys, name, text_stream)
        _streams.append(text_stream)


def printing_for(trial: str) -> str:
    """Mark output with this trial from now on (empty for none); return the previous trial."""
    global _trial  # noqa: PLW0603 - a process has one output
    before, changes = _trial, trial != _trial
    for stream in _streams if changes else ():
        # User code may have closed the stream, or the disk may be full: the next print raises the
        # error.
        try:
            stream.flush()
        except (OSError, ValueError):
            continue
    _trial = trial
    return before


class _Marked(io.RawIOBase):
    """The raw stream behind a text stream: marks lines on their way to a descriptor."""

    def __init__(self, descriptor: int, name: str) -> None:
        self.name = name
        self._descriptor = descriptor
        #: The trial whose line is unfinished; None if the next byte begins a line.
        self._unended: str | None = None

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def write(self, data: Any) -> int:
        """Write all of ``data`` in one piece, since the log has other writers."""
        text, trial = bytes(data), _trial
        if not text:
            return 0
        mark = _mark(trial)
        inner, end = (text[:-1], b"\n") if text.endswith(b"\n") else (text, b"")
        lines = inner.replace(b"\n", b"\n" + mark) + end
        if self._unended is None:
            lines = mark + lines
        elif self._unended != trial:
            lines = b"\n" + mark + lines
        self._unended = None if end else trial
        while lines:
            lines = lines[os.write(self._descriptor, lines) :]
        return len(text)


def _mark(trial: str) -> bytes:
    if not trial:
        return b""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return f"{now} {trial}| ".encode()
