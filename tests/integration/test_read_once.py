"""Trials of a study whose batches are read once for those in a lane, on real workers."""

from __future__ import annotations

import pytest
from penstock import FullBudget, create_study, nas
from penstock.extensions.sharing.node import folder_of
from penstock.scheduler.model.events import EpochReported, Remarked
from penstock.scheduler.model.study import number_of
from servers.installation import outcome, reports, so_far, up
from user_code.nas_shared_code import Net, ReadByPython
from user_code.streamed_code import (
    Noisy,
    ReadAndLogged,
    ReadAndLoggedApart,
    ReadSlowly,
    StepsSlowly,
)

pytestmark = [pytest.mark.integration, pytest.mark.extension("lanes", "nas", "prefixes", "sharing")]
#: More epochs than any machine trains before a test has seen what it waits for.
ENDLESS = 100_000
#: Epochs after which trials that have not met are taken to be seated apart for good.
PARTED = 100
LR = [0.02, 0.04, 0.06, 0.08, 0.1, 0.12]


@pytest.fixture(scope="module")
def seated(tmp_path_factory):
    with up(tmp_path_factory.mktemp("seated"), "cpu:1x1*1x4", 1) as site:
        yield site


def begun(code, fuse="auto", epochs=8, space=None):
    study = create_study(
        metric="accuracy", direction="maximize", sampler="grid", seed=3, fuse=fuse,
        strategy=FullBudget(epochs), system="off", seeding="shared",
    )  # fmt: skip
    study.submit(code, space or {"lr": LR})
    return study


def read_together(site, code, seats=4, space=None):
    """Return a study in which ``seats`` trials have read with others, its last epoch and outcome.

    A busy machine may have measured that company does not pay: then another study is asked.
    """
    for _ in range(20):
        study = begun(code, epochs=ENDLESS, space=space)

        def met(study=study):
            return len({each.trial for each in reports(site, study) if each.readers > 1}) >= seats

        def parted(study=study):
            return max([0, *(each.epoch for each in reports(site, study))]) > PARTED

        site.until(lambda met=met, parted=parted: met() or parted(), "each has read with others")
        last, found = so_far(site, study)
        if met():
            return study, last, found
    pytest.fail("too few have read with others")


def test_the_engine_seats_them_together_and_they_keep_their_bits(seated):
    shared, last, found = read_together(seated, ReadSlowly)
    assert {each.together for each in reports(seated, shared)} <= {0, 1}
    alone = begun(ReadSlowly, "off", last)
    assert seated.wait(alone.id).status == "complete"
    assert {each.readers for each in reports(seated, alone)} == {0}
    expected = outcome(seated, alone)
    assert len(expected) == last * len(LR)
    assert found == {key: expected[key] for key in found}
    numbers = {number for number, _ in found}
    stories = [seated.penstock("story", f"{shared.id}/{number}") for number in sorted(numbers)]
    assert any("its batches read once for" in each for each in stories)


def test_the_plan_says_that_batches_are_read_once(seated):
    study = begun(ReadSlowly, epochs=ENDLESS)
    seated.until(lambda: max([0, *(each.readers for each in reports(seated, study))]) > 1, "shared")
    plan = seated.penstock("plan")
    study.cancel()
    assert "its trials are not trained together" in plan
    assert "batches are read once for up to" in plan


def test_where_it_does_not_pay_the_engine_seats_them_apart(seated):
    study = begun(StepsSlowly, epochs=3)
    assert seated.wait(study.id).status == "complete"
    found = reports(seated, study)
    assert {each.readers for each in found} == {0}
    assert {each.alone for each in found[-3:]} == {0.0}, "nobody is beside the last one"


def test_different_architectures_are_seated_together_to_read_once(seated):
    space = nas.space(Net, inputs=4) | {"dropout": [0.3]}
    # Whether three or four pay as well is measured, which load may decide.
    _, last, found = read_together(seated, ReadByPython, seats=2, space=space)
    alone = begun(ReadByPython, "off", last, space)
    assert seated.wait(alone.id).status == "complete"
    expected = outcome(seated, alone)
    assert len(expected) == last * nas.size(space)
    assert found == {key: expected[key] for key in found}


@pytest.fixture(scope="module")
def two_devices(tmp_path_factory):
    with up(tmp_path_factory.mktemp("two"), "cpu:2x1", 2) as site:
        yield site
    assert not folder_of(site.settings.activations).exists(), "nothing is left in memory"


def test_trials_on_two_devices_read_each_a_part_and_keep_their_bits(two_devices, tmp_path):
    apart = 8 * 90

    def trained(name, rates):
        log = tmp_path / name
        space = {"lr": rates, "scale": [1], "log": [str(log)]}
        study = begun(ReadAndLogged, epochs=8, space=space)
        assert two_devices.wait(study.id).status == "complete"
        return log.stat().st_size, outcome(two_devices, study)

    expected = {}
    for number, rate in enumerate(LR[:2]):
        read, found = trained(f"alone-{number}", [rate])
        assert read == apart
        expected |= {(number, epoch): each for (_, epoch), each in found.items()}
    for attempt in range(60):  # on a busy machine one may be over before the other begins
        read, found = trained(f"beside-{attempt}", LR[:2])
        assert found == expected
        if read < 1.6 * apart:
            return
    pytest.fail("nothing was read once")


def left_in_memory(site):
    """Return the batches of studies, and the files kept with them."""
    folder = folder_of(site.settings.activations)
    return [*folder.iterdir()] if folder.exists() else []


def test_trials_of_a_study_read_once_though_one_s_trainer_is_killed(two_devices, tmp_path):
    """Nobody waits for the one that has died, and nothing stays in memory after the study."""
    epochs = 8
    logs = [tmp_path / "apart", tmp_path / "once"]
    spaces = [{"lr": LR, "log": [str(log)]} for log in logs]
    apart = begun(ReadAndLoggedApart, epochs=epochs, space=spaces[0])
    assert two_devices.wait(apart.id).status == "complete"
    once = begun(ReadAndLogged, epochs=epochs, space=spaces[1])
    two_devices.until(
        lambda: max([0, *(each.readers for each in reports(two_devices, once))]) > 1,
        "batches are read once",
    )
    assert left_in_memory(two_devices)
    two_devices.trainers()[0].kill()
    assert two_devices.wait(once.id).status == "complete"
    assert len(outcome(two_devices, once)) == epochs * len(LR)
    assert outcome(two_devices, once) == outcome(two_devices, apart)
    assert {each.readers for each in reports(two_devices, apart)} == {0}
    read_apart, read_once = (log.stat().st_size for log in logs)
    assert read_apart >= epochs * 90 * len(LR)
    assert read_once < 0.75 * epochs * 90 * len(LR)
    stories = [two_devices.penstock("story", f"{once.id}/{n}") for n in range(len(LR))]
    assert any("some of its batches read by other trainers" in each for each in stories)
    two_devices.until(lambda: not left_in_memory(two_devices), "memory is free")


def test_where_reading_is_fast_each_reads_for_itself_and_the_story_says_why(two_devices):
    """A busy machine may have made reading slow for a while: then another study is asked."""
    shared = [read_apart(two_devices)]
    while shared[-1] and len(shared) < 5:
        shared.append(read_apart(two_devices))
    assert shared[-1] == 0, shared


def read_apart(two_devices):
    """The most trials for which a batch was read, in a study whose story says why not more."""
    study = begun(Noisy, epochs=ENDLESS, space={"lr": LR[:2]})
    words = "reads its batches itself, as the trials next to it do: one is read in"

    def said():
        remarks = two_devices.reader.of_trials(study.id, Remarked)
        return [(seq, remark.trial) for seq, remark in remarks if words in remark.text]

    two_devices.until(said, "a trial says it")
    seq, trial = said()[0]

    def reported():
        """Its epochs from the one on of which it says so."""
        found = two_devices.reader.of_trials(study.id, EpochReported, seq)
        return [each for _, each in found if each.trial == trial]

    two_devices.until(reported, "its epoch ends")
    study.cancel()
    two_devices.wait(study.id)
    story = two_devices.penstock("story", f"{study.id}/{number_of(trial)}")
    assert words in " ".join(story.split())
    assert reported()[0].readers == 0
    return max(each.readers for each in reports(two_devices, study))
