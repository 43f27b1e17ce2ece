"""Notices changes, once for all open pages, and tells each page about those that concern it.

Theory of operation. Each open page keeps one stream of server-sent events. While there is a stream,
a single task checks every ``PERIOD`` seconds for new events in the ledger, and for another
scheduler process, of which there is no event. It sends the changes to every stream as a set of
topics. A page that shows one of these topics loads itself again, and updates the parts that differ.
If a page is slow, its stream only collects topics, and there are only as many topics as studies.

If several pages load the same address between two announcements, it is drawn once. After each
picture, the next one waits for ``REST`` times the CPU time that this process has used since the
picture before (``Pictures``). So live pages take only a part of one core, however many are open and
however large the studies are. With more work, only the time between two pictures grows.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from starlette.concurrency import run_in_threadpool

from ...base.errors import PenstockError

if TYPE_CHECKING:
    from ...app.ledger.reader import Reader

log = logging.getLogger(__name__)

#: Seconds between two checks of the ledger.
PERIOD = 0.25
#: Seconds between two announcements of ``TIME`` to pages that show times until now.
TICK = 10.0
#: Seconds of rest for each second of CPU time.
REST = 4.0
#: Number of pictures that are kept in memory.
KEPT = 64
#: Topics: everything has changed; time has passed. A study's topic is ``study:`` and its id.
ALL, TIME = "all", "time"


def topic_of(study_id: str) -> str:
    """Return the topic of pages about the study ``study_id``."""
    return f"study:{study_id}"


class _Stream:
    """The topics that one open page has not been told of yet."""

    def __init__(self) -> None:
        self.topics: set[str] = set()
        self.changed = asyncio.Event()


class Follower:
    """Follows the ledger of ``reader``. ``scheduler`` returns a value that identifies its process.

    ``has_news`` returns True once if there are new results of which there is no event.
    """

    def __init__(
        self,
        reader: Reader,
        scheduler: Callable[[], object],
        has_news: Callable[[], bool] = lambda: False,
    ) -> None:
        self._reader = reader
        self._scheduler = scheduler
        self._has_news = has_news
        #: Number of announcements so far. A picture drawn after the last one is up to date.
        self.announced = 0
        self._newest = 0
        #: The newest event that pages have been told of.
        self._told = 0
        self._served: object = None
        self._streams: set[_Stream] = set()
        self._wake = asyncio.Event()

    def hurry(self) -> None:
        """Check at once. Call this after a change made from a page."""
        self._wake.set()

    async def run(self) -> None:
        """Check for changes and announce them, for as long as the server runs."""
        loop = asyncio.get_running_loop()
        ticked = loop.time()
        while True:
            if not self._streams:
                await self._pause(None)  # nobody listens, so nothing is read
            topics = await self._look()
            if loop.time() - ticked >= TICK:
                topics.add(TIME)
                ticked = loop.time()
            if topics:
                self._tell(topics)
            await self._pause(PERIOD)

    async def _pause(self, seconds: float | None) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), seconds)
        self._wake.clear()

    async def _look(self) -> set[str]:
        try:
            return await run_in_threadpool(self.look)
        except Exception:  # one look that fails must not be the last one
            log.exception("what has changed could not be read")
            return set()

    def look(self) -> set[str]:
        """Return the topics that have changed since the last call."""
        before, self._served = self._served, self._scheduler()
        topics = set() if before in (None, self._served) else {ALL}
        if self._has_news():
            topics.add(ALL)
        try:
            newest = self._reader.newest()
            if newest < self._newest:  # an older ledger was restored
                topics.add(ALL)
            elif newest > self._newest:
                topics |= {topic_of(study) for study in self._reader.changed(self._newest)}
        except PenstockError:
            return topics  # the pages say what is wrong when they ask
        self._newest = newest
        return topics

    def _tell(self, topics: set[str]) -> None:
        self.announced += 1
        self._told = self._newest
        for stream in self._streams:
            stream.topics |= topics
            stream.changed.set()

    async def messages(self, seen: int) -> AsyncIterator[str]:
        """Yield messages to a page that shows the ledger as of event number ``seen``.

        A message has the changed topics, and the number of the newest event as its id.
        """
        stream = _Stream()
        self._streams.add(stream)
        if len(self._streams) == 1:
            self._newest = seen
            self._wake.set()
        elif seen != self._newest:
            # The others were told already of what this page may lack.
            stream.topics.add(ALL)
            stream.changed.set()
        try:
            yield "retry: 1000\n\n"
            while True:
                await stream.changed.wait()
                stream.changed.clear()
                topics, stream.topics = sorted(stream.topics), set()
                yield f"id: {self._told}\ndata: {json.dumps(topics)}\n\n"
        finally:
            self._streams.discard(stream)


class Picture(NamedTuple):
    """A page as it was drawn: its beginning and its rest, as UTF-8."""

    #: The number of announcements and the time (monotonic seconds) when drawing began.
    announced: int
    began: float
    beginning: bytes
    rest: bytes


class Pictures:
    """The pictures of pages. A picture is drawn again after an announcement of ``follower``.

    Pictures are drawn one at a time, in any thread.
    """

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._lock = threading.Lock()
        #: The lock of the live page that rests or draws. Other live pages wait for it.
        self._turn = asyncio.Lock()
        #: End of the rest after the last picture (monotonic seconds).
        self.rested = 0.0
        #: End of the last drawing (monotonic seconds), and this process's CPU seconds at that time.
        self._ready, self._spent = time.monotonic(), time.process_time()
        #: The kept pictures by address.
        self._kept: OrderedDict[str, Picture] = OrderedDict()

    async def live(self, address: str, draw: Callable[[], tuple[str, str]]) -> Picture:
        """Return a picture drawn since the last announcement, or draw one after a rest.

        Raises what ``draw`` raises.
        """
        announced = self._follower.announced
        async with self._turn:
            cached = self._kept.get(address)
            if cached is not None and cached.announced >= announced:
                return cached
            await asyncio.sleep(max(0.0, self.rested - time.monotonic()))
            return await run_in_threadpool(self.picture, address, draw, time.monotonic())

    def picture(
        self,
        address: str,
        draw: Callable[[], tuple[str, str]],
        asked: float,
        *,
        rests: bool = True,
    ) -> Picture:
        """Return a picture by ``draw``, or a kept one begun since ``asked`` (monotonic seconds).

        If not ``rests``, no rest follows: such pictures answer a user's own requests, which are
        rare. Raises what ``draw`` raises.
        """
        with self._lock:
            cached = self._kept.pop(address, None)
            if cached is None or cached.began < asked:
                # What comes from here on is announced.
                announced, began = self._follower.announced, time.monotonic()
                before = time.process_time()
                try:
                    beginning, rest = draw()
                finally:
                    if rests:
                        self._rest()
                    else:
                        self._spent += time.process_time() - before
                cached = Picture(announced, began, beginning.encode(), rest.encode())
            self._kept[address] = cached
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            return cached

    def _rest(self) -> None:
        """Set the rest for the CPU time that the process has used since the last picture.

        The rest is counted from the end of the previous rest, or from the last picture if that is
        later. So CPU time used slowly, in a long time without pictures, leads to no rest now.
        """
        since, before = max(self.rested, self._ready), self._spent
        self._ready, self._spent = time.monotonic(), time.process_time()
        self.rested = since + (1.0 + REST) * (self._spent - before)
