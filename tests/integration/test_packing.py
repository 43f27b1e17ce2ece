"""Two slots on one core, real workers: sharing is kept where it gains, else undone."""

from __future__ import annotations

import json

import pytest
from penstock import Float, FullBudget, create_study
from servers.installation import Installation, variables_of
from user_code import shared_functions as functions

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture
def site(tmp_path):
    site = Installation(tmp_path / "home", devices="cpu:1x1*2")
    with variables_of(site):
        yield site
    site.close()


def judged(site, function, folder):
    """Return the plan's facts of the device once it is known if sharing gains."""
    study = create_study(metric="loss", sampler="random", strategy=FullBudget(3000), seed=3)
    study.submit(function, {"x": Float(0.0, 1.0), "folder": [str(folder)]}, n_trials=3)

    def found():
        [device] = json.loads(site.penstock("plan", "--json"))["shared"] or [{"why": ""}]
        return device if device["why"].startswith("2 at once have") else None

    facts = site.until(found, "it is found out what sharing does")
    rows = site.reader.epochs(study.id)
    assert {row.slot for row in rows} == {0, 1}, "two were tried at once"
    return facts


def test_trials_that_wait_share_a_core(site, tmp_path):
    device = judged(site, functions.waits, tmp_path)
    assert device["trials"] == 2, device


def test_trials_that_hinder_each_other_do_not(site, tmp_path):
    seen = tmp_path / "seen"
    seen.mkdir()
    judged(site, functions.hinders, seen)
    [study] = site.reader.studies()

    def alone():
        rows = site.reader.epochs(study.id)[-8:]
        if len(rows) < 8 or len({row.trial for row in rows}) > 1:
            return False
        # On a busy machine epochs may begin to take another time; then it is found out again.
        said = " ".join(site.penstock("plan").split())
        return "is not shared but has 1 trial: 2 at once have" in said

    site.until(alone, "one trial has the device to itself again, and the plan says why")
