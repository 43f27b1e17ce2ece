"""A page of memory in which a trainer tells its worker the run in turn, and each run's time.

Theory of operation. The worker must know both when the trainer can no longer say so: its process
has died, or a step does not end. So the trainer writes them down at each change of turn, in a few
microseconds. A counter is odd while the page is being written, so that a reader notices that it has
read half of a change, and reads again.
"""

from __future__ import annotations

import mmap
import struct
import time
from pathlib import Path

#: A counter, the fence of the run in turn (0: none), and the time its turn began (monotonic).
_HEAD = struct.Struct("=QQd")
#: A run's fence, and the seconds of its turns that have ended.
_ROW = struct.Struct("=Qd")
#: Number of readings of a page that is being written, and seconds between two of them.
_READINGS, _PAUSE = 100, 0.001


class TurnPage:
    """The page of a lane with some seats, in a file. One process writes it."""

    def __init__(self, path: Path, seats: int, *, new: bool = False) -> None:
        """Map the page; make its file if it is ``new``. Raises OSError."""
        size = _HEAD.size + seats * _ROW.size
        if new:
            path.write_bytes(bytes(size))
        with path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), size)
        #: Words for the trainer: the number of seats, and the page's file.
        self.told = f"{seats}:{path}"
        self.path = path
        self._seats = seats
        self._changes = 0
        self._rows: dict[int, float] = {}
        self._head = (0, 0.0)

    # -- the trainer -----------------------------------------------------------------------------

    def turn(self, fence: int, began: float) -> None:
        """Write that the run with this fence is in turn since ``began`` (monotonic); 0: none."""
        self._head = (fence, began)
        self._write()

    def had(self, fence: int, seconds: float) -> None:
        """Note that a run has had ``seconds`` in all, at the end of a turn; ``turn`` writes it."""
        self._rows[fence] = seconds

    def gone(self, fence: int) -> None:
        """Note that a run is over; ``turn`` writes it."""
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
        """The fence of the run in turn, now or when the process ended; 0 if none."""
        return self._read()[0]

    def works_for(self, fence: int) -> bool:
        """Return True if this run is in turn, or was when the process ended."""
        return self.in_turn == fence

    def seconds(self, fence: int) -> float:
        """Return the seconds that the run has had the turn until now, in all."""
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
        return in_turn, began, rows  # half written: the writer has died in the middle

    def remove(self) -> None:
        """Close the page, and remove its file."""
        self._page.close()
        self.path.unlink(missing_ok=True)
