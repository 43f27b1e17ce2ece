"""A page of memory in which a trainer tells its worker which run has the turn, and each run's time.

Theory of operation. The worker needs both when the trainer can no longer report them: when the
trainer's process has died, or when a step does not end. So the trainer writes both to the page at
each change of turn, in a few microseconds. A counter is odd while the page is being written. So a
reader that has read half of a change notices that, and reads again.
"""

from __future__ import annotations

import mmap
import struct
import time
from pathlib import Path

#: A counter, the fence of the run in turn (0: none), and the time at which its turn began
#: (monotonic).
_HEAD = struct.Struct("=QQd")
#: A run's fence, and the total seconds of its turns that have ended.
_ROW = struct.Struct("=Qd")
#: The most attempts to read a page that is being written, and the seconds between two attempts.
_READINGS, _PAUSE = 100, 0.001


class TurnPage:
    """The page of a lane with ``seats`` seats, in a file. Only one process writes to the page."""

    def __init__(self, path: Path, seats: int, *, new: bool = False) -> None:
        """Map the page's file; create the file if ``new``. Raises OSError."""
        size = _HEAD.size + seats * _ROW.size
        if new:
            path.write_bytes(bytes(size))
        with path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), size)
        #: The text that tells the trainer the number of seats and the page's file.
        self.told = f"{seats}:{path}"
        self.path = path
        self._seats = seats
        self._changes = 0
        self._rows: dict[int, float] = {}
        self._head = (0, 0.0)

    # -- the trainer -----------------------------------------------------------------------------

    def turn(self, fence: int, began: float) -> None:
        """Write that run ``fence`` (0: no run) has had the turn since ``began`` (monotonic)."""
        self._head = (fence, began)
        self._write()

    def had(self, fence: int, seconds: float) -> None:
        """Note that a run's turns have lasted ``seconds`` in all; the next ``turn`` writes this."""
        self._rows[fence] = seconds

    def gone(self, fence: int) -> None:
        """Note that a run has ended; the next ``turn`` removes its row from the page."""
        self._rows.pop(fence, None)

    def _write(self) -> None:
        rows = [*self._rows.items()][: self._seats]
        rows += [(0, 0.0)] * (self._seats - len(rows))
        self._changes += 2
        _HEAD.pack_into(self._page, 0, self._changes - 1, *self._head)
        for i, row in enumerate(rows):
            _ROW.pack_into(self._page, _HEAD.size + i * _ROW.size, *row)
        _HEAD.pack_into(self._page, 0, self._changes, *self._head)

    # -- the worker ------------------------------------------------------------------------------

    @property
    def in_turn(self) -> int:
        """The fence of the run that has the turn, or had it when the process ended; 0 if none."""
        return self._read()[0]

    def works_for(self, fence: int) -> bool:
        """Return True if the run ``fence`` has the turn, or had it when the process ended."""
        return self.in_turn == fence

    def seconds(self, fence: int) -> float:
        """Return the total seconds of the run's turns up to now."""
        in_turn, began, rows = self._read()
        now = max(0.0, time.monotonic() - began) if in_turn == fence else 0.0
        return rows.get(fence, 0.0) + now

    def _read(self) -> tuple[int, float, dict[int, float]]:
        for _ in range(_READINGS):
            before, in_turn, began = _HEAD.unpack_from(self._page, 0)
            offsets = range(_HEAD.size, len(self._page), _ROW.size)
            rows = dict(_ROW.unpack_from(self._page, offset) for offset in offsets)
            if before % 2 == 0 and before == _HEAD.unpack_from(self._page, 0)[0]:
                break
            time.sleep(_PAUSE)
        return in_turn, began, rows  # half written, if the trainer died while it wrote

    def remove(self) -> None:
        """Close the page, and remove its file."""
        self._page.close()
        self.path.unlink(missing_ok=True)
