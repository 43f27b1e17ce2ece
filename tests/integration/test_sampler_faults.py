"""Killed processes cost a study no trial and no trace of one, in any process that samples."""

from __future__ import annotations

import pytest
from penstock.scheduler.model.events import Remarked
from servers.installation import Installation, variables_of

from testkit.faults.sampler_faults import strike, submitted, verdict, wait

pytestmark = [pytest.mark.integration, pytest.mark.slow]
CLEAN = {"lost": [], "doubled": [], "wrong": []}
TRIALS = 8


@pytest.fixture(scope="module")
def slot(tmp_path_factory):
    """An installation with one slot: the sampler that draws next is the one that was hit."""
    site = Installation(tmp_path_factory.mktemp("slot"), devices="cpu:1x1")
    with variables_of(site):
        yield site
    site.close()


def remarks(site, study):
    return {
        trial.number: event.text
        for trial in site.reader.trials(study.id)
        for _, event in site.reader.events(trial.id)
        if isinstance(event, Remarked)
    }


# ``python -m benchmarks.chaos --samplers`` hits every kind with every fault.
@pytest.mark.parametrize(
    ("kind", "fault", "begins_anew"),
    [
        ("group", "trainer", True),
        ("nsga2", "worker", True),
        ("own", "scheduler", False),
        ("hosted own", "sampler", True),
    ],
)
def test_what_a_trial_drew_and_wrote_is_there_once(slot, tmp_path, kind, fault, begins_anew):
    study = submitted(kind, TRIALS, tmp_path)
    strike(slot.settings, study, fault)
    wait(study)
    assert study.status == "complete", slot.reader.study(study.id).message
    assert verdict(slot.settings, study, TRIALS, tmp_path) == CLEAN
    found = remarks(slot, study)
    assert len(found) == begins_anew, "the first trial of a sampler that begins anew says so"
    assert 0 not in found
    if fault == "trainer":
        [number] = found
        assert "its sampler began again" in slot.penstock("story", f"{study.id}/{number}")
