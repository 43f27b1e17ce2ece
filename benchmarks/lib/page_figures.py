"""Costs of open pages for the scheduler, delays of their updates, and their correctness."""

from __future__ import annotations

import os
import re
import signal
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from html import unescape
from statistics import median, quantiles
from typing import Any
from uuid import uuid4

import psutil
from penstock.app.broker.client import Client
from penstock.app.host import locks
from penstock.app.host.settings import Settings
from penstock.app.ledger.reader import Reader
from penstock.app.server.services import services
from penstock.scheduler.model.events import EpochReported

from benchmarks.lib.open_pages import OpenPages, served
from benchmarks.lib.plane import empty_study
from benchmarks.lib.task_cpu import used_by
from testkit.browser import PATIENCE, Browser

#: Number of open pages.
PAGES = 100
#: One empty task at a time keeps less than one of two cores busy, so the pages have the other one.
ONE, EIGHT = "cpu:1x1", "cpu:2x1*4"
#: Trials of the study that is killed: all of them are on one page.
TRIALS = 48
#: Seconds that pages have to become right: they are told within one, and time passes every ten.
SETTLES = 15.0


def submitted(settings: Settings, trials: int, epochs: int) -> str:
    """A study of empty tasks of one epoch each, just submitted; its id."""
    name = f"empty-{uuid4().hex[:8]}"
    Client(settings).submit(empty_study(name, trials, epochs))
    return name


def until(holds: Callable[[], Any], what: str) -> Any:
    """Return the first true value of ``holds``. Raises RuntimeError after ``PATIENCE`` seconds."""
    end = time.monotonic() + PATIENCE
    while not (found := holds()):
        if time.monotonic() > end:
            raise RuntimeError(f"{what}: not in {PATIENCE:g} s")
        time.sleep(0.05)
    return found


def up(settings: Settings) -> Reader:
    """Services that train, and a reader of their ledger."""
    services.ensure_up(settings, settings.devices, stays=True)
    study, reader = submitted(settings, 8, 25), Reader(settings.ledger_url)
    until(lambda: reader.study(study).finished_at, "trainers have started")
    return reader


def with_and_without(settings: Settings, pairs: int, tasks: int) -> dict[str, float]:
    """The scheduler's CPU time with and without open pages, in turns; how soon they are told."""
    reader = up(settings)
    without, beside, ratios, spans = [], [], [], []
    with served(settings.home) as server:
        for number in range(pairs):
            costs = {}
            for watched in (True, False) if number % 2 else (False, True):
                study = submitted(settings, 10**4, 50)
                if watched:
                    paths = [f"/study?id={study}", "/", "/devices"]
                    with OpenPages(server, [paths[k % 3] for k in range(PAGES)]) as opened:
                        costs[watched] = _cost(settings, reader, tasks)
                        Client(settings).cancel(study)
                        _all_told(opened, reader.newest())
                    spans += _spans(reader, study, opened)
                else:
                    costs[watched] = _cost(settings, reader, tasks)
                    Client(settings).cancel(study)
            without.append(costs[False])
            beside.append(costs[True])
            ratios.append(costs[True] / costs[False])
    return {
        "scheduler_cpu_ms_a_task.without": median(without),
        "scheduler_cpu_ms_a_task.with": median(beside),
        "scheduler_cpu.ratio": median(ratios),
        "update_ms.p50": median(spans),
        "update_ms.p99": quantiles(spans, n=100)[98],
    }


def _all_told(opened: OpenPages, newest: int) -> None:
    """Wait until each page was told of event ``newest``."""
    pages = opened.pages
    until(lambda: all(p.told and p.told[-1][1] >= newest for p in pages), "all are told")


def _cost(settings: Settings, reader: Reader, tasks: int) -> float:
    """CPU milliseconds of the scheduler for each of the next ``tasks`` tasks."""
    scheduler = psutil.Process(locks.pid_of(settings.run, "scheduler"))
    study = reader.studies()[-1].id
    trained, newest = 0, max((row.rowid for row in reader.epochs(study)), default=0)
    used = used_by(scheduler)
    while trained < tasks:
        time.sleep(0.05)
        rows = reader.epochs(study, newest)
        trained, newest = trained + len(rows), rows[-1].rowid if rows else newest
    return (used_by(scheduler) - used) * 1e3 / trained


def _spans(reader: Reader, study: str, opened: OpenPages) -> list[float]:
    """Milliseconds from an epoch's report to the first message about it, for each open page.

    The report is handled before it is committed, so this is no less than from the commit on.
    """
    begin = max(page.listens for page in opened.pages)
    events = reader.of_trials(study, EpochReported)
    reports = [(number, event.at) for number, event in events if event.at > begin]
    found = []
    for page in opened.pages:
        known = [number for _, number in page.told]
        for number, at in reports:
            where = bisect_left(known, number)
            if where < len(known):
                found.append((page.told[where][0] - at) * 1e3)
    return found


def restarts(settings: Settings, browser: Browser, rounds: int) -> dict[str, float]:
    """Return how many pages are wrong after the scheduler is killed and the study paused."""
    reader = up(settings)
    study = submitted(settings, TRIALS, 1000)
    client, wrong, slowest = Client(settings), 0, 0.0
    with served(settings.home) as server:
        browser.open(server.url)
        browser.open(server.at(f"/study?id={study}"))
        paths = [f"/study?id={study}", "/"]
        with OpenPages(server, [paths[k % 2] for k in range(PAGES)]) as opened:
            for _ in range(rounds):
                _more(reader, 200)
                _restarted(settings)
                _more(reader, 1)
                client.pause(study)
                until(lambda: not reader.running(), "what runs ends its epoch")
                found, seconds = _settle(reader, study, opened, browser)
                wrong, slowest = wrong + found, max(slowest, seconds)
                client.resume(study)
        client.cancel(study)
    return {"restarts": rounds, "wrong_after_restart": wrong, "right_after_s.max": slowest}


def _more(reader: Reader, events: int) -> None:
    """Wait until ``events`` more events have happened."""
    known = reader.newest()
    until(lambda: reader.newest() >= known + events, "something happens")


def _restarted(settings: Settings) -> None:
    """Kill the scheduler, and wait until another one is there."""
    pid = locks.pid_of(settings.run, "scheduler")
    os.kill(pid, signal.SIGKILL)
    back = (None, pid)
    until(lambda: locks.pid_of(settings.run, "scheduler") not in back, "the scheduler is back")


def _settle(reader: Reader, study: str, opened: OpenPages, browser: Browser) -> tuple[int, float]:
    """Return the number of pages still wrong in the end, and the seconds until none was."""
    began = time.monotonic()
    while True:
        pages = [page.text for page in opened.pages if page.path != "/"]
        pages.append(str(browser.value("document.documentElement.outerHTML")))
        lists = [page.text for page in opened.pages if page.path == "/"]
        trials, row = expected(reader, study), expected_row(reader, study)
        wrong = sum(shown(text) != trials for text in pages)
        wrong += sum(listed(text, study) != row for text in lists)
        seconds = time.monotonic() - began
        if not wrong or seconds > SETTLES:
            return wrong, seconds
        time.sleep(0.1)


def shown(text: str) -> tuple[str, frozenset[tuple[str, ...]]]:
    """A study's page: its status; and of each trial its number, state, value and epochs."""
    [status] = re.findall(r'id="progress".*?class="status (\w+)"', text, re.DOTALL)
    rows = re.findall(r"<tr[^>]* data-of=.*?</tr>", text, re.DOTALL)
    return status, frozenset(tuple(re.findall(r'data-key="([^"]*)"', row)[:4]) for row in rows)


def expected(reader: Reader, study: str) -> tuple[str, frozenset[tuple[str, ...]]]:
    """The same, as the ledger has it."""
    rows = reader.trials(study)
    return reader.study(study).status, frozenset(
        (str(t.number), t.state, "" if t.value is None else str(t.value), str(t.epoch))
        for t in rows
    )


def listed(text: str, study: str) -> Sequence[str]:
    """The study's row on the page of all studies: its status, and how many trials and epochs."""
    [row] = re.findall(rf"<tr><td><a href=\"study\?id={study}\".*?</tr>", text, re.DOTALL)
    cells = [unescape(re.sub(r"<[^>]+>", "", cell)) for cell in re.findall(r"<td.*?</td>", row)]
    _, status, _, trials, epochs, *_ = cells
    return [status, trials, epochs]


def expected_row(reader: Reader, study: str) -> Sequence[str]:
    """The same, as the ledger has it."""
    row, trials = reader.study(study), reader.trials(study)
    over = sum(trial.finished_at is not None for trial in trials)
    epochs, all_epochs = len(reader.epochs(study)), TRIALS * (row.max_epochs or 0)
    return [row.status, f"{over}/{TRIALS}", f"{epochs}/{all_epochs}"]
