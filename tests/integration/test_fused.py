"""Trials of a study that are trained together in a lane, on real workers."""

from __future__ import annotations

import pytest
from installation import Installation, serving, variables_of
from penstock import FullBudget, create_study
from penstock.scheduler.model.events import EpochReported
from penstock.scheduler.model.study import number_of
from trainees import Small

pytestmark = pytest.mark.integration
EPOCHS = 8
SPACE = {"lr": [0.02, 0.04, 0.06, 0.08, 0.1, 0.12]}


@pytest.fixture(scope="module")
def seated(tmp_path_factory):
    site = Installation(tmp_path_factory.mktemp("seated"), devices="cpu:1x1*1x6")
    with variables_of(site):
        site.penstock("up")
        site.until(lambda: serving(site) and len(site.reader.devices()) == 1, "it joins")
        yield site
    site.close()


def begun(fuse, epochs=EPOCHS):
    study = create_study(
        metric="accuracy", direction="maximize", sampler="grid", seed=3, fuse=fuse,
        strategy=FullBudget(epochs), system="off",
    )  # fmt: skip
    study.submit(Small, SPACE)
    return study


def reports(site, study):
    return [event for _, event in site.reader.of_trials(study.id, EpochReported)]


def states(site, study):
    return {(number_of(r.trial), r.epoch): r.state_hash for r in site.reader.epochs(study.id)}


def values(site, study):
    return {(number_of(r.trial), r.epoch): r.metrics for r in site.reader.epochs(study.id)}


def test_they_have_the_bits_that_each_has_alone(seated):
    together, alone = begun("auto"), begun("off")
    for study in (together, alone):
        assert seated.wait(study.id).status == "complete"
    assert max(each.together for each in reports(seated, together)) > 2
    assert {each.together for each in reports(seated, alone)} == {1}
    assert len(states(seated, together)) == EPOCHS * len(SPACE["lr"])
    assert states(seated, together) == states(seated, alone)
    assert values(seated, together) == values(seated, alone)


def test_their_trainer_s_end_loses_and_changes_nothing(seated):
    alone = begun("off", 30)
    assert seated.wait(alone.id).status == "complete"
    together = begun("auto", 30)

    def at_work():
        found = reports(seated, together)
        return len(found) > 20 and max(each.together for each in found) > 2

    seated.until(at_work, "they are trained together")
    for trainer in seated.trainers():
        trainer.kill()
    assert seated.wait(together.id).status == "complete"
    assert states(seated, together) == states(seated, alone)
