"""Notices changes in the ledger for all open pages, and tells each page when it must be redrawn.

Theory of operation. Each open page keeps one stream of server-sent events. While there is a stream,
a single task checks every ``PERIOD`` seconds for new events in the ledger, and for another
scheduler process, which leaves no event. The task sends the changes to every stream as a set of
topics. A page that shows one of these topics loads itself again, and updates the parts that differ.
If a page is slow, its stream only collects topics, and there are only as many topics as studies.

If several pages load the same address between two announcements, the page at that address is drawn
once. A drawn page is called a picture. After each picture, the next one waits for ``REST`` times
the CPU time that this process has used since the picture before (``Pictures``). So live pages take
only a part of one core, however many are open and however large the studies are. With more work,
only the time between two pictures grows.
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
#: Seconds between two announcements of ``TIME``, for pages that show durations up to now.
TICK = 10.0
#: Seconds of rest after drawing for each second of CPU time that was used.
REST = 4.0
#: The number of pictures that are kept in memory.
KEPT = 64
#: Two topics: everything has changed, and time has passed. ``topic_of`` returns a study's topic.
ALL, TIME = "all", "time"


def topic_of(study_id: str) -> str:
    """Return the topic that pages about the study with this id follow."""
    return f"study:{study_id}"


class _Stream:
    """The stream of one open page, with the topics of which the page has not been told yet."""

    def __init__(self) -> None:
        self.topics: set[str] = set()
        self.changed = asyncio.Event()


class Follower:
    """A task that follows the ledger of ``reader`` and tells open pages about changes.

    ``scheduler`` returns a value that identifies the scheduler's process. ``has_news`` returns True
    if there are new results that leave no event in the ledger, and then False until there are
    others.
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
        #: The number of announcements so far. A picture is up to date if it was drawn after the
        #: last one.
        self.announced = 0
        self._newest = 0
        #: The number of the newest event of which pages have been told.
        self._told = 0
        self._served: object = None
        self._streams: set[_Stream] = set()
        self._wake = asyncio.Event()

    def hurry(self) -> None:
        """Check for changes at once. Call this after a page has changed something."""
        self._wake.set()

    async def run(self) -> None:
        """Announce changes to the open pages for as long as the server runs."""
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
        """Return the topics that have changed since the last call of this method."""
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

        A message is a server-sent event. Its data are the changed topics, and its id is the number
        of the newest event.
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
    """A page as it was drawn, in two parts: its beginning and its rest, as UTF-8."""

    #: The number of announcements, and the time (monotonic seconds), when drawing began.
    announced: int
    began: float
    beginning: bytes
    rest: bytes


class Pictures:
    """A cache of drawn pages. A page is drawn again after an announcement of ``follower``.

    One page is drawn at a time, in any thread.
    """

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._lock = threading.Lock()
        #: The lock of the live page that rests or is drawn. Other live pages wait for the lock.
        self._turn = asyncio.Lock()
        #: The end of the rest after the last picture (monotonic seconds).
        self.rested = 0.0
        #: The end of the last drawing (monotonic seconds), and the CPU seconds of this process at
        #: that time.
        self._ready, self._spent = time.monotonic(), time.process_time()
        #: The pictures that are kept in memory, by address.
        self._kept: OrderedDict[str, Picture] = OrderedDict()

    async def live(self, address: str, draw: Callable[[], tuple[str, str]]) -> Picture:
        """Return a picture that was drawn since the last announcement, or draw one after a rest.

        ``address`` is the key of the picture in the cache. Raises the errors that ``draw`` raises.
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
        """Return a kept picture if its drawing began after ``asked``, or else draw a new picture.

        ``address`` is the key of the picture in the cache, and ``asked`` is in monotonic seconds.
        Without ``rests``, no rest follows the drawing; this is for pictures that answer a user's
        own requests, which are rare. Raises the errors that ``draw`` raises.
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
        """Compute the end of the rest from the CPU time used since the last picture.

        The rest is counted from the end of the previous rest, or from the last picture if that is
        later. So CPU time that was used slowly, in a long time without pictures, leads to no rest
        now.
        """
        since, before = max(self.rested, self._ready), self._spent
        self._ready, self._spent = time.monotonic(), time.process_time()
        self.rested = since + (1.0 + REST) * (self._spent - before)
