"""Notices what changes, once for all open pages, and tells them which of them it concerns.

Theory of operation. Each open page keeps one stream of server-sent events. While there is one, a
single task looks twice a second: for events of the ledger that are new, and for which scheduler
runs, which no event tells. What it finds goes to every stream as a set of topics. A page that one
of them concerns asks for itself again, and shows what differs. A stream whose page is slow only
collects topics, of which there are as many as studies.

Pages that ask again for the same address between two announcements are drawn once, and after each
picture the next one waits for ``REST`` times the CPU time that this process has had since the one
before (``Pictures``): drawing it, and sending it to all. So live pages take a part of one core,
however many are open and however large the studies are: what grows is the time between two
pictures.
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

#: Seconds between two looks at the ledger.
PERIOD = 0.25
#: Seconds after which pages that show times until now are told that time has passed.
TICK = 10.0
#: Seconds of rest for each second of work.
REST = 4.0
#: Number of pictures that are kept.
KEPT = 64
#: Topics: all has changed; time has passed. A study's topic is ``study:`` and its id.
ALL, TIME = "all", "time"


def topic_of(study_id: str) -> str:
    """Return the topic of pages about this study."""
    return f"study:{study_id}"


class _Stream:
    """The news that one open page is still to be told."""

    def __init__(self) -> None:
        self.topics: set[str] = set()
        self.changed = asyncio.Event()


class Follower:
    """Follows the ledger of ``reader``; ``scheduler`` gives another value if it comes or goes.

    ``has_news`` tells if something was worked out that no event tells of.
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
        #: Number of announcements so far. A picture drawn since the last one is good enough.
        self.announced = 0
        self._newest = 0
        #: The newest event that pages were told of.
        self._told = 0
        self._served: object = None
        self._streams: set[_Stream] = set()
        self._wake = asyncio.Event()

    def hurry(self) -> None:
        """Look now: something was just changed from a page."""
        self._wake.set()

    async def run(self) -> None:
        """Look and tell, for as long as the server runs."""
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
        """Yield messages to a page that has shown the ledger as of event number ``seen``.

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
    """A page as it was drawn: its beginning and the rest, as UTF-8."""

    #: Number of announcements, and the time (monotonic seconds), when drawing began.
    announced: int
    began: float
    beginning: bytes
    rest: bytes


class Pictures:
    """The pictures of pages, each drawn again after an announcement of ``follower``.

    They are drawn one at a time, in any thread.
    """

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._lock = threading.Lock()
        #: Lock of the one page that waits or draws, among those that were told.
        self._turn = asyncio.Lock()
        #: When the rest after the last picture is over (monotonic seconds).
        self.rested = 0.0
        #: When that picture was ready, and the CPU seconds of this process until then.
        self._ready, self._spent = time.monotonic(), time.process_time()
        #: By address.
        self._kept: OrderedDict[str, Picture] = OrderedDict()

    async def live(self, address: str, draw: Callable[[], tuple[str, str]]) -> Picture:
        """Return a picture drawn since the last announcement; draw it after a rest if needed.

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
        """Return the picture that ``draw`` gives, or one begun since ``asked`` (monotonic seconds).

        If not ``rests``, no rest follows: it is for a user's request, and these are rare enough.
        Raises what ``draw`` raises.
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
        """Rest for what the process has worked since the last picture.

        Counted from the end of the rest before, or from that picture: what little has been done in
        a long time without pictures was paid for meanwhile.
        """
        since, before = max(self.rested, self._ready), self._spent
        self._ready, self._spent = time.monotonic(), time.process_time()
        self.rested = since + (1.0 + REST) * (self._spent - before)
