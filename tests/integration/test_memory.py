"""Trials are estimated before they run and measured as they run, by real workers."""

from __future__ import annotations

import json

import pytest
from penstock import FullBudget, create_study
from servers.installation import Installation, variables_of
from user_code.users_trainables import SoonEstimated

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.extension("memory")]


@pytest.fixture
def site(tmp_path):
    site = Installation(tmp_path / "home", devices="cpu:1x1")
    with variables_of(site):
        yield site
    site.close()


def test_penstock_memory_shows_what_trials_need_before_they_have_run(site, tmp_path):
    """The first trial trains slowly until the others are known: estimates follow from its time."""
    study = create_study(
        metric="accuracy", direction="maximize", sampler="random", strategy=FullBudget(20000)
    )
    space = {"pace": [0.01], "until": [str(tmp_path / "never")], "batch_size": [32, 64]}
    study.submit(SoonEstimated, space, n_trials=2)

    def facts():
        return json.loads(site.penstock("memory", study.id, "--json"))["trials"]

    known = site.until(
        lambda: (found := facts()) and all(each["estimate"] for each in found) and found,
        "all trials are estimated",
    )
    assert all(each["needs"] >= each["estimate"]["reserved"] for each in known)
    (measured,) = [each for each in known if each["measured"]]
    assert measured["number"] == 0, "the others have not begun"
    assert abs(measured["error"]) < 0.01
    assert measured["process"] > 30 * 2**20
    (other,) = [each for each in known if each is not measured]
    assert other["expected"] > 30 * 2**20 and not other["process"]
    said = site.penstock("story", f"{study.id}/0")
    assert "needs was measured: " in " ".join(said.split())
    site.penstock("cancel", study.id)
