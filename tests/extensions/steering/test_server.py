"""Commands about single trials as events, and what is refused with the reason."""

from __future__ import annotations

import pytest
from penstock.app.server.runner.commands import to_event
from penstock.app.server.runner.user_commands import reopening
from penstock.base.errors import UsageError
from penstock.extensions.steering.events import Steered
from penstock.scheduler.model.finished import FinishedStudy, PastTrial
from penstock.scheduler.model.study import StrategySpec, StudyRecord
from penstock.scheduler.model.trial import TrialState
from worlds.drive_world import World, spec


@pytest.fixture
def world():
    """A trial that runs, and one that waits."""
    world = World()
    world.submit(spec(n_trials=2, sampler="random"))
    world.join("cpu.a.0")
    return world


def event(world, **body):
    return to_event({"kind": "steer", **body}, world.engine, 10.0, {}.__getitem__)


def test_a_command_says_who_decided_what_and_why(world):
    found = event(world, study="s-1", number=1, verb="promote", to=5, who="ada@lab", why="good")
    assert found == Steered(
        at=10.0, trial="s-1-0001", verb="promote", to=5, who="ada@lab", why="good"
    )


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"study": "s-2", "number": 0, "verb": "stop"}, "there is no study s-2"),
        ({"study": "s-1", "number": 2, "verb": "stop"}, "s has no trial 2: its trials are 0 to 1"),
        ({"study": "s-1", "number": -1, "verb": "stop"}, "number: Input should be greater"),
        ({"study": "s-1", "number": "0", "verb": "stop"}, "number: Input should be a valid int"),
        ({"study": "s-1", "number": 0, "verb": "kill"}, "verb: Input should be 'stop', 'pause'"),
        ({"study": "s-1", "number": 0, "verb": "resume"}, "resume is refused for trial 0 of s:"),
        ({"study": "s-1", "number": 0, "verb": "retry"}, "it is running, and only a trial that"),
        ({"study": "s-1", "number": 0, "verb": "promote"}, "epoch 3 is its last one: --to 4"),
        ({"study": "s-1", "number": 0, "verb": "stop", "why": "x" * 501}, "at most 500 characters"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(world, body, words):
    with pytest.raises(UsageError, match=words.replace("(", r"\(")):
        event(world, **body)


@pytest.mark.parametrize(
    ("verb", "opens"),
    [("stop", False), ("pause", False), ("resume", False), ("promote", True), ("retry", True)],
)
def test_a_study_that_is_over_is_reopened_where_a_trial_of_it_goes_on(world, verb, opens):
    record = StudyRecord(spec(), "complete", 1.0, 9.0, "m")
    world.engine.state.finished["s-9"] = "old"
    body = {"kind": "steer", "study": "s-9", "number": 0, "verb": verb}
    state = TrialState.FAILED if verb == "retry" else TrialState.COMPLETED
    trial = PastTrial("s-9-0000", "s-9", 0, (), 1.0, state=state, epoch=2)
    find = {"s-9": (record, FinishedStudy(1.0, (trial,)))}.__getitem__
    found = reopening(body, world.engine.state, 10.0, find)
    assert (found is not None) == opens
    with pytest.raises(UsageError, match="s has no trial 3: its trials are 0 to 0"):
        reopening({**body, "verb": "promote", "number": 3}, world.engine.state, 10.0, find)
    if found is not None:
        assert (found.status, found.finished_at, found.message) == ("complete", 9.0, "m")


def test_a_study_that_is_over_but_for_single_trials_is_extended_later(world):
    strategy = StrategySpec("asha", max_epochs=9)
    record = StudyRecord(spec(strategy, id="s-9", name="old"), "complete", 1.0, 9.0)
    trial = PastTrial("s-9-0000", "s-9", 0, (), 1.0, state=TrialState.COMPLETED, epoch=9)
    world.engine.state.finished["s-9"] = "old"
    find = {"s-9": (record, FinishedStudy(1.0, (trial,)))}.__getitem__
    body = {"kind": "steer", "study": "s-9", "number": 0, "verb": "promote", "to": 12}
    world.engine.handle(reopening(body, world.engine.state, 10.0, find))
    world.engine.handle(to_event(body, world.engine, 10.0, find))
    with pytest.raises(UsageError, match="old is over but for single trials"):
        to_event({"kind": "extend", "study": "s-9", "by": 3}, world.engine, 10.0, find)


def test_a_configuration_for_a_study_that_is_over_extends_it(world):
    world.engine.state.finished["s-9"] = "old"
    record = StudyRecord(spec(id="s-9", n_trials=1, space=None), "complete", 1.0, 9.0)
    past = FinishedStudy(1.0, ())
    body = {"kind": "enqueue", "study": "s-9", "params": {"x": 1}}
    found = to_event(body, world.engine, 10.0, {"s-9": (record, past)}.__getitem__)
    assert (found.study.n_trials, found.past) == (1, past)
    assert found.enqueued == ((("x", 1),),)
