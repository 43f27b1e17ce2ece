"""Turns of trials in one process. Each trial has a thread, and only one of the threads runs.

Theory of operation. A trial takes part from the moment its thread enters until it leaves. Between
two steps its thread checks if its turn is over. If so, the thread saves the part of the process's
state that each trial needs for itself (``host_state``), opens the next trial's lock, and waits at
its own lock. A waiting trial keeps its stack, its step in the middle of the epoch, and its
thread-local state (grad mode, autocast).

A trial that *rests* waits until each other trial has had one turn, or rests too. Meanwhile another
trial may *hold* the resting trial and compute for it. Then the resting trial continues when the
holder lets it go.

Only time in turn counts: ``Turn.clock`` stands still while others have the turn. A measurement must
not be interrupted: while ``Turn.alone`` is set, the turn is not passed on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from .round_robin import QUANTUM, RoundRobin
from .turn_page import TurnPage


class Host(Protocol):
    """State of the process, saved when a trial's turn ends and restored for its next turn."""

    def save(self) -> Any: ...

    def restore(self, saved: Any) -> None: ...


class Turn:
    """The turns of one run. All methods except ``hurry`` are called by the run's own thread."""

    def __init__(self, turns: Turns, trial: str, fence: int, resumed: Callable[[], None]) -> None:
        """Start without the turn. ``resumed`` is called when the run has the turn again."""
        self._turns = turns
        self.trial = trial
        self.fence = fence
        #: True while the run must not pass the turn on.
        self.alone = False
        self.resumed = resumed
        self.go = threading.Lock()
        self.go.acquire()
        #: Total seconds of ended turns, and the time at which the current turn began (monotonic).
        self.had = 0.0
        self.began = 0.0
        #: The time at which the turn is to be passed on (monotonic).
        self.until = 0.0
        #: Seconds in which other runs had the turn since this run's first turn began.
        self.away = 0.0

    def clock(self) -> float:
        """Return the seconds of a clock that stands still while other runs have the turn."""
        return time.perf_counter() - self.away

    def is_over(self) -> bool:
        """Return True if the turn should be passed on now."""
        return not self.alone and time.monotonic() >= self.until

    def pass_on(self) -> None:
        """Let other runs have their turns; return when this run has the turn again."""
        self._turns.pass_on(self)

    def rest(self) -> None:
        """Wait until other runs have had their turns, or, if held, until the holder lets go.

        The process's state is not restored afterwards, except for what ``resumed`` sets.
        """
        self._turns.rest(self)

    def hold(self, resting: Sequence[Turn]) -> None:
        """Keep the ``resting`` turns at rest while this turn computes for their trials."""
        self._turns.hold(resting)

    def let_go(self, resting: Sequence[Turn]) -> None:
        """Let those of the ``resting`` turns continue that were held."""
        self._turns.let_go(resting)

    def begin_anew(self) -> None:
        """Restart the current turn. The time spent so far is not taken from the run's credit."""
        self._turns.begin_anew(self)

    def hurry(self) -> None:
        """Give a stopped run the next turn, so that the run can end. Any thread may call this."""
        self._turns.hurry(self)


class Turns:
    """The turns of a trainer's runs."""

    def __init__(self, host: Host, page: TurnPage | None = None, quantum: float = QUANTUM) -> None:
        self._host = host
        self._page = page
        self._quantum = quantum
        self._lock = threading.Lock()
        self._robin: RoundRobin[Turn] = RoundRobin(quantum)
        self._hurried: list[Turn] = []
        self._current: Turn | None = None
        #: The resting turns, each with the turns that it still waits for.
        self._resting: dict[Turn, set[Turn]] = {}
        self._held: set[Turn] = set()
        #: Seconds that trials owed when their last segment ended.
        self._owed: dict[str, float] = {}

    def enter(
        self,
        trial: str,
        fence: int,
        resumed: Callable[[], None],
        weights: Mapping[str, float] = MappingProxyType({}),
    ) -> Turn:
        """Add a run to the turns; return its ``Turn`` when the run's first turn begins.

        ``weights`` sets trials' weights from now on. Other trials keep theirs; a new trial has 1.
        """
        turn = Turn(self, trial, fence, resumed)
        with self._lock:
            self._robin.join(turn)
            self._robin.use(turn, self._owed.pop(trial, 0.0))
            for each in self._robin:
                if each.trial in weights:
                    self._robin.weigh(each, weights[each.trial])
            if self._current is None:
                self._give(self._next())
            else:
                self._shorten(self._current)
        turn.go.acquire()
        return turn

    def forget(self, trial: str) -> None:
        """Drop the debt of a trial that will have no more segments here."""
        with self._lock:
            self._owed.pop(trial, None)

    def leave(self, turn: Turn) -> None:
        """Remove ``turn``, which must be the current turn, from the turns."""
        with self._lock:
            self._end(turn)
            if (credit := self._robin.credit(turn)) < 0.0:
                self._owed[turn.trial] = -credit
            self._robin.leave(turn)
            if turn in self._hurried:
                self._hurried.remove(turn)
            if self._page is not None:
                self._page.gone(turn.fence)
            self._give(self._next())

    def pass_on(self, turn: Turn) -> None:
        with self._lock:
            self._end(turn)
            following = self._next()
            if following is turn:
                self._give(turn)
                turn.go.acquire()
                return
        saved = self._host.save()
        left_at = time.perf_counter()
        with self._lock:
            self._give(following)
        turn.go.acquire()
        turn.away += time.perf_counter() - left_at
        self._host.restore(saved)
        turn.resumed()

    def rest(self, turn: Turn) -> None:
        left_at = time.perf_counter()
        with self._lock:
            self._end(turn)
            awaited = set(self._robin.awake) - {turn}
            if not awaited and not self._ready():
                self._begin(turn)
                return
            self._robin.rest(turn)
            self._resting[turn] = awaited
            self._give(self._next())
        turn.go.acquire()
        turn.away += time.perf_counter() - left_at
        turn.resumed()

    def hold(self, resting: Sequence[Turn]) -> None:
        with self._lock:
            for turn in resting:
                if turn not in self._resting:  # it was about to continue
                    self._robin.rest(turn)
                    self._resting[turn] = set()
            self._hurried = [turn for turn in self._hurried if turn not in resting]
            self._held.update(resting)

    def let_go(self, resting: Sequence[Turn]) -> None:
        with self._lock:
            for turn in self._held.intersection(resting):
                self._wake(turn)
            self._held.difference_update(resting)

    def begin_anew(self, turn: Turn) -> None:
        with self._lock:
            self._count(turn)
            self._begin(turn)

    def hurry(self, turn: Turn) -> None:
        with self._lock:
            if turn is not self._current and turn not in self._held:
                self._wake(turn)
                self._hurried.append(turn)
                if self._current is not None:
                    self._shorten(self._current)

    # -- with the lock ---------------------------------------------------------------------------

    def _ready(self) -> list[Turn]:
        """Return the resting turns that wait for no other turn and are not held."""
        resting = self._resting.items()
        return [turn for turn, awaited in resting if not awaited and turn not in self._held]

    def _wake(self, turn: Turn) -> None:
        if self._resting.pop(turn, None) is not None:
            self._robin.wake(turn)

    def _next(self) -> Turn | None:
        for turn in self._ready():
            self._wake(turn)
        return self._hurried.pop(0) if self._hurried else self._robin.next()

    def _give(self, turn: Turn | None) -> None:
        self._current = turn
        if turn is not None:
            self._begin(turn)
            turn.go.release()
        elif self._page is not None:
            self._page.turn(0, 0.0)

    def _begin(self, turn: Turn) -> None:
        turn.began = time.monotonic()
        turn.until = turn.began + self._robin.credit(turn)
        if self._page is not None:
            self._page.turn(turn.fence, turn.began)

    def _end(self, turn: Turn) -> None:
        for awaited in self._resting.values():
            awaited.discard(turn)
        self._robin.use(turn, self._count(turn))

    def _count(self, turn: Turn) -> float:
        """Add the seconds of the turn that ends to ``turn.had``; return these seconds."""
        seconds = time.monotonic() - turn.began
        turn.had += seconds
        if self._page is not None:
            self._page.had(turn.fence, turn.had)
        return seconds

    def _shorten(self, turn: Turn) -> None:
        """Limit the turn to a quantum, since a new run waits. The current step still ends."""
        turn.until = min(turn.until, turn.began + self._quantum)
