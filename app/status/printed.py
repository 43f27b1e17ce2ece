"""Finds what trials printed, in the logs of this machine's trainers (``tasks.process.output``)."""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ...tasks.process.output import MARK
from ..common.plain import plain
from ..host.logs import CUT

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
    #: Whether a log was cut (``host.log_keeper``), so that lines of it are missing.
    cut: bool


def printed(logs: Path, is_asked: Callable[[str], bool], most: int) -> Printed:
    """What the trials whose ids are asked for have printed here: the newest ``most`` lines."""
    found, known, cut = list[Line](), 0, False
    for log in sorted(logs.glob("trainer-*.log")):
        newest: deque[Line] = deque(maxlen=most)
        was_cut = False
        for text in _texts(log):
            mark = MARK.match(text)
            was_cut = was_cut or text.startswith(CUT)
            if mark is not None and is_asked(mark[2]):
                newest.append(Line(mark[1], mark[2], _shown(text[mark.end() :])))
                known += 1
        found += newest
        cut = cut or (was_cut and len(newest) > 0)
    lines = sorted(found, key=lambda line: line.at)[-most:]
    return Printed(lines, known - len(lines), cut)


class Following:
    """Finds what trials print from now on: ``printed`` has what they printed before."""

    def __init__(self, logs: Path, is_asked: Callable[[str], bool]) -> None:
        self._logs = logs
        self._is_asked = is_asked
        #: How far each log was read (bytes).
        self._read = {log: _size(log) for log in logs.glob("trainer-*.log")}

    def new(self) -> list[Line]:
        """The whole lines since the last call, in the order of time."""
        lines = list[Line]()
        for log in sorted(self._logs.glob("trainer-*.log")):
            # A log that was cut keeps what was there before.
            begin = min(self._read.get(log, 0), _size(log))
            with suppress(OSError), _opened(log) as file:
                file.seek(begin)
                whole, newline, _ = file.read().rpartition(b"\n")
                begin += len(whole) + len(newline)
                for text in whole.decode(errors="replace").split("\n"):
                    mark = MARK.match(text)
                    if mark is not None and self._is_asked(mark[2]):
                        words = _shown(text[mark.end() :].rstrip("\r"))
                        lines.append(Line(mark[1], mark[2], words))
            self._read[log] = begin
        return sorted(lines, key=lambda line: line.at)


def _size(log: Path) -> int:
    try:
        return log.stat().st_size
    except OSError:
        return 0


def _shown(text: str) -> str:
    """What a terminal would show of a line. A progress bar writes over itself, again and again."""
    return plain(text.rpartition("\r")[2][:WIDEST])


def _texts(log: Path) -> Iterator[str]:
    """The lines of a log; none where it cannot be read."""
    with suppress(OSError), _opened(log) as file:
        for line in file:
            yield line.decode(errors="replace").rstrip("\r\n")


def _opened(log: Path) -> IO[bytes]:
    """Open a log; never waits. Raises OSError for what is no plain file: user code may move it."""
    fd = os.open(log, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(f"{log} is no plain file")
    return os.fdopen(fd, "rb")
