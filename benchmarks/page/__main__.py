"""The pages of ``penstock ui``: how soon they are visible, their costs, and their correctness.

    python -m benchmarks.page --json FILE [--quick] [--only browser|pages|restarts|list]

In headless Chromium, a study of 10,000 trials that goes on (with ``--quick`` 1,000):

- ``first_paint_s``: from the request to the first paint with content, the first time that any page
  is asked for after ``penstock ui`` was started, with nothing cached anywhere: the list or the
  study, the slower one. ``.again``: the study's later, median. ``list_drawn_s``, ``drawn_s``: until
  the list, and the study's curves are there.
- ``main_thread_ms.p95``: of each update of the open page the longest time for which the browser
  could not react. Below 50 ms a browser does not say, so these count as 50. ``.load``: the same
  while the page is loaded. ``main_thread_cpu_ms``: the same of each update as CPU time, which other
  work on the machine hardly changes. ``update_every_s``: the time between two updates, median.

- ``desk.sort_s``, ``desk.filter_s``, ``desk.compare_s``: from a click on a column's title, from a
  filter's last key, and from the request for a page that compares twelve trials, until the answer
  is there: median. While the study goes on, its reader sorts, filters and chooses all the time, and
  ``main_thread_ms.p95`` is measured so. ``desk.compare_main_ms``: the longest task of that page.

With 100 open pages (streams of events, and what they tell of is asked for again), on a real
installation with a study of empty tasks of one epoch each, one at a time:

- ``scheduler_cpu.ratio``: CPU time of the scheduler a task, with them and without, in turns; median
  of the pairs.
- ``update_ms.p50``, ``.p99``: from an epoch's report to the message about it at each page.
- ``wrong_after_restart``: with eight slots, the scheduler is killed, comes back, trains on, and the
  study is paused. The number of the 100 pages and of a page in Chromium that then show other
  trials, states, values or epochs than the ledger has. ``right_after_s.max``: until all were right.

With 1,000 studies and some 940,000 events (with ``--quick`` 100 and 2,000):

- ``list_cpu_s.beyond``: CPU time of ``penstock ls`` beyond that of ``penstock --version``, the
  smallest of five each, with one more study, which goes on: 500 of its trials have begun (with
  ``--quick`` 50). ``.over``: the same without that one. ``.json``: with it, of ``ls --json``.
  ``.status``: of ``penstock status``, which shows it.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles
from urllib.parse import urlsplit

from benchmarks.lib.open_pages import served
from benchmarks.lib.page_figures import EIGHT, ONE, restarts, with_and_without
from benchmarks.lib.studies import installation
from benchmarks.page.ledger import LargeStudy
from benchmarks.page.main_thread import LOADED, NOTE, TOLD, by_update, recorded
from benchmarks.page.many_studies import add_open, write
from testkit.browser import Browser, chromium
from testkit.results import Run

PARTS = ("browser", "pages", "restarts", "list")
#: Least number of updates of a page while it is watched, for a minute at least.
FEWEST = 20
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
ROW = "document.querySelector('#studies tbody tr')"
CURVES = "document.querySelector('#curves .scatterlayer .trace')"
#: Seconds from one thing that a reader does to the next.
PACE = 1.0
#: The filter that is typed: it chooses a part of the trials.
FILTER = "lr<0.01 epochs>=3"
#: The trials that are compared.
COMPARED = ",".join(str(n) for n in range(12))


def opened(browser: Browser, url: str, drawn: str) -> tuple[float, float]:
    """Seconds until the page's first paint with content, and until ``drawn`` is there."""
    browser.leave()
    browser.open(url)
    browser.until(drawn)
    whole = float(str(browser.value("performance.now()")))
    browser.until(PAINTED)
    return float(str(browser.value(PAINTED))) / 1e3, whole / 1e3


#: The acts of a reader at the desk, as functions of the page.
DESK = """(() => {
  const all = what => [...document.querySelectorAll(what)];
  const field = document.querySelector("#search [type=search]");
  window.sort = title => all("#table th a").find(a => a.innerText === title).click();
  window.sorted = title => all("#table th[aria-sort]").some(th => th.innerText === title);
  window.filter = text => {
    field.value = text;
    field.dispatchEvent(new Event("input", {bubbles: true}));
  };
  window.filtered = text => !all(".choices a")[1].ariaCurrent === Boolean(text);
  window.choose = () => document.querySelector("#table input[name=n]")?.click();
})()"""


def used(browser: Browser, turn: int) -> tuple[str, float]:
    """Sort, filter or choose, in turns, as a reader does: what, and seconds until it is there."""
    title, text = ("lr", "x", "Epochs")[turn // 3 % 3], (FILTER, "")[turn // 3 % 2]
    what, act, done = (
        ("sort", f"sort('{title}')", f"sorted('{title}')"),
        ("filter", f"filter('{text}')", f"filtered('{text}')"),
        ("choose", "choose()", "true"),
    )[turn % 3]
    began = time.monotonic()
    browser.value(act)
    browser.until(done)
    return what, time.monotonic() - began


def _updates(browser: Browser) -> int:
    return int(str(browser.value("noted.updates.length")))


def large(browser: Browser, *, quick: bool) -> dict[str, float]:
    """Return times of a study of many trials in the browser."""
    with tempfile.TemporaryDirectory() as folder:
        study = LargeStudy(Path(folder), 1_000 if quick else 10_000)
        try:
            with served(Path(folder)) as server:
                listed = opened(browser, server.url, ROW)
            with served(Path(folder)) as server:
                url = server.at(f"/study?id={study.id}")
                first = opened(browser, f"{url}&{urlsplit(server.url).query}", CURVES)
                again = [opened(browser, url, CURVES) for _ in range(2 if quick else 5)]
                browser.value(NOTE)
                browser.value(DESK)
                loaded = browser.value(LOADED)
                with recorded(browser) as cpu:
                    begun, least = time.monotonic(), 10 if quick else 60
                    taken: list[tuple[str, float]] = []
                    while time.monotonic() < begun + least or _updates(browser) < FEWEST:
                        study.go_on()
                        if time.monotonic() >= begun + len(taken) * PACE:
                            taken.append(used(browser, len(taken)))
                        time.sleep(0.05)
                    noted = browser.value("noted")
                # What the browser keeps of the page before counts for none of these.
                side = server.at(f"/compare?id={study.id}&n={COMPARED}")
                compared = [opened(browser, side, CURVES) for _ in range(2 if quick else 5)]
                browser.value(NOTE)
                alone = browser.value(LOADED)
        finally:
            study.close()
    updates, tasks = noted["updates"], [(a, b) for a, b in noted["tasks"]]
    longest = by_update(updates, tasks)
    apart = [later - at for at, later in pairwise(updates)]
    return {
        "trials": study.trials,
        "trials.over": study.over,
        "first_paint_s": max(first[0], listed[0]),
        "list_drawn_s": listed[1],
        "first_paint_s.again": median(paint for paint, _ in again),
        "drawn_s": first[1],
        "drawn_s.again": median(drawn for _, drawn in again),
        "updates": len(updates),
        "update_every_s": median(apart) / 1e3,
        "main_thread_ms.p95": quantiles(longest, n=20)[18],
        "main_thread_cpu_ms.p95": quantiles(cpu, n=20)[18],
        "main_thread_cpu_ms.max": max(cpu),
        "desk.sort_s": median(seconds for what, seconds in taken if what == "sort"),
        "desk.filter_s": median(seconds for what, seconds in taken if what == "filter"),
        "desk.compare_s": median(drawn for _, drawn in compared),
        "desk.compare_main_ms": max((length for _, length in alone), default=TOLD),
        "main_thread_ms.load": max((length for _, length in loaded), default=TOLD),
    }


def list_costs(*, quick: bool) -> dict[str, float]:
    """Return the CPU time of the list of many studies in the terminal."""
    with tempfile.TemporaryDirectory() as folder:
        studies, trials, begun = (100, 6, 50) if quick else (1_000, 220, 500)
        write(Path(folder), studies, trials)
        # Modules are compiled once, as where Penstock is installed, whatever this environment says.
        compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": f"{folder}/bytecode"}
        environ = os.environ | {"PENSTOCK_HOME": folder} | compiled

        def seconds(*words: str) -> float:
            command, taken = [sys.executable, "-m", "penstock", *words], list[float]()
            for _ in range(5):
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                subprocess.run(command, env=environ, check=True, stdout=subprocess.DEVNULL)
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
            return min(taken)

        least, over = seconds("--version"), seconds("ls")
        add_open(Path(folder), studies, begun)
        return {
            "list_cpu_s.version": least,
            "list_cpu_s.over": over - least,
            "list_cpu_s.beyond": seconds("ls") - least,
            "list_cpu_s.json": seconds("ls", "--json") - least,
            "list_cpu_s.status": seconds("status") - least,
        }


def measure(*, quick: bool, parts: Sequence[str]) -> dict[str, float]:
    """The figures of these of ``PARTS``."""
    figures: dict[str, float] = {"load_before": os.getloadavg()[0]}
    if "list" in parts:
        figures |= list_costs(quick=quick)
    if parts == ("list",):  # it needs no browser
        return figures | {"load_after": os.getloadavg()[0]}
    # What the browser started may still write into its profile when the browser has ended.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(Path(profile))
        try:
            if "browser" in parts:
                figures |= large(browser, quick=quick)
            if "pages" in parts:
                with installation(ONE) as settings:
                    figures |= with_and_without(settings, 2 if quick else 8, 300 if quick else 1000)
            if "restarts" in parts:
                with installation(EIGHT) as settings:
                    figures |= restarts(settings, browser, 2 if quick else 5)
        finally:
            browser.close()
    return figures | {"load_after": os.getloadavg()[0]}


def main() -> None:
    """Print the figures, write them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="1,000 trials, two pairs: rough")
    parser.add_argument("--only", choices=PARTS, help="one part of the figures")
    options = parser.parse_args()
    this_run = Run("page", baseline="no open page")
    if chromium() is None and options.only != "list":
        print("Nothing was measured: there is no chromium here. Install chromium.")
        return
    figures = measure(quick=options.quick, parts=(options.only,) if options.only else PARTS)
    for name, value in figures.items():
        print(f"{name:34} {value:10.3f}")
    this_run.write(options.json, figures)


if __name__ == "__main__":
    main()
