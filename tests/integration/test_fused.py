"""Trials of a study that are trained together in a lane, on real workers."""

from __future__ import annotations

import re

import pytest
from penstock import FullBudget, Resources, create_study
from servers.installation import outcome, reports, so_far, up
from servers.page_server import PageServer
from user_code.trainees import Waits

pytestmark = [pytest.mark.integration, pytest.mark.extension("lanes")]
#: More epochs than any machine trains before a test has seen what it waits for.
ENDLESS = 100_000
SPACE = {"lr": [0.02, 0.04, 0.06, 0.08, 0.1, 0.12], "steps": [20]}


@pytest.fixture(scope="module")
def seated(tmp_path_factory):
    with up(tmp_path_factory.mktemp("seated"), "cpu:1x1*1x6", 1) as site:
        yield site


def begun(fuse, epochs=ENDLESS):
    study = create_study(
        metric="accuracy", direction="maximize", sampler="grid", seed=3, fuse=fuse,
        strategy=FullBudget(epochs), system="off",
    )  # fmt: skip
    study.submit(Waits, SPACE)
    return study


def met(site, study, more=0):
    """Return True if over two were trained together, in an epoch after the first ``more``."""
    return max((each.together for each in reports(site, study)[more:]), default=0) > 2


def has_the_bits_of_each_alone(site, study, begin):
    """Compare its epochs so far with those of the same study with each trial alone.

    ``begin`` begins that study. Returns the number of trials.
    """
    last, found = so_far(site, study)
    alone = begin("off", last)
    assert site.wait(alone.id).status == "complete"
    assert {each.together for each in reports(site, alone)} == {1}
    expected = outcome(site, alone)
    assert found == {key: expected[key] for key in found}
    return len(expected) // last


def test_they_have_the_bits_that_each_has_alone(seated):
    together = begun("auto")
    seated.until(lambda: met(seated, together), "they are trained together")
    assert has_the_bits_of_each_alone(seated, together, begun) == len(SPACE["lr"])


def test_their_trainer_s_end_loses_and_changes_nothing(seated):
    together = begun("auto")
    seated.until(lambda: met(seated, together, 20), "they are trained together")
    for trainer in seated.trainers():
        trainer.kill()
    before = len(reports(seated, together))
    seated.until(lambda: met(seated, together, before + 20), "they are again")
    assert has_the_bits_of_each_alone(seated, together, begun) == len(SPACE["lr"])


def test_who_is_trained_together_now_is_on_the_page_of_devices(seated):
    study = begun("auto")
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

    def begin(fuse, epochs=ENDLESS):
        study = create_study(
            metric="accuracy", direction="maximize", sampler="grid", seed=3, fuse=fuse,
            strategy=FullBudget(epochs), system="off", resources=Resources(max_width=2, shards=2),
        )  # fmt: skip
        study.submit(Waits, {"lr": [0.01 * n for n in range(1, 15)], "steps": [50]})
        return study

    with up(tmp_path, "cpu:2x1*1x8", 2) as site:
        together = begin("auto")
        site.until(lambda: met(site, together), "they are trained together")
        assert has_the_bits_of_each_alone(site, together, begin) == 14
