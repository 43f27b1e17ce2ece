"""A page of memory that a trainer shares with its worker: whose turn it is, and how long each had.

Theory of operation. The worker must know both where the trainer cannot say so any more: its process
has died, or a step does not end. So the trainer writes them down at each change of turn, in some
microseconds. A counter is odd while the page is written. So a reader sees that it has read half of
a change, and reads again.
"""

from __future__ import annotations

import mmap
import struct
import time
from pathlib import Path

#: A counter, the fence of the run in turn (0: nobody's), and when its turn began (monotonic).
_HEAD = struct.Struct("=QQd")
#: A run's fence, and the seconds of its turns that have ended.
_ROW = struct.Struct("=Qd")
#: How often a page that is being written is read again, and after how many seconds.
_READINGS, _PAUSE = 100, 0.001


class TurnPage:
    """The page of a lane with some seats, in a file. One process writes it."""

    def __init__(self, path: Path, seats: int, *, new: bool = False) -> None:
        """``new``: the file is made. Raises OSError."""
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
        """The run with this fence has had the turn since ``began`` (monotonic); 0: nobody."""
        self._head = (fence, began)
        self._write()

    def had(self, fence: int, seconds: float) -> None:
        """A turn has ended: the run has had ``seconds`` in all. ``turn`` writes it down."""
        self._rows[fence] = seconds

    def gone(self, fence: int) -> None:
        """The run is over. ``turn`` writes it down."""
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
        """The fence of the run whose turn it is, or was when the process ended; 0: nobody's."""
        return self._read()[0]

    def works_for(self, fence: int) -> bool:
        """Tell whether it is this run's turn, or was when the process ended."""
        return self.in_turn == fence

    def seconds(self, fence: int) -> float:
        """How long the run has had the turn until now, in all."""
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
        return in_turn, began, rows  # half written: its writer has died there

    def remove(self) -> None:
        """Close the page, and remove its file."""
        self._page.close()
        self.path.unlink(missing_ok=True)
