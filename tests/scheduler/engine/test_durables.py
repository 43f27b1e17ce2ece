"""The engine and durable states: which are offered, which are let go, and what comes late."""

from __future__ import annotations

import pytest
from penstock.profiling.costs.failure_rate import PRIOR
from penstock.scheduler.engine.checkpoints import ENDED_KEPT
from penstock.scheduler.engine.engine import Refused
from penstock.scheduler.model.decisions import Discard, Dispatch
from penstock.scheduler.model.events import (
    AttemptFailed,
    AttemptLost,
    DeviceLeft,
    Durable,
    StudyCancelled,
    Undurable,
)
from penstock.scheduler.model.study import StrategySpec
from worlds.drive_world import World, spec


class Kept:
    """A world and the table of durable states that a ledger would have."""

    def __init__(self, **fields):
        self.world = World(score=lambda number, epoch: number + epoch / 100)
        self.rows: dict[tuple[str, int], str] = {}
        self.submit(**fields)
        self.world.join("cpu.a.0")

    def submit(self, plan=None, **fields):
        self.world.submit(spec(plan or StrategySpec("full", max_epochs=8), **fields))

    def send(self, event):
        """The URIs that are discarded."""
        decisions = self.world.send(event)
        self.follow()
        return [uri for d in decisions if isinstance(d, Discard) for uri in d.uris]

    def follow(self):
        for key, made in self.world.engine.take_changes().durables.items():
            if made is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = made[0].uri

    def durable(self, trial, epoch, **changes):
        given = {"state_hash": f"{trial}@{epoch}", "uri": f"{trial}@{epoch}"} | changes
        return self.send(Durable(at=self.world.at, trial=trial, epoch=epoch, **given))

    def train(self, epochs=1):
        """The next ``epochs`` of what is at work, each durable; what is discarded meanwhile."""
        gone = []
        for _ in range(epochs):
            dispatch = self.world.open[min(self.world.open)]
            trial = dispatch.segment.trial
            epoch = self.world.engine.state.trials[trial].epoch + 1
            closes = epoch == dispatch.segment.last
            event = self.world.epoch(dispatch, epoch, closes=closes)
            decisions = self.world.send(event)
            self.follow()
            gone += [uri for d in decisions if isinstance(d, Discard) for uri in d.uris]
            if trial in self.world.engine.state.trials:
                gone += self.durable(trial, epoch)
        return gone

    def offered(self):
        trial = next(iter(self.world.open.values())).segment.trial
        return [parent.uri for parent in self.world.engine.state.trials[trial].parents]

    def named(self):
        return sorted(self.rows.values())


def test_older_states_lose_row_and_file_and_are_no_longer_offered():
    kept = Kept(n_trials=1)
    assert kept.train(3) == []
    assert kept.train(2) == ["s-1-0000@1", "s-1-0000@2"]
    assert kept.offered() == ["s-1-0000@5", "s-1-0000@4", "s-1-0000@3"]
    assert kept.named() == sorted(kept.offered())


def test_the_states_at_rungs_stay_while_the_trial_is_in_the_race():
    kept = Kept(plan=StrategySpec("halving", max_epochs=9), n_trials=9)
    kept.train(9 + 3 * 2 + 5)
    assert kept.offered() == [f"s-1-0008@{epoch}" for epoch in (8, 7, 6, 3, 1)]
    assert "s-1-0000@1" in kept.named(), "paused, and may be needed"
    kept.train(1)
    assert kept.named() == ["s-1-0008@8"], "the study is over"


def test_of_trials_that_are_over_only_the_best_ones_keep_their_last_state():
    kept = Kept(plan=StrategySpec("full", max_epochs=2), n_trials=3)
    kept.train(2)
    assert kept.named() == ["s-1-0000@2"]
    kept.train(2)  # trial 1 is better: its value grows with its number
    assert kept.named() == ["s-1-0001@2"]
    kept.train(2)  # the study is over before the last state is durable
    assert kept.world.finish.status == "complete"
    kept.follow()
    assert kept.named() == ["s-1-0002@1"]


def test_the_state_that_becomes_durable_after_the_end_of_its_study_counts():
    kept = Kept(plan=StrategySpec("full", max_epochs=2), n_trials=2)
    kept.train(4)
    assert kept.named() == ["s-1-0001@1"]
    with pytest.raises(Refused, match="other bits"):
        kept.durable("s-1-0001", 2, state_hash="other")
    assert kept.durable("s-1-0001", 2) == ["s-1-0001@1"]
    assert kept.named() == ["s-1-0001@2"]
    with pytest.raises(Refused, match="durable already"):
        kept.durable("s-1-0001", 2)


def test_a_late_state_of_a_trial_that_is_not_among_the_best_is_discarded():
    kept = Kept(plan=StrategySpec("full", max_epochs=2), n_trials=2)
    kept.train(4)
    assert kept.durable("s-1-0000", 2) == ["s-1-0000@2"]
    assert kept.named() == ["s-1-0001@1"]


def test_a_study_may_keep_more_or_none():
    kept = Kept(plan=StrategySpec("full", max_epochs=1), n_trials=4, keep_checkpoints=2)
    kept.train(4)
    kept.durable("s-1-0003", 1)
    assert kept.named() == ["s-1-0002@1", "s-1-0003@1"]
    none = Kept(plan=StrategySpec("full", max_epochs=1), n_trials=2, keep_checkpoints=0)
    none.train(2)
    assert none.durable("s-1-0001", 1) == ["s-1-0001@1"]
    assert none.named() == []


def test_a_cancelled_study_keeps_its_best_trained_longest():
    kept = Kept(n_trials=2)
    kept.train(3)
    assert kept.send(StudyCancelled(at=1.0, study="s-1")) == ["s-1-0000@2", "s-1-0000@1"]
    assert kept.named() == ["s-1-0000@3"]


def test_only_the_studies_that_ended_last_are_remembered():
    kept = Kept(plan=StrategySpec("full", max_epochs=1), n_trials=1)
    kept.train()
    for number in range(ENDED_KEPT):
        kept.submit(StrategySpec("full", max_epochs=1), id=f"t-{number}", n_trials=1)
        kept.train()
    assert len(kept.world.engine.state.ended) == ENDED_KEPT
    with pytest.raises(Refused, match="not of a study that is known"):
        kept.durable("s-1-0000", 1)


def test_a_checkpoint_that_cannot_be_written_is_said_once_until_one_can():
    kept = Kept(n_trials=1)
    kept.train()
    full = Undurable(at=1.0, trial="s-1-0000", reason="the disk is full")
    kept.world.send(full)
    record = kept.world.engine.state.studies["s-1"].record
    assert record.message == (
        "the newest checkpoint of 1 trial could not be written: the disk is full"
    )
    with pytest.raises(Refused):
        kept.world.send(full)
    kept.train()
    assert kept.world.engine.state.studies["s-1"].record.message == ""


def test_of_a_trial_whose_states_nobody_needs_any_more_it_is_no_longer_said():
    kept = Kept(n_trials=2)
    kept.world.send(Undurable(at=1.0, trial="s-1-0000", reason="the disk is full"))
    assert kept.world.engine.state.studies["s-1"].record.message
    failed = AttemptFailed(at=1.0, trial="s-1-0000", fence=1, kind="exception", message="no")
    kept.world.send(failed)
    assert kept.world.engine.take_changes().studies["s-1"].message == ""


def mtbf_after(world, event):
    world.at = event.at
    [dispatch] = [d for d in world.send(event) if isinstance(d, Dispatch)]
    return dispatch.mtbf


def test_losses_and_deaths_are_counted_and_travel_with_the_next_attempt():
    world = World()
    world.submit(spec(n_trials=1))
    world.join("cpu.a.0")
    (first,) = world.open.values()
    assert first.mtbf == PRIOR
    common = {"trial": "s-1-0000", "at": 100.0}
    second = mtbf_after(world, AttemptLost(**common, fence=1, reason="lease"))
    assert second == pytest.approx((PRIOR + 100) / 2, rel=1e-3)
    dead = AttemptFailed(**common, fence=2, kind="died", message="signal 9 (SIGKILL)")
    assert mtbf_after(world, dead) == pytest.approx((PRIOR + 100) / 3, rel=1e-3)
    world.join("cpu.a.1")
    left = DeviceLeft(at=100.0, device="cpu.a.0", reason="vanished")
    assert mtbf_after(world, left) == pytest.approx((PRIOR + 100) / 4, rel=1e-3)


def test_a_node_that_refuses_a_study_and_code_that_raises_are_no_losses():
    world = World()
    world.submit(spec(n_trials=1, retries=1))
    world.join("cpu.a.0", "cpu.a.1")
    refused = AttemptLost(at=0.0, trial="s-1-0000", fence=1, reason="another copy", refused=True)
    assert mtbf_after(world, refused) == PRIOR
    raised = AttemptFailed(at=0.0, trial="s-1-0000", fence=2, kind="exception", message="no")
    assert mtbf_after(world, raised) == PRIOR
