"""A task is sent once of each end of a study, as its event says and whatever restarts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from penstock.app.extensions import PLUGS
from penstock.app.ledger.codec import decode, encode, state_from_json, state_to_json
from penstock.extensions.celery_apps.events import Call, Called
from penstock.scheduler.engine.engine import Engine
from penstock.scheduler.model.events import AttemptFailed, StudyCancelled
from penstock.scheduler.model.study import StrategySpec
from worlds.drive_world import World, spec

ONE = StrategySpec("full", max_epochs=1)


def call(task):
    signature = {"task": task, "args": [], "kwargs": {}, "options": {}, "immutable": False}
    signature |= {"subtask_type": None, "chord_size": None}
    return json.dumps({"app": "shop:app", "folder": "/", "path": [], "signature": signature})


END, ERROR = call("shop.deploy"), call("shop.alert")


class Calling(World):
    """A world with a study that has a task for each end."""

    def __init__(self, **fields) -> None:
        super().__init__()
        self.join("cpu.a.0")
        self.study = spec(ONE, **{"on_end": END, "on_error": ERROR, "n_trials": 2, **fields})
        self.submit(self.study)

    @property
    def calls(self) -> list[Call]:
        return [each for each in self.trace if isinstance(each, Call)]

    def answer(self, each: Call) -> None:
        said = {"task": "shop.deploy", "app": "shop:app", "task_id": each.task_id}
        self.send(
            Called(at=self.at, cause=each.id, study=each.study, occasion=each.occasion, **said)
        )

    def fail_all(self) -> None:
        while self.open:
            dispatch = self.open[min(self.open)]
            failed = {"trial": dispatch.segment.trial, "fence": dispatch.segment.fence}
            why = {"kind": "exception", "message": "no such file", "traceback": ""}
            self.send(AttemptFailed(at=self.at, cause=dispatch.id, **failed, **why))


def test_a_study_that_completes_has_its_task_sent_with_its_figures():
    world = Calling()
    world.run()
    [made] = world.calls
    assert (made.occasion, made.call, made.again) == ("on_end", END, False)
    assert made.facts == {
        "id": world.study.id,
        "name": world.study.name,
        "status": "complete",
        "message": "",
        "seconds": world.at,
        "trials": {"completed": 2},
        "best": {"number": 1, "value": 1.0, "params": made.facts["best"]["params"]},
    }


def test_a_study_that_fails_has_the_other_task_sent():
    world = Calling()
    world.fail_all()
    [made] = world.calls
    assert (made.occasion, made.call, made.facts["status"]) == ("on_error", ERROR, "failed")
    assert made.facts["best"] is None


def test_a_cancelled_study_has_ended_and_says_so():
    world = Calling()
    world.send(StudyCancelled(at=1.0, study=world.study.id))
    [made] = world.calls
    assert (made.occasion, made.facts["status"]) == ("on_end", "cancelled")


@pytest.mark.parametrize("left_out", ["on_end", "on_error"])
def test_without_a_task_for_this_end_none_is_sent(left_out):
    world = Calling(**{left_out: ""})
    if left_out == "on_end":
        world.run()
    else:
        world.fail_all()
    assert world.calls == []
    assert "celery_apps" not in world.engine.state.ext


def test_a_call_is_a_question_until_it_is_answered_and_then_nothing_is_left_of_it():
    world = Calling()
    world.run()
    [made] = world.calls
    restored = Engine(state_from_json(state_to_json(world.engine.state)), plugs=PLUGS)
    [asked] = restored.questions()
    assert asked == world.engine.questions()[0] == replace(made, again=True)
    assert asked.task_id == made.task_id
    world.answer(made)
    assert world.engine.questions() == []
    assert "celery_apps" not in world.engine.state.ext


def test_a_replay_decides_the_same():
    world = Calling()
    world.run()
    world.answer(world.calls[0])
    again, trace = Engine(plugs=PLUGS), []
    for event in world.journal:
        trace += again.handle(decode(*encode(event)))
    assert trace == world.trace
    assert state_to_json(again.state) == state_to_json(world.engine.state)


def test_the_id_of_a_task_follows_from_the_study_and_the_decision():
    one = Call(id="7.0", cause=7, study="s-1", occasion="on_end", call=END, facts={})
    assert one.task_id == replace(one, again=True).task_id
    others = {replace(one, id="8.0").task_id, replace(one, study="s-2").task_id}
    assert len({one.task_id, *others}) == 3


def test_a_study_that_calls_nobody_has_nothing_of_it():
    world = Calling(on_end="", on_error="")
    assert world.engine.extensions.by_study == {}
    world.run()
    assert world.calls == []
    assert world.engine.state.ext == {}


def test_arguments_are_not_in_the_words_for_a_study_or_a_call():
    world = Calling(on_end=call("secret-3f2a"))
    world.run()
    assert "secret-3f2a" not in repr(world.study) + repr(world.calls)
