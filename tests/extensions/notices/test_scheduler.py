"""Notices of studies follow from accepted events, once of each occasion."""

from __future__ import annotations

from dataclasses import replace

import pytest
from penstock.app.extensions import PLUGS
from penstock.app.ledger.codec import decode, encode, state_from_json, state_to_json
from penstock.extensions.notices.events import Installed, Tell, Told
from penstock.extensions.notices.judgement import FIRST, STILL, STILL_AT_FIRST
from penstock.scheduler.engine.engine import Engine
from penstock.scheduler.model.events import (
    AttemptFailed,
    DevicesTakenOut,
    StudyCancelled,
    StudyPaused,
    StudyResumed,
    Tick,
)
from penstock.scheduler.model.study import StrategySpec
from worlds.drive_world import World, check_invariants, spec

TO = "json://127.0.0.1:1/secret"
ONE = StrategySpec("full", max_epochs=1)


class Telling(World):
    """A world with a study that tells ``TO``."""

    def __init__(self, *devices: str, **fields) -> None:
        super().__init__()
        if devices:
            self.join(*devices)
        self.submit(spec(fields.pop("strategy", ONE), **{"notify": (TO,), **fields}))

    @property
    def told(self) -> list[Tell]:
        return [each for each in self.trace if isinstance(each, Tell)]

    @property
    def kinds(self) -> list[str]:
        return [each.kind for each in self.told]

    def wake(self) -> float:
        """Send the tick that is due next; return its time."""
        self.at = self.engine.wake_at()
        self.send(Tick(at=self.at))
        check_invariants(self.engine)
        return self.at

    def answer(self, why: str = "") -> None:
        for tell in self.engine.questions():
            self.send(
                Told(at=self.at, cause=tell.id, study=tell.study, kind=tell.kind, to="x", why=why)
            )

    def fail(self, message: str = "no such file") -> None:
        """Let the oldest attempt fail by its code."""
        dispatch = self.open[min(self.open)]
        segment = dispatch.segment
        self.at += 1.0
        self.send(
            AttemptFailed(
                at=self.at,
                cause=dispatch.id,
                trial=segment.trial,
                fence=segment.fence,
                kind="exception",
                message=message,
                traceback="",
            )
        )


def test_a_study_that_ends_tells_its_best_value_its_trials_and_its_time():
    world = Telling("cpu.a.0", n_trials=3)
    world.run()
    [told] = world.told
    assert (told.kind, told.to, told.again) == ("ended", TO, False)
    assert told.facts["status"] == "complete"
    assert told.facts["trials"] == {"completed": 3}
    assert told.facts["best"]["number"] == 2
    assert told.facts["best"]["value"] == 2.0
    assert told.facts["seconds"] == world.at
    assert "secret" not in repr(told)
    assert "secret" not in repr(world.journal)


def test_an_occasion_is_a_question_until_it_is_answered_and_then_nothing_is_left_of_it():
    world = Telling("cpu.a.0", n_trials=1)
    world.run()
    [told] = world.told
    restored = Engine(state_from_json(state_to_json(world.engine.state)), plugs=PLUGS)
    assert restored.questions() == world.engine.questions() == [replace(told, again=True)]
    world.answer()
    assert world.engine.questions() == []
    assert "notices" not in world.engine.state.ext


def test_a_replay_decides_the_same():
    world = Telling("cpu.a.0", n_trials=2, deadline=30.0)
    world.run()
    again, trace = Engine(plugs=PLUGS), []
    for event in world.journal:
        trace += again.handle(decode(*encode(event)))
    assert trace == world.trace
    assert state_to_json(again.state) == state_to_json(world.engine.state)


def test_a_study_that_tells_nobody_has_nothing_of_it():
    world = Telling("cpu.a.0", n_trials=2, notify=())
    assert world.engine.extensions.by_study == {}
    world.run()
    assert world.told == []
    assert world.engine.state.ext == {}


def test_each_address_is_told_once_also_where_it_is_named_twice():
    world = Telling("cpu.a.0", n_trials=1, notify=("$SLACK", TO, "$SLACK"))
    world.run()
    assert [each.to for each in world.told] == ["$SLACK", TO]


def test_all_trials_fail_is_told_once_and_that_the_study_failed_as_it_does():
    world = Telling("cpu.a.0", n_trials=FIRST + 2)
    for _ in range(FIRST - 1):
        world.fail()
    assert world.kinds == []
    world.fail("no such file: train.csv")
    assert world.kinds == ["all_fail"]
    assert world.told[0].facts == {"failed": FIRST, "why": "no such file: train.csv"}
    while world.open:
        world.fail()
    assert world.kinds == ["all_fail", "failed"]
    assert world.told[1].facts["best"] is None


def test_where_one_trial_has_a_result_not_all_fail():
    world = Telling("cpu.a.0", n_trials=FIRST + 2)
    world.run_segment()
    while world.open:
        world.fail()
    assert world.kinds == ["ended"]


def test_without_a_device_a_study_stands_still_and_this_is_told_once():
    world = Telling(n_trials=2)
    assert world.wake() == STILL
    [told] = world.told
    assert (told.kind, told.facts["seconds"]) == ("stands_still", STILL)
    assert told.facts["why"] == "no device is there"
    assert world.engine.wake_at() is None
    world.join("cpu.a.0")
    world.run()
    assert world.kinds == ["stands_still", "ended"]


def test_a_trial_that_never_ends_its_epoch_stands_still():
    world = Telling("cpu.a.0", n_trials=2)
    assert world.wake() == STILL
    assert world.told == [], "the first epoch may take long"
    assert world.wake() == STILL_AT_FIRST
    [told] = world.told
    assert told.facts["why"] == "trial 0 runs, and no epoch of them has ended"


def test_each_epoch_begins_the_wait_again():
    world = Telling("cpu.a.0", n_trials=5)
    world.at = STILL - 1
    world.run_segment()
    assert world.wake() == pytest.approx(2 * STILL - 0.5)
    assert world.kinds == ["stands_still"]


def test_devices_that_are_taken_out_are_the_reason():
    world = Telling("cpu.a.0", n_trials=2)
    world.send(DevicesTakenOut(at=0.0, devices=("cpu.a.0",)))
    world.run_segment()
    while not world.told:
        world.wake()
    assert world.told[0].facts["why"].startswith("no device may be used")


def test_a_study_that_waits_behind_another_does_not_stand_still():
    world = Telling("cpu.a.0", n_trials=2, notify=())
    world.submit(spec(ONE, id="s-2", name="t", n_trials=2, notify=(TO,)))
    for _ in range(4):
        world.wake()
    assert world.told == []


def test_a_pause_does_not_count():
    world = Telling(n_trials=2)
    world.send(StudyPaused(at=1.0, study="s-1"))
    assert world.engine.wake_at() is None
    world.at = 5 * STILL
    world.send(StudyResumed(at=world.at, study="s-1"))
    assert world.engine.wake_at() <= world.at
    world.send(Tick(at=world.at))
    assert world.told == []
    assert world.engine.wake_at() == world.at + STILL


def test_a_deadline_that_will_be_missed_is_told_at_the_second_forecast_and_once():
    world = Telling("cpu.a.0", n_trials=100, strategy=StrategySpec("full", max_epochs=10))
    missed = Telling(
        "cpu.a.0", n_trials=1000, strategy=StrategySpec("full", max_epochs=10), deadline=100.0
    )
    for each in (world, missed):
        while each.at < 90.0:
            each.run_segment()
            while (due := each.engine.wake_at()) is not None and due <= each.at:
                each.send(Tick(at=each.at))
    assert world.told == []
    [told] = missed.told
    assert told.kind == "late"
    assert told.facts["seconds"] > 1000.0
    assert 0 < told.facts["left"] < 100.0


def test_a_deadline_that_is_met_is_not_told():
    world = Telling(
        "cpu.a.0", n_trials=50, strategy=StrategySpec("full", max_epochs=2), deadline=400.0
    )
    while world.open:
        world.run_segment()
        while (due := world.engine.wake_at()) is not None and due <= world.at:
            world.send(Tick(at=world.at))
    assert world.kinds == ["ended"]


def test_a_cancelled_study_has_ended():
    world = Telling("cpu.a.0")
    world.send(StudyCancelled(at=1.0, study="s-1"))
    [told] = world.told
    assert (told.kind, told.facts["status"]) == ("ended", "cancelled")


def test_all_studies_are_told_of_to_the_addresses_of_the_installation_while_there_are_any():
    world = Telling("cpu.a.0", n_trials=3, notify=())
    world.send(Installed(at=0.0, addresses=2))
    world.submit(spec(ONE, id="s-2", name="t", n_trials=1, notify=(TO,)))
    world.run()
    installed = ["$PENSTOCK_NOTIFY/0", "$PENSTOCK_NOTIFY/1"]
    assert [each.to for each in world.told if each.study == "s-1"] == installed
    assert [each.to for each in world.told if each.study == "s-2"] == [TO, *installed]
    world.answer()
    world.send(Installed(at=world.at, addresses=0))
    assert "notices" not in world.engine.state.ext
    world.submit(spec(ONE, id="s-3", name="u", n_trials=1))
    before = len(world.told)
    world.run()
    assert len(world.told) == before


@pytest.mark.extension("editing")
def test_a_deadline_that_is_set_while_it_runs_is_looked_at():
    from penstock.extensions.editing.events import Change, Edited

    world = Telling("cpu.a.0")
    study = world.engine.state.studies["s-1"]
    changes = (Change("deadline", "none", "100"),)
    spec_ = replace(study.spec, deadline=100.0)
    world.send(Edited(at=0.0, study="s-1", spec=spec_, changes=changes))
    assert world.engine.wake_at() == 10.0
    world.send(Edited(at=0.0, study="s-1", spec=study.spec, changes=changes))
    world.send(Edited(at=0.0, study="s-1", spec=replace(spec_, deadline=None), changes=changes))
    assert world.engine.wake_at() == STILL
