"""A study's life beyond one run: paused and resumed, extended while it runs or when it is over."""

from dataclasses import replace

import pytest
from penstock.app.ledger.codec import decode, encode, state_to_json
from penstock.scheduler.engine.engine import Engine, Refused
from penstock.scheduler.model.decisions import Cut
from penstock.scheduler.model.events import (
    Durable,
    StudyCancelled,
    StudyExtended,
    StudyPaused,
    StudyResumed,
)
from penstock.scheduler.model.finished import FinishedStudy, PastTrial
from penstock.scheduler.model.study import StrategySpec
from worlds.drive_world import World, check_invariants, spec

PLANS = {
    "full": StrategySpec("full", max_epochs=3),
    "halving": StrategySpec("halving", max_epochs=4, eta=2),
    "asha": StrategySpec("asha", max_epochs=9),
    "pasha": StrategySpec("pasha", max_epochs=9, eta=2),
    "hyperband": StrategySpec("hyperband", max_epochs=4, eta=2),
    "freeze_thaw": StrategySpec("freeze_thaw", max_epochs=9),
    "median": StrategySpec("median", max_epochs=3),
    "curve": StrategySpec("curve", max_epochs=6, min_epochs=2),
}


class Kept(World):
    """A world that remembers the trials as the ledger does."""

    def __init__(self, *args):
        super().__init__(*args)
        self.trials = {}
        self.durables = {}

    def send(self, event):
        decisions = super().send(event)
        changes = self.engine.take_changes()
        self.trials |= changes.trials
        self.durables |= changes.durables
        check_invariants(self.engine)
        return decisions

    def states(self):
        return {trial.number: trial.state.value for trial in self.past().trials}

    def past(self):
        trials = (self.trials[name] for name in sorted(self.trials))
        return FinishedStudy(
            0.0,
            tuple(replace(PastTrial.of(trial), parents=self.parents(trial)) for trial in trials),
        )

    def parents(self, trial):
        made = (made for (name, _), made in self.durables.items() if name == trial.id)
        return tuple(reversed([each[0] for each in made if each]))

    def extend(self, study, n_trials, *, over):
        more = spec(study.strategy, n_trials=n_trials, sampler=study.sampler)
        past = self.past() if over else None
        self.send(StudyExtended(at=self.at, study=more, past=past))

    def durable(self, name, epoch):
        self.send(
            Durable(at=self.at, trial=name, epoch=epoch, state_hash=f"{name}@{epoch}", uri="u")
        )


def begun(plan="full", n=6, devices=2, **fields):
    world = Kept()
    study = spec(PLANS[plan], n_trials=n, **fields)
    world.submit(study)
    world.join(*(f"cpu.a.{each}" for each in range(devices)))
    return world, study


def replayed(world):
    """The state that the journal's text gives."""
    engine = Engine()
    for event in world.journal:
        engine.handle(decode(*encode(event)))
    return state_to_json(engine.state)


# -- pause and resume ------------------------------------------------------------------------------


def test_a_paused_study_is_cut_at_its_epochs_end_and_takes_no_segment_until_it_is_resumed():
    world, _ = begun("full", n=3)
    decisions = world.send(StudyPaused(at=0.0, study="s-1"))
    assert {d.fence for d in decisions if isinstance(d, Cut)} == set(world.open)
    for dispatch in list(world.open.values()):
        world.send(world.epoch(dispatch, 1, closes=True))
    assert not world.open
    world.join("cpu.b.0")
    assert not world.open
    world.send(StudyResumed(at=1.0, study="s-1"))
    assert [d.segment.first for d in world.open.values()] == [2, 2, 1], "in the order of before"
    world.run()
    assert world.finish.status == "complete"
    assert state_to_json(world.engine.state) == replayed(world)


def test_while_one_study_is_paused_another_has_its_devices():
    world, _ = begun("full", n=2)
    world.send(StudyPaused(at=0.0, study="s-1"))
    world.submit(spec(PLANS["full"], id="s-2", name="other", n_trials=2))
    for dispatch in list(world.open.values()):
        world.send(world.epoch(dispatch, 1, closes=True))
    assert {d.study for d in world.open.values()} == {"s-2"}


def test_what_has_nothing_left_to_do_ends_although_it_is_paused():
    world = Kept()
    world.submit(spec(StrategySpec("full", max_epochs=1), n_trials=2))
    world.join("cpu.a.0", "cpu.a.1")
    world.send(StudyPaused(at=0.0, study="s-1"))
    world.run()
    assert world.finish.status == "complete"


def test_a_study_is_not_paused_or_resumed_twice_and_can_be_cancelled_while_paused():
    world, _ = begun()
    with pytest.raises(Refused):
        world.send(StudyResumed(at=0.0, study="s-1"))
    world.send(StudyPaused(at=0.0, study="s-1"))
    with pytest.raises(Refused):
        world.send(StudyPaused(at=0.0, study="s-1"))
    world.send(StudyCancelled(at=0.0, study="s-1"))
    assert world.finish.status == "cancelled"


# -- more trials -----------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", ["random", "tpe"])
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("when", ["running", "paused", "complete", "cancelled"])
def test_a_study_goes_on_to_more_trials_whenever_it_is_extended(plan, when, sampler):
    world, study = begun(plan, sampler=sampler)
    if when == "running":
        world.run_segment()
    elif when == "paused":
        world.send(StudyPaused(at=world.at, study="s-1"))
    elif when == "complete":
        world.run()
    else:
        world.run_segment()
        world.send(StudyCancelled(at=world.at, study="s-1"))
    before = {name: trial.state for name, trial in world.trials.items() if trial.finished_at}
    world.extend(study, 14, over=when in ("complete", "cancelled"))
    if when == "paused":
        world.send(StudyResumed(at=world.at, study="s-1"))
    world.run()
    assert len(world.trials) == 14
    assert not world.engine.state.studies
    assert all(trial.finished_at is not None for trial in world.trials.values())
    assert {name: world.trials[name].state for name in before} == before
    assert max(trial.epoch for trial in world.trials.values()) == PLANS[plan].max_epochs
    assert state_to_json(world.engine.state) == replayed(world)


def test_asha_promotes_by_old_and_new_scores_together():
    """By hand, eta 3, the newest always the best: 2 is promoted of the first three. Each of the
    three new ones is at once the best of its rung (4, 5, 6 there: 1, 1, 2 go on). At 3 epochs there
    are then 2 and 3; 4 makes three, so it goes on, and so does 5. Three trials alone would have
    promoted 5, and that once."""
    world, study = begun("asha", n=3, devices=1)
    world.run()
    assert world.states() == {0: "stopped", 1: "stopped", 2: "stopped"}
    assert [world.trials[f"s-1-{n:04d}"].epoch for n in range(3)] == [1, 1, 3]
    world.extend(study, 6, over=True)
    world.run()
    epochs = [world.trials[f"s-1-{n:04d}"].epoch for n in range(6)]
    assert epochs == [1, 1, 3, 3, 9, 9]


@pytest.mark.parametrize("durable", [True, False])
def test_a_stopped_trial_is_promoted_when_its_last_state_is_durable_and_else_not(durable):
    """Trial 2 is the best by far after 3 epochs, but the study ends with nobody to compare."""
    world = Kept(lambda number, epoch: number if epoch == 1 else 100.0 * (number == 2))
    world.submit(study := spec(PLANS["asha"], n_trials=3))
    world.join("cpu.a.0")
    world.run()
    assert world.states() == {0: "stopped", 1: "stopped", 2: "stopped"}
    if durable:
        world.durable("s-1-0002", 3)
    world.extend(study, 6, over=True)
    assert world.states()[2] == ("paused" if durable else "stopped")
    world.run()
    assert [trial.epoch for trial in world.past().trials] == [1, 1, 9 if durable else 3, 3, 3, 3]
    assert state_to_json(world.engine.state) == replayed(world)


def test_an_extended_halving_runs_its_new_trials_as_a_bracket_of_their_own():
    world, study = begun("halving", n=4)
    world.run()
    world.extend(study, 8, over=True)
    world.run()
    epochs = [world.trials[f"s-1-{n:04d}"].epoch for n in range(8)]
    assert epochs == [1, 1, 2, 4, 1, 1, 2, 4]


def test_fewer_trials_than_there_are_change_nothing_nor_does_a_study_that_is_not_known():
    world, study = begun(n=6)
    with pytest.raises(Refused):
        world.extend(study, 6, over=False)
    with pytest.raises(Refused):
        world.extend(study, 9, over=True)  # it is not over
    world.run()
    with pytest.raises(Refused):
        world.extend(study, 9, over=False)  # it is, by now
    with pytest.raises(Refused):
        world.extend(study, 6, over=True)
