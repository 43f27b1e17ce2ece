"""A person at the page, with real trials: stops a bad one, branches a good one, reads of both."""

from __future__ import annotations

import pytest
from machines.browser import browser_in
from penstock import Float, FullBudget, create_study
from servers.page_server import PageServer
from user_code.users_trainables import Paced

pytestmark = [
    pytest.mark.integration,
    pytest.mark.extension("pages", "steering", "branches"),
]


def found(browser, kind, words, where):
    """Return the element with these words, once it is there."""
    things = f"[...document.querySelectorAll('{where} {kind}')]"
    here = f"{things}.find(each => each.innerText === '{words}')"
    browser.until(here)
    return here


def follow(browser, words, where="body"):
    """Follow a link; it is waited for, which a click in the browser is not."""
    browser.open(str(browser.value(f"{found(browser, 'a', words, where)}.href")))


def press(browser, words, where):
    browser.value(f"{found(browser, 'button', words, where)}.click()")


def fill(browser, where, text):
    browser.until(f"document.querySelector('{where}')")
    browser.value(f"document.querySelector('{where}').focus()")
    browser.value(f"document.querySelector('{where}').select()")
    browser.send("Input.insertText", text=text)


def test_a_person_stops_a_bad_trial_branches_a_good_one_and_finds_both_in_the_report(
    site, tmp_path
):
    go = tmp_path / "go"
    space = {"lr": Float(1e-3, 1e-1, log=True), "pace": [1.0], "until": [str(go)]}
    study = create_study(
        study_name="desk", strategy=FullBudget(60), metric="loss", sampler="random", seed=5
    )
    study.submit(Paced, space, 2)
    site.until(lambda: len(site.reader.epochs(study.id)) > 3, "some epochs")
    site.until(lambda: all(t.epoch for t in site.reader.trials(study.id)), "both have begun")
    browser, server = browser_in(tmp_path / "profile"), PageServer(site.settings.home)
    try:
        browser.open(server.url)
        follow(browser, "desk")
        follow(browser, "0", "#table")
        fill(browser, "#offers [name=reason]", "it diverges")
        press(browser, "stop", "#offers")
        browser.until("document.getElementById('said').className === 'done'")
        browser.until("document.querySelector('#story').innerText.includes('it diverges')")
        follow(browser, "desk")
        follow(browser, "1", "#table")
        fill(browser, "#branch [name=at]", "1")
        fill(browser, '#branch [name="param.lr"]', "0.05")
        fill(browser, "#branch [name=reason]", "it looks good")
        browser.until(
            "document.querySelector('#branch output').innerText.startsWith('It trains 59')"
        )
        press(browser, "branch", "#branch")
        browser.until(
            "document.querySelector('#branch output').innerText.startsWith('trial 2 of desk')"
        )
        go.touch()
        assert site.wait(study.id).status == "complete"
        follow(browser, "desk")
        follow(browser, "Report", "header")
        browser.until("document.body?.innerText.includes('Branches')")
        text = browser.text()
        assert "it diverges" in text
        assert "it looks good" in text
        assert site.reader.trials(study.id)[2].params["lr"] == 0.05
    finally:
        browser.close()
        server.close()
