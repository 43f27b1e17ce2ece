"""When a study is expected to be over, whether it will miss its deadline; and deadlines first."""

from __future__ import annotations

import math

import pytest
from penstock.app.show.views.plan import _study
from penstock.scheduler.model.events import PolicyChosen, StudyPaused
from penstock.scheduler.model.snapshot import Candidate, Snapshot, find_fault
from penstock.scheduler.model.study import ENDLESS, StrategySpec
from penstock.scheduler.outlook.forecast import misses_by, study_end
from penstock.scheduler.outlook.outlook import outlook
from penstock.scheduler.policies.edf import edf
from worlds.drive_world import World, spec


def begun(*devices: str, epochs: int = 1, **fields) -> World:
    """Return a world with a study of which ``epochs`` epochs were trained in half a second each."""
    world = World()
    world.join(*devices or ("cpu.a.0",))
    world.submit(spec(fields.pop("strategy", StrategySpec("full", max_epochs=10)), **fields))
    for _ in range(epochs):
        dispatch = world.open[min(world.open)]
        epoch = world.engine.state.trials[dispatch.segment.trial].epoch + 1
        world.at += 0.5
        world.send(world.epoch(dispatch, epoch, closes=epoch == dispatch.segment.last))
    return world


def end(world: World, name: str = "s-1") -> float | None:
    return study_end(world.engine, world.engine.state.studies[name], world.at)


def test_before_anything_was_measured_nothing_is_said():
    assert end(begun(epochs=0)) is None


def test_all_epochs_of_all_trials_are_to_come_one_after_the_other():
    # It is a little more, as of trials that were not measured some may be longer.
    assert end(begun(n_trials=4, epochs=21)) == pytest.approx(4 * 10 * 0.5, rel=0.1)
    assert 20.0 < end(begun(n_trials=4)) < 30.0


def test_trials_that_are_longer_than_the_others_are_waited_for():
    world = begun("cpu.a.0", "cpu.a.1", "cpu.a.2", n_trials=4)
    # Three run at once and the fourth after them.
    assert end(world) == pytest.approx(2 * 10 * 0.5, rel=0.15)


def test_what_a_strategy_with_rungs_promotes_is_counted():
    plan = StrategySpec("asha", max_epochs=9)
    assert end(begun(n_trials=27, strategy=plan)) == pytest.approx(63 * 0.5, rel=0.2)


def test_where_it_is_open_how_much_there_is_to_do_nothing_is_said():
    assert end(begun(n_trials=ENDLESS, sampler="tpe")) is None
    world = begun()
    world.send(StudyPaused(at=world.at, study="s-1"))
    assert end(world) is None


def test_by_how_much_a_deadline_will_be_missed_is_said_early():
    world = begun(n_trials=4, epochs=21, deadline=15.0)
    study = world.engine.state.studies["s-1"]
    assert misses_by(world.engine, study, world.at) == pytest.approx(5.0, abs=2.0)
    [facts] = outlook(world.engine, world.at)["studies"]
    assert facts["deadline"] == 4.5
    words = _study(facts, 0)
    assert "it is expected to end in about " in words
    assert "its deadline is in 4.5 s, which it will miss by about " in words
    in_time = begun(n_trials=4, deadline=60.0)
    study = in_time.engine.state.studies["s-1"]
    assert misses_by(in_time.engine, study, in_time.at) == 0.0
    [facts] = outlook(in_time.engine, in_time.at)["studies"]
    assert "miss" not in _study(facts, 0)
    free = begun(n_trials=4)
    assert misses_by(free.engine, free.engine.state.studies["s-1"], free.at) is None


# -- the earliest deadline first ------------------------------------------------------------------


def test_under_edf_who_has_a_later_deadline_gives_way():
    def candidate(trial, deadline, width=0):
        return Candidate(trial, trial, 0, 10, 0.0, 1.0, width=width, deadline=deadline)

    running = (candidate("r", 90.0, 1), candidate("s", 30.0, 1))
    waiting = (candidate("a", math.inf), candidate("b", 60.0), candidate("c", 20.0))
    snapshot = Snapshot(1.0, waiting, 0, running, 0, devices=2)
    plan = edf(snapshot)
    assert not find_fault(snapshot, plan)
    assert plan.order == ("c", "b", "a")
    assert plan.hold == ("r",)


def test_under_edf_the_study_with_a_deadline_goes_first():
    world = World()
    world.send(PolicyChosen(at=0.0, policy="edf", cross_study=True))
    world.submit(spec(id="s-1", name="later"))
    world.submit(spec(id="s-2", name="sooner", deadline=60.0))
    world.at = 1.0  # plans are not made again at once
    world.join("cpu.a.0")
    assert [dispatch.study for dispatch in world.open.values()] == ["s-2"]
