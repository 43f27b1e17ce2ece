"""Commands for branches as events: which values are taken, and what is refused with the reason."""

from __future__ import annotations

from dataclasses import replace

import pytest
from penstock import Categorical, Float, Int, UsageError
from penstock.app.server.runner.commands import answer, to_event
from penstock.app.server.runner.user_commands import reopening
from penstock.app.spec.conditions import parse_conditions
from penstock.app.spec.space import parse_space
from penstock.extensions.branches.values import values_of
from penstock.scheduler.model.finished import FinishedStudy, PastTrial
from penstock.scheduler.model.study import Condition, Edits, StudyRecord
from worlds.drive_world import World, spec

SPACE = {
    "lr": Float(0.001, 0.1, log=True),
    "hidden": Int(8, 64, step=8),
    "optimizer": ["sgd", "adam"],
    "momentum": Float(0.8, 0.99, when={"optimizer": "sgd"}),
}
PARENT = (("lr", 0.01), ("hidden", 16), ("optimizer", "sgd"), ("momentum", 0.9))


def values(given, *, parent=PARENT, outside=False, space=SPACE):
    of = spec(space=parse_space(space), conditions=parse_conditions(space))
    return values_of(of, parent, given, outside=outside)


def test_values_that_are_given_take_the_place_of_the_parents():
    found = values({"lr": 0.05, "hidden": 16})
    assert dict(found.params) == dict(PARENT) | {"lr": 0.05}
    assert found.changed == (("lr", 0.05),)
    assert found.outside == ()


def test_a_value_outside_is_taken_where_that_is_allowed_and_is_noted():
    with pytest.raises(UsageError, match=r"params\['lr'\] = 0.5 .*0.001 to 0.1"):
        values({"lr": 0.5})
    found = values({"lr": 0.5, "hidden": 72}, outside=True)
    assert found.changed == (("lr", 0.5), ("hidden", 72))
    assert found.outside == ("lr", "hidden")
    # A branch of it keeps the value without being asked again.
    again = values({"hidden": 8}, parent=found.params)
    assert dict(again.params)["lr"] == 0.5
    assert again.changed == (("hidden", 8),)


def test_a_branch_of_a_trial_from_before_an_edit_has_what_its_parent_has():
    narrow = {
        "lr": Float(0.05, 0.1, log=True),
        "hidden": Int(32, 64, step=8),
        "optimizer": ["adam"],
    }
    narrow["momentum"] = SPACE["momentum"]
    conditions = (Condition("momentum", "optimizer", ("sgd",)),)
    of = spec(
        space=(*parse_space({**narrow, "drop": Float(0.0, 0.5)}),),
        conditions=conditions,
        edits=Edits(assumed=(("drop", 0.1),)),
    )
    found = values_of(of, PARENT, {"lr": 0.06}, outside=False)
    assert dict(found.params) == dict(PARENT) | {"lr": 0.06}
    assert found.outside == ()
    with_it = values_of(of, PARENT, {"drop": 0.3}, outside=False)
    assert (dict(with_it.params)["drop"], with_it.changed) == (0.3, (("drop", 0.3),))
    fixed = replace(of, space=(("lr", Float(0.05, 0.1).to_json().replace("0.1", "0.05")),))
    assert values_of(fixed, (("lr", 0.05),), {"lr": 0.2}, outside=True).outside == ("lr",)
    with pytest.raises(UsageError, match=r"0\.05 to 0\.1"):
        values_of(of, PARENT, {"lr": 0.02}, outside=False)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"rate": 1}, "one of lr, hidden, optimizer, momentum"),
        ({"optimizer": "lion"}, r"one of \['sgd', 'adam'\]"),
        ({"lr": "fast"}, "params"),
        ({"hidden": 12}, "multiple of 8"),
        ({"optimizer": "adam", "momentum": 0.85}, "nothing unless optimizer"),
    ],
)
def test_values_that_cannot_be_are_refused(given, words):
    for outside in (False, True):
        with pytest.raises(UsageError, match=words):
            values(given, outside=outside)


def test_parameters_come_and_go_with_the_choice_that_they_depend_on():
    found = values({"optimizer": "adam"})
    assert dict(found.params) == {"lr": 0.01, "hidden": 16, "optimizer": "adam"}
    assert found.changed == (("optimizer", "adam"),)
    with pytest.raises(UsageError, match="momentum is a parameter, too: give its value"):
        values({"optimizer": "sgd"}, parent=found.params)
    assert dict(values({"optimizer": "sgd", "momentum": 0.85}, parent=found.params).params) == {
        **dict(PARENT),
        "momentum": 0.85,
    }


@pytest.fixture
def world():
    """A trial with two epochs that runs."""
    world = World()
    space = {"lr": Float(0.001, 0.9), "kind": Categorical(["a", "b"])}
    world.submit(spec(n_trials=1, sampler="random", contract="torch", space=parse_space(space)))
    world.join("cpu.a.0")
    (dispatch,) = world.open.values()
    for epoch in (1, 2):
        world.send(world.epoch(dispatch, epoch, closes=False))
    world.engine.state.trials["s-1-0000"].params = (("lr", 0.1), ("kind", "a"))
    return world


def event(world, **body):
    given = {"kind": "branch", "study": "s-1", "number": 0, "epoch": 1, "params": {"lr": 0.2}}
    return to_event(given | body, world.engine, 10.0, {}.__getitem__)


def test_the_answer_has_the_numbers_of_the_trials_that_were_made(world):
    made = event(world, copies=2, who="ada@lab", why="slow")
    assert (made.to, made.changed, made.who, made.why) == (3, (("lr", 0.2),), "ada@lab", "slow")
    world.send(made)
    assert answer(made, world.engine.state) == {"numbers": [1, 2]}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"study": "s-2"}, "there is no study s-2"),
        ({"number": 2}, "s has no trial 2: its trials are 0 to 0"),
        ({"number": -1}, "number: Input should be greater"),
        ({"epoch": 3}, "trial 0 of s cannot be branched: epoch 3 is none of its accepted ones"),
        ({"params": {"lr": [0.1]}}, "params.lr"),
        ({"params": 7}, "params: Input should be a valid dict"),
        ({"params": {}}, "would be trial 0 again: give a value that differs"),
        ({"params": {"lr": 0.1}}, "would be trial 0 again"),
        ({"params": {"lr": 2.0}}, "0.001 to 0.9"),
        ({"copies": 65}, "65 copies: 1 to 64 can be made"),
        ({"why": "x" * 501}, "at most 500 characters"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(world, body, words):
    with pytest.raises(UsageError, match=words):
        event(world, **body)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, None),
        ({"epoch": 9}, "epoch 9 is none of its accepted ones"),
        ({"number": 7}, "has no trial 7"),
        ({"epoch": "x"}, "has no trial 0"),
        ({"params": {"lr": 2.0}}, "0.001 to 0.9"),
    ],
)
def test_a_study_that_is_over_is_reopened_unless_the_command_is_refused(world, body, words):
    study = world.engine.state.studies["s-1"].spec
    past = FinishedStudy(1.0, (PastTrial.of(world.engine.state.trials["s-1-0000"]),))
    world.engine.state.finished["s-9"] = "s"
    record = StudyRecord(study, "complete", 1.0, 9.0, "m")
    given = {"kind": "branch", "study": "s-9", "number": 0, "epoch": 1, "params": {"lr": 0.2}}

    def reopened():
        return reopening(given | body, world.engine.state, 10.0, lambda _: (record, past))

    if words is None:
        assert reopened().past == past
    else:
        with pytest.raises(UsageError, match=words):
            reopened()
