"""Find lines that trials printed, in the logs of the trainers on this machine.

A trainer is a process that trains. ``tasks.process.output`` writes the logs.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ....tasks.process.output import MARK
from ...common.plain import plain
from ...host.logs import CUT

#: The largest number of characters that are shown of a line.
WIDEST = 2_000


@dataclass(frozen=True, slots=True)
class Line:
    """A line that a trial printed: its time (UTC, as text), the id of the trial, and the text."""

    at: str
    trial: str
    text: str


@dataclass(frozen=True, slots=True)
class Printed:
    """The newest lines, in order of time, and the number of older lines in the logs."""

    lines: list[Line]
    older: int
    #: True if a log was cut to save space (``host.log_keeper``), so that some lines are missing.
    cut: bool


class PrintedLines:
    """The lines that trials printed: first the lines already in the logs, then new lines."""

    def __init__(self, logs: Path, is_asked: Callable[[str], bool]) -> None:
        """Find lines in the logs in the folder ``logs``.

        ``is_asked`` is called with the id of a trial and returns True if the trial's lines are
        wanted.
        """
        self._logs = logs
        self._is_asked = is_asked
        #: The position, in bytes, up to which each log was read.
        self._read: dict[Path, int] = {}

    def new(self, most: int | None = None, *, whole: bool = True) -> Printed:
        """Return the newest ``most`` lines since the last call.

        If ``most`` is None, return all of them. With ``whole``, an incomplete last line of a log is
        left for a later call.
        """
        new_lines, total, cut = list[Line](), 0, False
        for log in sorted(self._logs.glob("trainer-*.log")):
            newest: deque[Line] = deque(maxlen=most)
            was_cut = False
            with suppress(OSError), _opened(log) as file:
                # A log that was cut keeps its beginning.
                at = file.seek(min(self._read.get(log, 0), os.fstat(file.fileno()).st_size))
                for line in file:
                    if whole and not line.endswith(b"\n"):
                        break
                    at += len(line)
                    text = line.decode(errors="replace").rstrip("\r\n")
                    mark = MARK.match(text)
                    was_cut = was_cut or text.startswith(CUT)
                    if mark is not None and self._is_asked(mark[2]):
                        newest.append(Line(mark[1], mark[2], _shown(text[mark.end() :])))
                        total += 1
                self._read[log] = at
            new_lines += newest
            cut = cut or (was_cut and len(newest) > 0)
        new_lines.sort(key=lambda line: line.at)
        lines = new_lines if most is None else new_lines[-most:]
        return Printed(lines, total - len(lines), cut)


def _shown(text: str) -> str:
    """Return the part of a line that a terminal shows after a progress bar overwrote the line."""
    return plain(text.rpartition("\r")[2][:WIDEST])


def _opened(log: Path) -> IO[bytes]:
    """Open a log without blocking.

    Raises OSError if user code replaced the log by another kind of file.
    """
    fd = os.open(log, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(f"{log} is no plain file")
    return os.fdopen(fd, "rb")
