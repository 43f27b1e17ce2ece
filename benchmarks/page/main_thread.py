"""Times for which a browser's main thread is busy while a page is open, by clock and by CPU."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from testkit.browser import Browser

#: Milliseconds from which on a browser tells of a task that kept it busy.
TOLD = 50.0
#: Tasks that kept the browser busy until now; it reports them a moment later.
LOADED = "new Promise(done => setTimeout(() => done(noted.tasks), 500))"
#: Notes the page's updates and what kept the browser busy, from the begin of the page on.
NOTE = """(() => {
  window.noted = {tasks: [], updates: []};
  new PerformanceObserver(list => list.getEntries().forEach(
    each => noted.tasks.push([each.startTime, each.duration])
  )).observe({type: "longtask", buffered: true});
  new MutationObserver(() => {
    noted.updates.push(performance.now());
    performance.mark("update");
  }).observe(document.body, {attributes: true, attributeFilter: ["data-seen"]});
})()"""
#: Categories that the browser records: the tasks of its threads, and the marks of ``NOTE``.
RECORDED = "toplevel,blink.user_timing"
TASK = "ThreadControllerImpl::RunTask"


def by_update(
    updates: Sequence[float], tasks: Sequence[tuple[float, float]], least: float = TOLD
) -> list[float]:
    """Return the longest task of each update in milliseconds, or ``least`` if that is longer.

    A task belongs to the last update before its end.
    """
    longest = [least] * len(updates)
    for begin, length in tasks:
        known = [k for k, at in enumerate(updates) if at <= begin + length]
        if known:
            longest[known[-1]] = max(longest[known[-1]], length)
    return longest


@contextmanager
def recorded(browser: Browser) -> Iterator[list[float]]:
    """The longest task of each update (ms of CPU time) meanwhile, known in the end."""
    found: list[float] = []
    browser.send("Tracing.start", transferMode="ReturnAsStream", categories=RECORDED)
    yield found
    browser.happened.pop("Tracing.tracingComplete", None)
    browser.send("Tracing.end")
    while "Tracing.tracingComplete" not in browser.happened:
        browser.value("0")
    stream, text, is_over = browser.happened["Tracing.tracingComplete"]["stream"], "", False
    while not is_over:
        part = browser.send("IO.read", handle=stream)
        text, is_over = text + part["data"], part["eof"]
    found += cpu_by_update(json.loads(text)["traceEvents"])


def cpu_by_update(events: Sequence[dict]) -> list[float]:
    """The longest task of each update, in milliseconds of the CPU time of the page's main thread.

    ``events`` are of Chromium's trace format, whose times are microseconds.
    """
    marks = [each for each in events if each["name"] == "update" and "user_timing" in each["cat"]]
    if not marks:
        return []
    page = marks[0]["pid"], marks[0]["tid"]
    tasks = [
        (each["ts"] / 1e3, each["tdur"] / 1e3)
        for each in events
        if each["name"] == TASK and "tdur" in each and (each["pid"], each["tid"]) == page
    ]
    return by_update([mark["ts"] / 1e3 for mark in marks], tasks, 0.0)
