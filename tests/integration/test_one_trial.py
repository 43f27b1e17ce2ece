"""Single trials on real devices: stopped, paused, sent on and tried again, with the same bits."""

from __future__ import annotations

import os
import signal

import pytest
from machines.browser import browser_in
from penstock import Float, FullBudget, Limits, UsageError, create_study
from penstock.app.host import locks
from servers.page_server import PageServer
from user_code.users_trainables import OnceUnlucky, Paced

pytestmark = [pytest.mark.integration, pytest.mark.extension("steering")]

KIND = {"metric": "loss", "sampler": "random", "seed": 5}


@pytest.fixture
def paced(tmp_path):
    """The space of trials that are slow until ``go`` is there, and that file."""
    go = tmp_path / "go"
    return {"lr": Float(1e-3, 1e-1, log=True), "pace": [1.0], "until": [str(go)]}, go


def table(site, study, *numbers):
    """The bits and values of these trials' epochs."""
    wanted = {site.reader.trials(study.id)[number].id: number for number in numbers}
    return {
        (wanted[row.trial], row.epoch): (row.state_hash, row.value)
        for row in site.reader.epochs(study.id)
        if row.trial in wanted
    }


def states(site, study):
    return [row.state for row in site.reader.trials(study.id)]


def test_what_a_person_decides_changes_no_bits_and_outlives_the_scheduler(site, paced):
    space, go = paced
    study = create_study(study_name="steered", strategy=FullBudget(60), **KIND)
    study.submit(Paced, space, 3)
    site.until(lambda: len(site.reader.epochs(study.id)) > 1, "some epochs")
    said = site.penstock("trial", "stop", "steered/0", "--reason", "it diverges")
    assert "trial 0 of steered is stopped after its last accepted epoch" in said
    site.until(lambda: states(site, study)[0] in ("stopped", "cancelled"), "it is stopped")
    assert "it diverges" in site.penstock("story", "steered/0")
    with pytest.raises(UsageError, match="steered has no trial 7: its trials are 0 to 2"):
        study.trial(7).stop()
    study.trial(1).pause(reason="lunch")
    site.until(lambda: states(site, study)[1] == "waiting", "it ends its epoch")
    pid = locks.pid_of(site.settings.run, "scheduler")
    os.kill(pid, signal.SIGKILL)
    site.until(lambda: locks.pid_of(site.settings.run, "scheduler") not in (None, pid))
    go.touch()
    site.until(lambda: states(site, study)[2] == "completed", "the other one goes on")
    assert states(site, study)[1] == "waiting"
    assert "lunch" in site.penstock("plan")
    study.trial(1).resume()
    assert site.wait(study.id).status == "complete"
    assert "is over already" in site.penstock("trial", "stop", "steered/1", status=2)
    study.trial(1).promote(62)
    site.until(lambda: site.reader.trials(study.id)[1].epoch == 62, "it is trained further")
    assert site.wait(study.id).status == "complete"
    undisturbed = create_study(study_name="unsteered", strategy=FullBudget(62), **KIND)
    undisturbed.optimize(Paced, space, 3, show_progress=False)
    found, expected = table(site, study, 0, 1, 2), table(site, undisturbed, 0, 1, 2)
    assert found.items() <= expected.items()
    assert len(table(site, study, 1)) == 62
    study.enqueue_trial({"lr": 0.05, "pace": 1.0, "until": str(go)})
    site.until(lambda: len(site.reader.trials(study.id)) == 4, "one trial more")
    assert site.wait(study.id).status == "complete"
    assert dict(site.reader.trials(study.id)[3].params)["lr"] == 0.05


def test_a_failed_trial_is_tried_again(site, tmp_path):
    study = create_study(
        study_name="unlucky-once", strategy=FullBudget(3), limits=Limits(retries=0), **KIND
    )
    study.submit(OnceUnlucky, {"lr": [0.1], "marker": [str(tmp_path / "marker")]}, 1)
    assert site.wait(study.id).status == "failed"
    assert states(site, study) == ["failed"]
    assert "is tried again" in site.penstock("trial", "retry", "unlucky-once/0")
    site.until(lambda: states(site, study) == ["completed"], "it is tried again")
    assert site.wait(study.id).status == "complete"


@pytest.mark.extension("pages")
def test_a_person_stops_a_trial_on_its_page(site, paced, tmp_path):
    space, go = paced
    study = create_study(study_name="seen", strategy=FullBudget(60), **KIND)
    study.submit(Paced, space, 2)
    site.until(lambda: len(site.reader.epochs(study.id)) > 1, "some epochs")
    browser, server = browser_in(tmp_path / "profile"), PageServer(site.settings.home)
    try:
        browser.open(server.url)
        browser.open(server.at(f"/trial?id={study.id}&n=0"))
        browser.until("document.querySelector('#offers button[value=stop]')")
        browser.value("document.querySelector('#offers [name=reason]').value = 'it diverges'")
        browser.value("document.querySelector('#offers button[value=stop]').click()")
        browser.until("document.getElementById('said').className === 'done'")
        browser.until("document.querySelector('#story').innerText.includes('it diverges')")
        browser.until("!document.querySelector('#offers button[value=stop]')")
    finally:
        browser.close()
        server.close()
    go.touch()
    assert site.wait(study.id).status == "complete"
    assert states(site, study)[0] in ("stopped", "cancelled")
