"""Find lines that trials printed, in the logs of this machine's trainers.

``tasks.process.output`` writes these logs.
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

#: The longest part of a line that is shown, in characters.
WIDEST = 2_000


@dataclass(frozen=True, slots=True)
class Line:
    """One printed line: its time (as text, UTC), its trial, and its text."""

    at: str
    trial: str
    text: str


@dataclass(frozen=True, slots=True)
class Printed:
    """The newest lines in order, and the number of older lines in the logs."""

    lines: list[Line]
    older: int
    #: True if a log was cut (``host.log_keeper``), so that some of its lines are missing.
    cut: bool


class PrintedLines:
    """Finds the lines that trials printed: first those already in the logs, then new ones."""

    def __init__(self, logs: Path, is_asked: Callable[[str], bool]) -> None:
        """``is_asked(trial id)`` returns True if the trial's lines are wanted."""
        self._logs = logs
        self._is_asked = is_asked
        #: The position up to which each log was read (bytes).
        self._read: dict[Path, int] = {}

    def new(self, most: int | None = None, *, whole: bool = True) -> Printed:
        """Return the newest ``most`` lines since the last call, or all of them.

        With ``whole``, an incomplete line is left for a later call.
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
    """Return the text of a line that a terminal would show after a progress bar's overwriting."""
    return plain(text.rpartition("\r")[2][:WIDEST])


def _opened(log: Path) -> IO[bytes]:
    """Open a log without waiting. Raises OSError if user code replaced it by no plain file."""
    fd = os.open(log, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(f"{log} is no plain file")
    return os.fdopen(fd, "rb")
