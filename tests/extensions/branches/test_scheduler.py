"""Branches in the engine: what they begin with, who knows them, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from penstock.app.extensions import PLUGS
from penstock.app.ledger.codec import state_from_json, state_to_json
from penstock.extensions.branches.events import Branched
from penstock.extensions.branches.scheduler import NAME
from penstock.extensions.steering.events import Steered
from penstock.scheduler.engine.engine import Engine, Refused
from penstock.scheduler.model.decisions import Discard, Parent
from penstock.scheduler.model.events import (
    AttemptLost,
    Durable,
    StudyExtended,
    StudyReopened,
    TrialEnqueued,
)
from penstock.scheduler.model.finished import FinishedStudy, PastTrial
from penstock.scheduler.model.study import StrategySpec
from penstock.scheduler.model.trial import Origin, TrialState
from penstock.scheduler.planning.planning import Planning
from worlds.drive_world import OneStudy, check_invariants, spec

FULL = StrategySpec("full", max_epochs=6)
ASHA = StrategySpec("asha", max_epochs=9)
HALVING = StrategySpec("halving", max_epochs=4, eta=2)


def of_torch(plan, **fields):
    return spec(plan, **{"contract": "torch", **fields})


class Branching(OneStudy):
    """A world with one study, whose trials are branched."""

    def __init__(self, plan=FULL, devices=1, **fields):
        super().__init__(of_torch(plan, **fields), devices)

    def branch(self, number, epoch, to=6, **more):
        trial = self.trial(number)
        params = tuple((dict(trial.params) | {"lr": 0.5}).items())
        event = Branched(
            at=self.at, trial=trial.id, epoch=epoch, to=to, params=params, changed=(("lr", 0.5),),
            **more,
        )  # fmt: skip
        decisions = self.send(event)
        check_invariants(self.engine)
        return decisions

    def durable(self, number, epoch):
        trial, uri = self.trial(number), f"file:///{number}-{epoch}"
        state = {"epoch": epoch, "uri": uri, "state_hash": trial.hashes[epoch]}
        return self.send(Durable(at=self.at, trial=trial.id, **state))

    def sent(self, number):
        """The open dispatch of a trial."""
        return self.open[self.trial(number).fence]


@pytest.fixture
def world():
    """A trial that has had four epochs and goes on, and a free device."""
    world = Branching(devices=2, n_trials=1)
    for _ in range(4):
        world.epoch_of(0)
    return world


def test_a_branch_begins_after_its_epoch_with_its_parents_keys(world):
    world.branch(0, 3)
    branch, sent = world.trial(1), world.sent(1)
    assert branch.origin == Origin("s-1-0000", 3, keys=0)
    assert dict(branch.params)["lr"] == 0.5
    assert (sent.segment.first, sent.origin, sent.keys, sent.expect) == (4, 3, 0, "")
    (part,) = sent.ext[NAME]["way"]
    assert (part["trial"], part["begin"], part["epoch"]) == ("s-1-0000", 0, 3)
    assert part["params"] == dict(world.trial(0).params)
    assert part["hash"] == world.trial(0).hashes[3]
    assert part["holder"] == "", "its parent has gone on"
    world.to_the_end()
    assert world.finish.status == "complete"


def test_where_its_parent_stands_at_that_epoch_its_trainer_is_named(world):
    world.branch(0, 4)
    (part,) = world.sent(1).ext[NAME]["way"]
    assert part["holder"] == world.trial(0).holder != ""


def test_copies_from_the_second_on_have_keys_of_their_own(world):
    world.branch(0, 3, copies=3)
    assert [world.trial(n).origin.keys for n in (1, 2, 3)] == [0, 2, 3]


@pytest.mark.parametrize("seeding", ["trial", "shared"])
def test_keys_are_those_of_the_first_parent(seeding):
    world = Branching(devices=8, n_trials=2, seeding=seeding)
    world.epoch_of(0)
    if seeding == "trial":
        world.epoch_of(1)
    world.branch(1 if seeding == "trial" else 0, 1)
    world.epoch_of(2)
    world.branch(2, 2)
    keys = 1 if seeding == "trial" else 0
    assert [world.trial(n).origin.keys for n in (2, 3)] == [keys, keys]


def test_a_branch_of_a_branch_is_told_the_whole_way(world):
    world.branch(0, 2)
    world.epoch_of(1)
    world.branch(1, 3)
    while world.trial(2).fence == 0:
        world.epoch_of(0 if world.trial(0).fence else 1)
    way = world.sent(2).ext[NAME]["way"]
    assert [(part["trial"], part["begin"], part["epoch"]) for part in way] == [
        ("s-1-0000", 0, 2),
        ("s-1-0001", 2, 3),
    ]


def test_a_durable_state_is_the_branchs_too_and_is_kept_for_it(world):
    world.durable(0, 3)
    world.branch(0, 3)
    assert [state.epoch for state in world.trial(1).parents] == [3]
    world.epoch_of(0)
    discarded = world.durable(0, 5)
    for _ in range(2):
        world.epoch_of(1)
    discarded += world.durable(1, 5)
    assert [state.epoch for state in world.trial(1).parents] == [5, 3]
    gone = {uri for each in discarded if isinstance(each, Discard) for uri in each.uris}
    assert "file:///0-3" not in gone


def test_what_is_in_the_store_before_is_where_a_replay_begins(world):
    world.durable(0, 2)
    world.branch(0, 3)
    (part,) = world.sent(1).ext[NAME]["way"]
    assert part["states"] == [[2, "file:///0-2", world.trial(0).hashes[2]]]


def test_a_branch_whose_state_is_nowhere_has_one_device():
    """One process computes it, and the others of a gang would wait."""
    world = Branching(devices=2, n_trials=1, max_width=2, shards=8)
    world.epoch_of(0)
    world.branch(0, 1)
    state, branch = world.engine.state, world.trial(1)
    state.widths[branch.id] = 2
    planning = Planning(SimpleNamespace(state=state, extensions=world.engine.extensions))
    assert planning.width(world.study, branch) == 1
    branch.holder = "there"
    assert planning.width(world.study, branch) == 2
    branch.losses = 1
    assert planning.width(world.study, branch) == 1
    branch.parents = (Parent(1, "file:///1", "h"),)
    assert planning.width(world.study, branch) == 2


def test_a_lost_branch_begins_there_again(world):
    world.branch(0, 3)
    sent = world.sent(1)
    world.send(
        AttemptLost(at=world.at, trial="s-1-0001", fence=sent.segment.fence, reason="killed")
    )
    world.to_the_end()
    assert world.finish.status == "complete"
    assert world.epochs_by_trial()["s-1-0001"] == 3


@pytest.mark.parametrize("plan", [ASHA, HALVING])
def test_no_strategy_counts_a_branch(plan):
    world = Branching(plan, n_trials=4)
    world.epoch_of(0)
    world.branch(0, 1, to=4)
    branch = world.trial(len(world.study.trials) - 1)
    while world.open:
        trial = world.engine.state.trials[world.open[min(world.open)].segment.trial]
        world.epoch_of(trial.number)
        if "s-1" in world.engine.state.studies:
            assert branch.id not in repr(world.study.strategy)
    assert world.finish.status == "complete"
    assert world.epochs_by_trial()[branch.id] == 3


def test_an_extended_study_has_as_many_trials_as_were_asked_for(world):
    world.branch(0, 3)
    world.send(StudyExtended(at=world.at, study=of_torch(FULL, n_trials=2), past=None))
    world.to_the_end()
    assert len(world.epochs_by_trial()) == 3


def test_a_configuration_that_is_enqueued_still_has_its_place():
    world = Branching(n_trials=2)
    world.epoch_of(0)
    world.branch(0, 1)
    world.send(TrialEnqueued(at=world.at, study="s-1", params=(("lr", 0.25),)))
    world.to_the_end()
    assert len(world.epochs_by_trial()) == 3


def test_a_branch_that_goes_on_in_a_study_that_was_over_is_told_its_way(world):
    world.branch(0, 3)
    trials = [world.trial(n) for n in (0, 1)]
    world.to_the_end()
    past = FinishedStudy(1.0, tuple(PastTrial.of(replace(t, parents=())) for t in trials))
    status = {"status": "complete", "finished_at": world.at, "message": ""}
    world.send(StudyReopened(at=world.at, study=of_torch(FULL, n_trials=1), past=past, **status))
    world.send(Steered(at=world.at, trial="s-1-0001", verb="promote", to=8))
    check_invariants(world.engine)
    assert world.sent(1).ext[NAME]["way"][0]["trial"] == "s-1-0000"
    assert NAME in world.study.needs


def test_a_configuration_that_is_enqueued_takes_no_branchs_place():
    world = Branching(n_trials=2, sampler="random")
    world.epoch_of(0)
    world.branch(0, 1)
    branch = world.trial(2)
    assert branch.state is TrialState.WAITING
    world.send(TrialEnqueued(at=world.at, study="s-1", params=(("lr", 0.25),)))
    assert dict(branch.params)["lr"] == 0.5
    assert dict(world.trial(1).params)["lr"] == 0.25


@pytest.mark.parametrize(
    ("fields", "epoch", "more", "words"),
    [
        ({}, 5, {}, "epoch 5 is none of its accepted ones, 1 to 4"),
        ({}, 0, {}, "epoch 0 is none of its accepted ones"),
        ({}, 3, {"to": 3}, "give --to 4 or later"),
        ({}, 3, {"copies": 0}, "0 copies: 1 to 64 can be made"),
        ({"exactness": "statistical"}, 3, {}, "not in the store; none of its own is"),
        ({"contract": "epochs"}, 3, {}, "not in the store"),
        ({"contract": "objective"}, 3, {}, "its objective keeps its state to itself"),
    ],
)
def test_what_cannot_be_branched_is_refused(fields, epoch, more, words):
    world = Branching(n_trials=1, **fields)
    for _ in range(4):
        world.epoch_of(0)
    with pytest.raises(Refused, match=words):
        world.branch(0, epoch, **more)


def test_epochs_before_a_branch_are_its_parents(world):
    world.branch(0, 2)
    world.epoch_of(1)
    with pytest.raises(Refused, match="epoch 2 is of trial 0, of which it was made: branch that"):
        world.branch(1, 2)


def test_a_snapshot_has_what_branches_need(world):
    world.durable(0, 2)
    world.branch(0, 3)
    text = state_to_json(world.engine.state)
    assert state_to_json(state_from_json(text)) == text
    world.engine = Engine(state_from_json(text), plugs=PLUGS)
    world.to_the_end()
    assert world.epochs_by_trial()["s-1-0001"] == 3
