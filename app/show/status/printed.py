"""Finds what trials printed, in the logs of this machine's trainers (``tasks.process.output``)."""

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
    """One line: when it was printed (as text, UTC), by which trial, and what it says."""

    at: str
    trial: str
    text: str


@dataclass(frozen=True, slots=True)
class Printed:
    """The newest lines, in their order; how many older ones the logs have, and whether all."""

    lines: list[Line]
    older: int
    #: True if a log was cut (``host.log_keeper``), so that lines of it are missing.
    cut: bool


class PrintedLines:
    """Finds what trials have printed here: first what the logs have, then what is new in them."""

    def __init__(self, logs: Path, is_asked: Callable[[str], bool]) -> None:
        """``is_asked`` says of a trial's id whether its lines are wanted."""
        self._logs = logs
        self._is_asked = is_asked
        #: The position up to which each log was read (bytes).
        self._read: dict[Path, int] = {}

    def new(self, most: int | None = None, *, whole: bool = True) -> Printed:
        """Return the newest ``most`` lines since the last call, or all of them.

        With ``whole`` a line is left for later until its end is there.
        """
        new_lines, total, cut = list[Line](), 0, False
        for log in sorted(self._logs.glob("trainer-*.log")):
            newest: deque[Line] = deque(maxlen=most)
            was_cut = False
            with suppress(OSError), _opened(log) as file:
                # A log that was cut keeps what was there before.
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
    """Return the visible text of a line: in a terminal a progress bar overwrites itself."""
    return plain(text.rpartition("\r")[2][:WIDEST])


def _opened(log: Path) -> IO[bytes]:
    """Open a log; never waits. Raises OSError for what is no plain file: user code may move it."""
    fd = os.open(log, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(f"{log} is no plain file")
    return os.fdopen(fd, "rb")
