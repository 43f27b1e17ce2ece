"""The pages of ``penstock ui`` with real devices: what is done there is done, and stays right."""

from __future__ import annotations

import json
import os
import signal
from contextlib import contextmanager

import pytest
from machines.browser import browser_in
from penstock import Float, FullBudget, create_study
from penstock.app.host import locks
from servers.page_server import PageServer
from user_code.users_trainables import Paced

pytestmark = [pytest.mark.integration, pytest.mark.extension("report", "pages")]

BUTTONS = "[...document.querySelectorAll('#forms button')].map(each => each.innerText)"
PRESS = "[...document.querySelectorAll('#forms button')].find(b => b.innerText === '{}').click()"
SAID = "document.getElementById('said').innerText"
STATUS = "document.querySelector('#progress .status').innerText"


@contextmanager
def pages_of(site):
    server = PageServer(site.settings.home, environment=site.environment)
    try:
        server.enter()
        yield server
    finally:
        server.close()


def begun(site, name, n_trials, go):
    """A study that trains slowly until the file ``go`` is there; one of its trials runs."""
    space = {"lr": Float(1e-3, 1e-1, log=True), "pace": [0.2], "until": [str(go)]}
    study = create_study(
        study_name=name, metric="loss", sampler="random", strategy=FullBudget(60), seed=5
    )
    study.submit(Paced, space, n_trials)
    site.until(site.reader.running, "a trial runs")
    return study


def test_a_study_is_controlled_from_its_page_and_its_scheduler_dies_and_comes_back(site, tmp_path):
    go = tmp_path / "go"
    study = begun(site, "paged", 6, go)
    with pages_of(site) as pages:
        assert "paged/0" in pages.page("/devices")
        assert "paged/0" in pages.page("/plan")
        assert pages.act("weight", study="paged", weight="2.5", priority="1") == (
            200,
            "paged has weight 2.5 and priority 1",
        )
        assert "weight 2.5, priority 1" in pages.page("/")
        assert pages.act("enqueue", study="paged", **{"param.lr": "0.015"})[0] == 200
        status, words = pages.act("enqueue", study="paged", **{"param.lr": "7"})
        assert (status, "params['lr'] = 7.0" in words) == (422, True)

        assert pages.act("pause", study="paged") == (
            200,
            "paged is paused: penstock resume paged",
        )
        site.until(lambda: not site.reader.running(), "what ran ends its epoch")
        assert "it is paused: continue it" in pages.page("/study?id=paged")
        assert pages.act("pause", study="paged")[0] == 422

        stream = pages.connect("/events?seen=0")
        pid = locks.pid_of(site.settings.run, "scheduler")
        os.kill(pid, signal.SIGKILL)
        assert _told_all(stream)
        site.until(lambda: locks.pid_of(site.settings.run, "scheduler") not in (None, pid))
        site.until(lambda: "<td>paused</td>" in pages.page("/plan"), "the plan is there again")

        name = site.reader.devices()[0].device.name
        assert pages.act("drain", device=name) == (200, f"taken out: {name}")
        assert 'value="undrain"' in pages.page("/devices")
        assert pages.act("undrain", device=name) == (200, f"given back: {name}")

        go.touch()
        assert pages.act("resume", study="paged")[0] == 200
        assert site.wait(study.id).status == "complete"
        assert 0.015 in [trial.params["lr"] for trial in site.reader.trials(study.id)]
        assert pages.act("extend", study="paged", by="1") == (
            200,
            "paged goes on to 7 trials: penstock watch paged",
        )
        assert site.wait(study.id).status == "complete"
        assert "7/7" in pages.page("/")

        go.unlink()
        pages.act("extend", study="paged", by="1")
        assert pages.act("cancel", study="paged") == (200, "paged is cancelled")
        assert '<span class="status cancelled">' in pages.page("/study?id=paged")


def test_a_person_presses_the_buttons_and_watches_the_page_follow(site, tmp_path):
    go = tmp_path / "go"
    begun(site, "pressed", 2, go)
    browser = browser_in(tmp_path / "profile")
    with pages_of(site) as pages:
        try:
            browser.open(pages.url)
            browser.open(pages.at("/study?id=pressed"))
            browser.value(PRESS.format("pause"))
            browser.until(f"{SAID}.startsWith('pressed is paused')")
            browser.until(f"{STATUS} === 'paused'")
            browser.until(f"{BUTTONS}.includes('resume')")
            pid = locks.pid_of(site.settings.run, "scheduler")
            os.kill(pid, signal.SIGKILL)
            site.until(lambda: locks.pid_of(site.settings.run, "scheduler") not in (None, pid))
            go.touch()
            browser.value(PRESS.format("resume"))
            browser.until(f"{SAID}.startsWith('pressed goes on')")
            browser.until(f"{STATUS} === 'complete'")
            browser.until(f"{BUTTONS}.join() === 'extend'")
            assert browser.value("document.querySelectorAll('#curves .trace').length") == 2
        finally:
            browser.close()


def _told_all(stream) -> bool:
    """Return True if a page is told that all has changed, as it is when a scheduler ends."""
    return any(b"data: " in line and "all" in json.loads(line[6:]) for line in stream)
