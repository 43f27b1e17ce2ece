"""Single trials, stopped, paused, sent on and tried again by their user."""

from __future__ import annotations

import pytest
from penstock.app.extensions import PLUGS
from penstock.app.ledger.codec import state_from_json, state_to_json
from penstock.extensions.steering.events import Steered
from penstock.scheduler.engine.engine import Engine, Refused
from penstock.scheduler.model.decisions import Cut, Discard, Dispatch, Release, Revoke
from penstock.scheduler.model.events import (
    AttemptFailed,
    AttemptLost,
    Durable,
    PolicyChosen,
    StudyCancelled,
    StudyExtended,
    StudyReopened,
    StudyStopped,
    Tick,
)
from penstock.scheduler.model.finished import FinishedStudy, PastTrial
from penstock.scheduler.model.study import StrategySpec
from penstock.scheduler.model.trial import TrialState
from worlds.drive_world import OneStudy, check_invariants, spec

FULL = StrategySpec("full", max_epochs=6)
ASHA = StrategySpec("asha", max_epochs=9)
TWO_AT_FIRST = StrategySpec("halving", min_epochs=2, max_epochs=8, eta=2)
HALVING = StrategySpec("halving", max_epochs=4, eta=2)


class Steerable(OneStudy):
    """A world with one study, which knows the trials of it that are over, too."""

    def __init__(self, plan=FULL, devices=1, **fields):
        self.trials_seen = {}
        super().__init__(spec(plan, **fields), devices)

    def send(self, event):
        decisions = super().send(event)
        self.trials_seen |= self.engine.take_changes().trials
        return decisions

    def trial(self, number):
        name = f"s-1-{number:04}"
        return self.engine.state.trials.get(name) or self.trials_seen[name]

    def steer(self, verb, number, to=0, **words):
        event = Steered(at=self.at, trial=self.trial(number).id, verb=verb, to=to, **words)
        decisions = self.send(event)
        check_invariants(self.engine)
        return decisions

    def running(self):
        trials = self.engine.state.trials.values()
        return [t.number for t in trials if t.state is TrialState.RUNNING]

    def reopen(self, spec_, status="complete"):
        past = FinishedStudy(1.0, tuple(PastTrial.of(t) for t in self.trials_seen.values()))
        self.send(
            StudyReopened(
                at=self.at, study=spec_, past=past, status=status, finished_at=self.at, message="m"
            )
        )


def test_a_stopped_trial_is_pruned_at_its_last_epoch_and_its_slot_is_free():
    world = Steerable(n_trials=2)
    world.epoch_of(0)
    decisions = world.steer("stop", 0, who="ada", why="it diverges")
    assert world.trial(0).state is TrialState.STOPPED
    assert (world.trial(0).epoch, world.trial(0).value) == (1, 0.0)
    assert [type(d) for d in decisions if isinstance(d, Revoke | Release)] == [Revoke, Release]
    assert world.running() == [1], "the next trial has its slot at once"
    world.to_the_end()
    assert world.finish.status == "complete"


def test_one_without_an_epoch_is_cancelled():
    world = Steerable(n_trials=2)
    world.steer("stop", 0)
    assert world.trial(0).state is TrialState.CANCELLED
    world.to_the_end()
    assert world.trial(1).state is TrialState.COMPLETED


def test_a_stopped_trial_that_waits_is_in_no_queue():
    world = Steerable(n_trials=3, sampler="random")
    assert world.trial(2).state is TrialState.WAITING
    world.steer("stop", 2)
    world.to_the_end()
    assert world.epochs_by_trial() == {"s-1-0000": 6, "s-1-0001": 6}


def test_a_study_of_which_all_are_stopped_is_over():
    world = Steerable(n_trials=1)
    world.epoch_of(0)
    world.steer("stop", 0)
    assert world.finish.status == "complete"


def test_a_late_report_of_a_stopped_trial_does_not_count():
    world = Steerable(n_trials=2)
    dispatch = world.open[world.trial(0).fence]
    world.epoch_of(0)
    world.steer("stop", 0)
    with pytest.raises(Refused):
        world.send(world.epoch(dispatch, 2))


@pytest.mark.parametrize("plan", [HALVING, StrategySpec("hyperband", max_epochs=4, eta=2)])
def test_a_rung_counts_a_stopped_trial_and_promotes_another_in_its_place(plan):
    world = Steerable(plan, n_trials=4, devices=4)
    world.epoch_of(3)
    assert world.trial(3).state is TrialState.PAUSED
    world.steer("stop", 3)
    world.to_the_end()
    assert world.finish.status == "complete"
    assert (world.trial(3).epoch, world.trial(3).state) == (1, TrialState.STOPPED)
    assert sorted(t.epoch for t in world.trials_seen.values()) == [1, 1, 2, 4]


def test_a_paused_trial_ends_its_epoch_and_waits_until_it_is_resumed():
    world = Steerable(n_trials=2)
    decisions = world.steer("pause", 0, who="ada", why="lunch")
    assert [type(d) for d in decisions] == [Cut]
    world.epoch_of(0)
    assert world.trial(0).state is TrialState.WAITING
    assert world.engine.aside() == {"s-1-0000": "it was paused by ada: lunch"}
    assert world.running() == [1]
    world.to_the_end()
    assert world.finish is None, "the study waits for it"
    world.steer("resume", 0)
    world.to_the_end()
    assert world.trial(0).epoch == 6
    assert world.finish.status == "complete"


def test_a_paused_trial_whose_attempt_is_lost_or_fails_stays_out_of_the_queue():
    for end in (AttemptLost, AttemptFailed):
        world = Steerable(n_trials=1, retries=1)
        world.steer("pause", 0)
        trial = world.trial(0)
        what = {"reason": "gone"} if end is AttemptLost else {"kind": "raised", "message": "no"}
        world.send(end(at=world.at, trial=trial.id, fence=trial.fence, **what))
        check_invariants(world.engine)
        assert not world.running()
        world.steer("resume", 0)
        assert world.running() == [0]


def test_one_that_is_resumed_before_its_epoch_has_ended_goes_on():
    world = Steerable(n_trials=1)
    world.steer("pause", 0)
    world.steer("resume", 0)
    world.to_the_end()
    assert world.trial(0).epoch == 6


def test_a_resumed_trial_goes_before_those_that_wait():
    world = Steerable(n_trials=4, sampler="random")
    world.steer("pause", 2)
    world.steer("resume", 2)
    world.steer("stop", 0)
    assert world.running() == [2]


def test_a_rung_goes_on_without_a_paused_trial_and_counts_it_when_it_comes():
    world = Steerable(TWO_AT_FIRST, n_trials=4, devices=4)
    world.steer("pause", 3)
    for number in (3, 0, 1, 2):
        world.epoch_of(number)
    assert world.trial(3).state is TrialState.WAITING
    for number in (0, 1, 2):
        world.epoch_of(number)
    assert sorted(world.running()) == [1, 2], "the best of the others are promoted"
    world.to_the_end()
    assert world.trial(2).state is TrialState.COMPLETED
    world.steer("resume", 3)
    world.to_the_end()
    assert world.trial(3).state is TrialState.COMPLETED, (
        "it is better than those that were waited for"
    )
    assert world.finish.status == "complete"


@pytest.mark.parametrize("name", ["halving", "hyperband"])
def test_a_trial_that_was_paused_on_its_way_to_a_rung_takes_no_place_there(name):
    world = Steerable(StrategySpec(name, max_epochs=9), n_trials=6, devices=6)
    bottom = [t.number for t in world.engine.state.trials.values() if t.target == 1]
    for number in bottom:
        world.epoch_of(number)
    climbs = max(t.number for t in world.engine.state.trials.values() if t.target == 3)
    undisturbed = sum(t.target > 1 for t in world.engine.state.trials.values())
    world.steer("pause", climbs)
    world.to_the_end()
    assert world.trial(climbs).epoch < 3, "others have not waited for it"
    world.steer("resume", climbs)
    world.to_the_end()
    assert world.finish.status == "complete"
    assert sum(t.epoch > 1 for t in world.trials_seen.values()) == undisturbed


def test_a_trial_that_its_user_promotes_takes_no_place_and_makes_none():
    world = Steerable(StrategySpec("halving", max_epochs=9), n_trials=6, devices=6)
    for number in range(6):
        world.epoch_of(number)
    climb = [t.number for t in world.engine.state.trials.values() if t.target == 3]
    worst = next(number for number in range(6) if number not in climb)
    world.steer("promote", worst, to=3)
    world.to_the_end()
    assert world.finish.status == "complete"
    epochs = {t.number: t.epoch for t in world.trials_seen.values()}
    assert {number for number, epoch in epochs.items() if epoch >= 3} == {*climb, worst}
    assert sum(epoch == 9 for epoch in epochs.values()) == 1


def test_a_promoted_trial_goes_to_its_next_rung_before_others():
    world = Steerable(ASHA, n_trials=9)
    world.epoch_of(0)
    assert world.trial(0).state is TrialState.PAUSED
    world.steer("promote", 0)
    assert world.trial(0).target == 3
    world.epoch_of(1)  # it had the slot
    assert world.running() == [0]
    world.to_the_end()
    assert world.trial(0).epoch >= 3
    assert world.finish.status == "complete"


def test_a_promoted_trial_reaches_an_epoch_between_rungs_and_its_strategy_does_not_mind():
    world = Steerable(ASHA, n_trials=3)
    world.epoch_of(0)
    world.steer("promote", 0, to=5)
    world.to_the_end()
    assert world.trial(0).epoch == 5, "it is the worst: its strategy has it go no further"
    assert world.finish.status == "complete"


def test_a_trial_that_completed_is_trained_beyond_the_last_epoch():
    world = Steerable(n_trials=3)
    for _ in range(6):
        world.epoch_of(0)
    assert world.trial(0).state is TrialState.COMPLETED
    world.steer("promote", 0, to=10)
    assert world.trial(0).state is TrialState.WAITING
    world.to_the_end()
    assert (world.trial(0).epoch, world.trial(0).state) == (10, TrialState.COMPLETED)
    assert world.finish.status == "complete"


def test_a_study_that_is_over_goes_on_with_a_promoted_trial():
    world = Steerable(ASHA, n_trials=3)
    given = world.study.spec
    world.to_the_end()
    assert world.finish.status == "complete"
    last = min(t.number for t in world.trials_seen.values() if t.state is TrialState.STOPPED)
    world.reopen(given)
    world.steer("promote", last, to=12)
    assert world.study.status == "running"
    assert world.study.finished_at is None
    world.to_the_end()
    assert world.trial(last).epoch == 12
    assert "s-1" in world.engine.state.finished


def test_a_study_that_is_over_stays_so_where_the_command_is_refused():
    world = Steerable(n_trials=1)
    given = world.study.spec
    world.to_the_end()
    world.reopen(given)
    with pytest.raises(Refused, match="completed"):
        world.steer("retry", 0)
    world.send(StudyStopped(at=world.at, study="s-1"))
    assert "s-1" in world.engine.state.finished


def test_a_failed_trial_is_tried_again_from_its_newest_state():
    world = Steerable(n_trials=2)
    world.send(PolicyChosen(at=0.0, policy="fifo", fill_at_end=True, keep_failed=True))
    world.epoch_of(0)
    trial = world.trial(0)
    world.send(Durable(at=1.0, trial=trial.id, epoch=1, state_hash=trial.state_hash, uri="u"))
    fields = {"trial": trial.id, "fence": trial.fence}
    decisions = world.send(AttemptFailed(at=1.0, kind="raised", message="no", **fields))
    assert not [d for d in decisions if isinstance(d, Discard)]
    assert world.trial(0).state is TrialState.FAILED
    world.steer("retry", 0)
    assert world.trial(0).failure is None
    again = world.steer("stop", 1)
    sent = next(d for d in again if isinstance(d, Dispatch))
    assert (sent.segment.first, [p.uri for p in sent.parents]) == (2, ["u"])
    world.to_the_end()
    assert world.trial(0).state is TrialState.COMPLETED


@pytest.mark.parametrize(
    ("verb", "before", "to", "says"),
    [
        ("stop", ("stop",), 0, "cancelled already"),
        ("pause", ("pause",), 0, "paused already"),
        ("resume", (), 0, "nobody has paused it"),
        ("promote", (), 1, "--to 2"),
        ("promote", (), 0, "--to 7"),
        ("retry", (), 0, "only a trial that failed"),
    ],
)
def test_what_cannot_be_done_is_refused_and_says_what_can(verb, before, to, says):
    world = Steerable(n_trials=2)
    for each in before:
        world.steer(each, 0)
    if not before:
        world.epoch_of(0)
    with pytest.raises(Refused, match=says):
        world.steer(verb, 0, to=to)


def test_a_population_is_not_promoted_within_its_epochs():
    world = Steerable(StrategySpec("pbt", max_epochs=4), n_trials=2, contract="torch")
    with pytest.raises(Refused, match="its population decides"):
        world.steer("promote", 0, to=3)


def test_an_enqueued_configuration_extends_a_study_that_is_over():
    world = Steerable(n_trials=1)
    given = world.study.spec
    world.to_the_end()
    past = FinishedStudy(1.0, tuple(PastTrial.of(t) for t in world.trials_seen.values()))
    more = spec(FULL, n_trials=2)
    assert given.id == more.id
    event = StudyExtended(at=world.at, study=more, past=past, enqueued=((("x", 7),),))
    [ask] = [d for d in world.send(event) if hasattr(d, "enqueued")]
    assert ask.enqueued == ((("x", 7),),)


def test_others_of_a_study_that_was_cancelled_do_not_go_on_with_a_promoted_trial():
    world = Steerable(n_trials=5)
    given = world.study.spec
    for _ in range(6):
        world.epoch_of(0)
    world.send(StudyCancelled(at=world.at, study="s-1"))
    world.reopen(given, status="cancelled")
    world.steer("promote", 0, to=8)
    world.to_the_end()
    assert world.epochs_by_trial() == {"s-1-0000": 8}
    assert "s-1" in world.engine.state.finished


def test_a_trial_that_had_completed_is_so_again_when_its_user_stops_it_later():
    world = Steerable(n_trials=2)
    for _ in range(6):
        world.epoch_of(0)
    world.steer("promote", 0, to=9)
    world.steer("stop", 1)
    world.epoch_of(0)
    world.steer("stop", 0)
    assert (world.trial(0).state, world.trial(0).epoch) == (TrialState.COMPLETED, 7)


def test_the_finalist_of_pasha_is_none_that_was_stopped():
    world = Steerable(StrategySpec("pasha", max_epochs=27), n_trials=9)
    while world.trial(0).state is not TrialState.PAUSED:
        world.epoch_of(0)
    world.steer("stop", 0)
    world.to_the_end()
    assert world.trial(0).epoch == 1
    assert max(t.epoch for t in world.trials_seen.values()) == 27


def test_the_state_of_steered_trials_is_in_a_snapshot():
    world = Steerable(ASHA, n_trials=3)
    world.epoch_of(0)
    world.steer("promote", 0, to=5)
    world.steer("pause", 1)
    kept = state_to_json(world.engine.state)
    assert state_to_json(state_from_json(kept)) == kept
    assert Engine(state_from_json(kept), plugs=PLUGS).aside() == world.engine.aside()


def test_a_trial_goes_on_beyond_a_deadline_that_passed_when_its_study_was_over():
    world = Steerable(n_trials=1, deadline=100.0)
    given = world.study.spec
    world.to_the_end()
    world.at = 500.0
    world.reopen(given)
    world.steer("promote", 0, to=8)
    world.send(Tick(at=501.0))
    world.to_the_end()
    assert (world.trial(0).epoch, world.trial(0).state) == (8, TrialState.COMPLETED)


def test_a_study_that_has_reached_a_limit_is_not_steered():
    world = Steerable(n_trials=2, device_hours=0.6 / 3600, devices=2)
    world.epoch_of(0)
    assert world.study.ending
    with pytest.raises(Refused, match="has reached a limit"):
        world.steer("promote", 1, to=9)
