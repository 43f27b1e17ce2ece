"""Trials of a study that are trained together in a lane, on real workers."""

from __future__ import annotations

import re

import pytest
from installation import outcome, reports, up
from page_server import PageServer
from penstock import FullBudget, Resources, create_study
from trainees import Waits

pytestmark = pytest.mark.integration
EPOCHS = 8
SPACE = {"lr": [0.02, 0.04, 0.06, 0.08, 0.1, 0.12], "steps": [20]}


@pytest.fixture(scope="module")
def seated(tmp_path_factory):
    with up(tmp_path_factory.mktemp("seated"), "cpu:1x1*1x6", 1) as site:
        yield site


def begun(fuse, epochs=EPOCHS):
    study = create_study(
        metric="accuracy", direction="maximize", sampler="grid", seed=3, fuse=fuse,
        strategy=FullBudget(epochs), system="off",
    )  # fmt: skip
    study.submit(Waits, SPACE)
    return study


def test_they_have_the_bits_that_each_has_alone(seated):
    together, alone = begun("auto"), begun("off")
    for study in (together, alone):
        assert seated.wait(study.id).status == "complete"
    assert max(each.together for each in reports(seated, together)) > 2
    assert {each.together for each in reports(seated, alone)} == {1}
    assert len(outcome(seated, together)) == EPOCHS * len(SPACE["lr"])
    assert outcome(seated, together) == outcome(seated, alone)


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
    assert outcome(seated, together) == outcome(seated, alone)


def test_who_is_trained_together_now_is_on_the_page_of_devices(seated):
    study = begun("auto", 5000)
    server = PageServer(seated.settings.home, environment=seated.environment)
    try:
        server.enter()
        words = r"lane 0: [^<]* \(trained together, [3-6] at once in the last epoch\)"
        for path in ("/devices", f"/study?id={study.id}"):
            found = seated.until(lambda p=path: re.search(words, server.page(p)), "it is said")
            assert found[0].count(f"{study.study_name}/") > 2
    finally:
        server.close()
        study.cancel()
    seated.wait(study.id)


def test_trials_that_could_be_wide_are_trained_together_while_there_are_many(tmp_path):
    """Their batches are in shards either way, so that no width changes a bit."""

    def begin(fuse):
        study = create_study(
            metric="accuracy", direction="maximize", sampler="grid", seed=3, fuse=fuse,
            strategy=FullBudget(4), system="off", resources=Resources(max_width=2, shards=2),
        )  # fmt: skip
        study.submit(Waits, {"lr": [0.01 * n for n in range(1, 15)], "steps": [50]})
        return study

    with up(tmp_path, "cpu:2x1*1x8", 2) as site:
        studies = together, alone = begin("auto"), begin("off")
        for study in studies:
            assert site.wait(study.id).status == "complete"
        assert max(each.together for each in reports(site, together)) > 2
        assert outcome(site, together) == outcome(site, alone)
