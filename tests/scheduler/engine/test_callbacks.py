"""Studies whose script calls callbacks: no more trials begin than these may stop in time."""

from __future__ import annotations

import pytest
from penstock.app.ledger.codec import decode, encode, state_to_json
from penstock.app.server.runner.listeners import SILENCE, Listeners
from penstock.scheduler.engine.engine import Engine, Refused
from penstock.scheduler.engine.lifecycle import UNHEARD
from penstock.scheduler.model.events import (
    AttemptFailed,
    CallbacksCalled,
    StudyStopped,
    TrialReturned,
)
from penstock.scheduler.model.study import Code, StrategySpec
from worlds.drive_world import World, spec


class Heard(World):
    """A study of an objective on two devices, whose script calls callbacks."""

    def __init__(self, n_trials=9, strategy=None, *, heard=True):
        super().__init__()
        fields = {"contract": "objective", "sampler": "optuna", "space": None}
        tools = Code("pickle:tools", "", "d")
        made = spec(strategy or StrategySpec(), n_trials=n_trials, tools=tools, **fields)
        self.submit(made)
        if heard:
            self.hear()
        self.join("cpu.a.0", "cpu.b.0")

    @property
    def study(self):
        return self.engine.state.studies.get("s-1")

    def hear(self, *numbers, over=False):
        names = tuple(f"s-1-{number:04}" for number in numbers)
        self.send(CallbacksCalled(at=self.at, study="s-1", trials=names, over=over))

    def end(self, *, fails=False):
        """The oldest trial at work ends; its number."""
        dispatch = self.open[min(self.open)]
        named = {"trial": dispatch.segment.trial, "fence": dispatch.segment.fence}
        self.at += 1.0
        if fails:
            raised = {"kind": "exception", "message": "no", "traceback": ""}
            self.send(AttemptFailed(at=self.at, cause=dispatch.id, **named, **raised))
        else:
            self.send(TrialReturned(at=self.at, cause=dispatch.id, value=1.0, **named))
        return dispatch.number

    def begun(self):
        return len(self.study.trials)


@pytest.fixture
def world():
    world = Heard()
    yield world
    replayed = Engine()
    for event in world.journal:
        replayed.handle(decode(*encode(event)))
    assert state_to_json(replayed.state) == state_to_json(world.engine.state)


def test_the_next_trial_waits_for_the_callbacks_of_the_one_that_ended(world):
    assert world.begun() == 2
    ended = world.end()
    assert world.begun() == 2
    world.hear(ended)
    assert world.begun() == 3


@pytest.mark.parametrize("devices", [1, 2])
def test_trials_that_were_all_proposed_at_once_wait_for_callbacks_too(devices):
    """A random sampler needs no results, so its trials are there before the script is heard."""
    world = World()
    world.submit(spec(StrategySpec("full", max_epochs=1), sampler="random", n_trials=5))
    world.send(CallbacksCalled(at=0.0, study="s-1"))
    world.join(*(f"cpu.{n}.0" for n in range(devices)))
    study = world.engine.state.studies["s-1"]
    assert len(study.trials) == 5
    while len(study.unheard) < devices:
        assert len(world.open) == devices - len(study.unheard)
        world.run_segment()
    assert not world.open
    for _ in range(5 - devices):
        world.send(CallbacksCalled(at=world.at, study="s-1", trials=(study.unheard[0],)))
        assert len(world.open) == 1
        world.run_segment()
    assert world.finish is None
    world.send(CallbacksCalled(at=world.at, study="s-1", trials=tuple(study.unheard)))
    assert world.finish.status == "complete"


def test_the_other_slots_trials_wait_for_no_callback_of_their_own(world):
    first, second = world.end(), world.end()
    world.hear(second)
    assert world.begun() == 3
    world.hear(first, second)
    assert world.begun() == 4


def test_a_study_without_callbacks_waits_for_none():
    world = Heard(heard=False)
    world.end()
    assert world.begun() == 3


def test_a_stop_at_any_trial_comes_before_more_begin_than_there_are_slots(world):
    for _ in range(3):
        world.hear(world.end())
    world.end()
    world.send(StudyStopped(at=world.at, study="s-1"))
    assert world.begun() == 5, "four have ended and one was at work"
    last = world.end()
    assert world.begun() == 5
    world.hear(3, last)
    assert world.study is None


def test_a_trial_that_fails_waits_for_its_callbacks_too(world):
    failed = world.end(fails=True)
    assert world.begun() == 2
    world.hear(failed)
    assert world.begun() == 3


def test_a_study_is_over_when_the_callbacks_of_its_last_trial_were_called():
    world = Heard(n_trials=2)
    ended = [world.end(), world.end()]
    assert world.study is not None
    world.hear(*ended)
    assert world.study is None
    assert world.engine.state.finished == {"s-1": "s"}


def test_a_study_whose_script_has_gone_goes_on_and_says_so(world):
    world.end()
    world.end()
    world.hear(over=True)
    assert world.begun() == 4
    assert world.study.message == UNHEARD
    world.end()
    assert world.begun() == 5


def test_a_script_that_comes_back_is_waited_for_again(world):
    world.hear(over=True)
    ended = world.end()
    world.hear(ended)
    assert not world.study.message
    world.end()
    assert world.begun() == 3


def test_trials_of_a_strategy_that_compares_them_wait_for_no_callback():
    world = Heard(strategy=StrategySpec("asha", max_epochs=4), heard=False)
    with pytest.raises(Refused, match="does not wait for callbacks"):
        world.hear()
    with pytest.raises(Refused, match="has no callbacks"):
        Heard(heard=False).hear(over=True)


def test_a_script_has_gone_when_it_was_silent_for_long_enough(world):
    listeners, asked = Listeners(), []

    def found(at, alive=(), *, blind=False):
        def ask(studies):
            asked.append(list(studies))
            return alive

        return list(listeners.findings(world.engine.state, ask, at, blind=blind))

    assert not found(0.0)
    assert not found(SILENCE)
    assert not found(SILENCE + 0.5, alive=["s-1"])
    times = [at * SILENCE for at in (2.0, 2.5, 3.0)]
    assert not any(found(at) for at in times)
    assert not found(3.1 * SILENCE, blind=True), "an outage proves nothing"
    assert [found(at) for at in (4.0 * SILENCE, 5.0 * SILENCE)] == [[], []]
    [event] = found(5.1 * SILENCE)
    assert (event.study, event.over) == ("s-1", True)
    world.hear(over=True)
    asked.clear()
    assert not found(9.0 * SILENCE)
    assert not asked, "the broker is asked for studies with callbacks only"
