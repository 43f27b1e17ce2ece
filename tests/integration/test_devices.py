"""Capacity that changes: an operator drains, frees and gives back devices while a study runs."""

from __future__ import annotations

import json
import signal

import pytest
from penstock import FullBudget, create_study
from penstock.app.host import locks
from servers.installation import CORES, Installation, variables_of
from user_code import users_trainables

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.skipif(CORES < 2, reason="two devices need two cores"),
]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """An installation of two devices that nothing else uses."""
    site = Installation(tmp_path_factory.mktemp("home"), devices="cpu:2x1")
    with variables_of(site):
        yield site
    site.close()


@pytest.fixture
def go(tmp_path):
    """Once this file is there, studies hurry to their end."""
    return tmp_path / "go"


def submit(name, go, pace, n_trials, epochs):
    study = create_study(
        study_name=name,
        direction="maximize",
        metric="accuracy",
        sampler="grid",
        strategy=FullBudget(epochs),
        seed=5,
    )
    space = {"pace": [pace], "until": [str(go)], "width": list(range(4, 4 + n_trials))}
    study.submit(users_trainables.Paced, space)
    return study


def devices(site):
    return {facts["name"]: facts for facts in json.loads(site.penstock("devices", "--json"))}


def used(site, study, after=0):
    """The devices on which epochs after the ``after``-th were trained."""
    return {row.device for row in site.reader.epochs(study.id)[after:]}


def bits(site, study):
    """The state hash of every (trial, epoch)."""
    rows = site.reader.epochs(study.id)
    found = {(row.trial.rpartition("-")[2], row.epoch): row.state_hash for row in rows}
    assert len(found) == len(rows)
    return found


def test_a_study_goes_on_on_what_is_left_and_comes_back_with_the_same_bits(two, go):
    go.touch()
    alone = submit("alone", go, 0.1, n_trials=4, epochs=50)
    two.wait(alone.id)
    go.unlink()
    study = submit("drained", go, 0.1, n_trials=4, epochs=50)
    two.until(lambda: len(used(two, study)) == 2, "epochs on both devices")
    out, other = sorted(devices(two))
    assert two.penstock("devices", "drain", out) == f"taken out: {out}\n"
    two.until(lambda: devices(two)[out]["state"] == "drained", "its epoch ends")
    before = len(two.reader.epochs(study.id))
    two.until(lambda: len(two.reader.epochs(study.id)) >= before + 3, "it goes on")
    assert used(two, study, before) == {other}
    assert [work["study"] for work in devices(two)[other]["running"]] == ["drained"]
    assert devices(two)[out]["running"] == []

    # Its worker is started again; that does not lift the drain.
    incarnation = two.reader.devices()[0].incarnation
    assert locks.send_signal(two.settings.run, f"device-{out}", signal.SIGKILL)
    two.until(
        lambda: (
            (now := two.reader.devices()[0]).incarnation != incarnation and now.state == "drained"
        ),
        "it joins again",
    )
    before = len(two.reader.epochs(study.id))
    assert two.penstock("devices", "undrain", out) == f"given back: {out}\n"
    two.until(lambda: out in used(two, study, before), "it is used again")
    assert study.status == "running"
    go.touch()
    assert two.wait(study.id).status == "complete"
    assert bits(two, study) == bits(two, alone)


def test_devices_are_free_at_the_deadline_and_only_their_epochs_are_repeated(two, go):
    study = submit("freed", go, 5.0, n_trials=2, epochs=3)
    two.until(lambda: all(d["running"] for d in devices(two).values()), "both run")
    freed, word = two.penstock("devices", "free", "1", "--within", "0.3").split(maxsplit=1)
    assert word == "is free\n"
    facts = devices(two)
    assert (facts[freed]["state"], facts[freed]["running"]) == ("drained", [])
    assert freed not in used(two, study), "its epoch was revoked"
    said = two.penstock("devices", "free", "2", "--within", "1", status=2)
    assert "N = 2 is refused: allowed is 1 to 1" in said
    said = two.penstock("devices", "drain", "gpu", status=2)
    assert f"there is no device 'gpu'; there is {', '.join(sorted(facts))}" in said
    assert two.penstock("devices", "drain", freed, "--within", "1") == f"{freed} is free\n"
    two.penstock("devices", "undrain", freed)
    two.until(lambda: devices(two)[freed]["running"], "it is used again")
    go.touch()
    assert two.wait(study.id).status == "complete"
    assert len(bits(two, study)) == 2 * 3
