# ruff: noqa: PLW0603 - the objectives here do what users do
"""Objects that an objective changes: ``optimize`` reports, hands back or guards them."""

import copy
import json
import pickle
from types import SimpleNamespace

import optuna
import pytest
from ledgers.study_ledger import make_study, study_spec
from penstock.app.client.script_objects.changed import Changed
from penstock.app.client.script_objects.guard import Guard
from penstock.app.client.study.watching import watch
from penstock.base.errors import BackendError, UsageError
from penstock.tasks.contracts.by_value import scripts_by_value
from penstock.tasks.contracts.function_source import Slot
from penstock.tasks.objectives.left import best_with, is_best, refusal, values_of
from penstock.tasks.objectives.objects import StoredObject

best, scores, last = None, [], None
FIRST: list[int] = scores


def objective(trial):
    global best
    if trial.number > 3:
        best = trial.number
    scores.append(trial.number)


def helper(number):
    scores.append(number)


def by_a_helper(trial):
    helper(trial.number)


def sets_each_time(trial):
    global last
    last = trial.number


def appends_alone(trial):
    scores.append(trial.number)


@pytest.fixture(autouse=True)
def as_at_the_start():
    yield
    Changed(objective, ["minimize"])  # lifts what stands
    globals().update(best=None, scores=FIRST, last=None)
    FIRST.clear()


def ended(number, value, left, stored):
    trial = optuna.create_trial(value=value, system_attrs={left.key: stored})
    trial.number = number
    return trial


def handed_back(changed, values, direction="minimize"):
    """Hand back what trials with these values have left: each its own number."""
    trials = [
        ended(number, value, changed.left, StoredObject("dict", number, str(number)))
        for number, value in enumerate(values)
    ]
    slot = changed.left.slots[0]
    changed.hand_back(f"s-{values}-{direction}", trials, lambda stored: {slot: int(stored.digest)})


@pytest.mark.parametrize(("direction", "number"), [("minimize", 1), ("maximize", 0)])
def test_the_script_has_what_the_best_trial_has_left(direction, number):
    handed_back(Changed(objective, [direction]), [2.0, 1.0, 1.0, 2.0], direction)
    assert best == number


def test_what_one_trial_has_left_is_given_once():
    handed_back(Changed(objective, ["minimize"]), [3.0, 1.0])
    globals().update(best="changed by the script")
    handed_back(Changed(objective, ["minimize"]), [3.0, 1.0])
    assert best == "changed by the script"


def test_what_was_changed_in_place_is_said_and_guarded(capsys):
    changed = Changed(objective, ["minimize"])
    changed.tell()
    said = capsys.readouterr().err
    assert said.count("\n") == 2
    assert "scores is changed by the objective in trainers" in said
    assert 'trial.set_user_attr("scores", trial.number)' in said
    handed_back(changed, [1.0])
    for use in (len, list, str, bool, iter, sum, lambda it: it[0], lambda it: it.append(1)):
        with pytest.raises(UsageError, match="scores is changed by the objective") as refused:
            use(scores)
    assert str(refused.value) in said


def test_what_the_script_has_changed_itself_is_not_guarded():
    changed = Changed(appends_alone, ["minimize"])
    scores.append("by a callback")
    changed.hand_back("s", [optuna.create_trial(value=1.0)], lambda stored: {})
    assert scores == ["by a callback"]


def test_before_the_next_optimize_of_an_objective_its_guards_are_lifted():
    handed_back(Changed(objective, ["minimize"]), [1.0])
    assert isinstance(scores, Guard)
    Changed(sets_each_time, ["minimize"])
    assert isinstance(scores, Guard), "that one has nothing to do with it"
    Changed(objective, ["minimize"])
    assert scores is FIRST


def test_with_several_objectives_nothing_is_handed_back_and_that_is_said(capsys):
    changed = Changed(objective, ["minimize", "maximize"])
    assert changed.left is None
    changed.tell()
    assert capsys.readouterr().err.count("is changed by the objective in trainers") == 2
    changed.hand_back("s", [], lambda stored: {})
    assert best is None, "no trial has run"
    changed.hand_back("s", [optuna.create_trial(values=[1.0, 2.0])], lambda stored: {})
    with pytest.raises(UsageError, match="best is changed by the objective"):
        f"{best}"


def test_a_name_that_every_trial_sets_is_said_to_be_the_best_ones(capsys):
    Changed(sets_each_time, ["minimize"]).tell()
    assert "after optimize it is what the best trial has left" in capsys.readouterr().err


def test_a_name_that_is_set_by_another_measure_is_said_to_be_the_best_ones(capsys):
    Changed(objective, ["minimize"]).tell()
    assert "sets best in some trials: after optimize it is what the" in capsys.readouterr().err


def test_what_could_not_be_sent_is_guarded_with_the_reason():
    changed = Changed(objective, ["minimize"])
    refused = json.loads(refusal(TypeError("it has a lock")))
    changed.hand_back("s", [ended(0, 1.0, changed.left, refused)], lambda stored: {})
    with pytest.raises(UsageError, match="trial 0 could not hand it back: it has a lock"):
        best.predict()


def test_what_could_not_be_opened_is_tried_again_after_the_next_optimize():
    def hand_back(open_object):
        changed = Changed(objective, ["minimize"])
        trial = ended(0, 1.0, changed.left, StoredObject("dict", 1, "1"))
        changed.hand_back("s-again", [trial], open_object)

    def away(stored):
        raise BackendError("the store is away")

    hand_back(away)
    with pytest.raises(UsageError, match="the store is away"):
        best.predict()
    hand_back(lambda stored: {Slot("global", "best"): 5})
    assert best == 5


class Undeclared:
    kept = None

    def __call__(self, trial):
        self.kept = self.found = trial.number


def test_attributes_that_an_objective_did_not_have_come_back_too():
    left = Changed(Undeclared(), ["minimize"]).left
    assert [slot.shown for slot in left.slots] == ["self.kept", "self.found"]
    assert {slot.shown for slot in left.scratch} == {"self.found"}


def test_advice_for_a_function_without_the_trial_names_who_has_it(capsys):
    Changed(by_a_helper, ["minimize"]).tell()
    assert "Hand it to the objective, and write `trial.set_" in capsys.readouterr().err


def test_a_trainer_sends_what_is_better_than_all_that_was_left():
    left = Changed(objective, ["minimize"]).left
    stored = StoredObject("dict", 1, "1")
    trials = [ended(0, 2.0, left, stored), optuna.create_trial(value=0.0)]
    assert is_best(2.0, trials, left, "minimize")
    assert not is_best(2.5, trials, left, "minimize")
    assert is_best(2.5, trials, left, "maximize")
    assert values_of(objective, left.slots) == {left.slots[0]: None}


def test_what_a_storage_of_the_users_has_of_it_is_a_text_and_counts_for_nothing():
    left = Changed(objective, ["minimize"]).left
    stored = StoredObject("dict", 1, "1")
    brought, own = ended(0, 1.0, left, str(stored)), ended(1, 2.0, left, stored)
    assert is_best(1.5, [brought], left, "minimize")
    assert best_with([brought, own], left, "minimize") is own


def test_python_and_its_tools_may_handle_a_guard():
    guard = Guard("it is empty", [1])
    assert repr(guard) == "it is empty"
    assert not isinstance(guard, list)
    with scripts_by_value("none.of.these"):
        assert pickle.loads(pickle.dumps(guard)) == [1], "it goes to trainers"
    assert len({guard}) == 1
    assert isinstance(guard, Guard)
    with pytest.raises(UsageError, match="it is empty"):
        json.dumps({"scores": guard}, default=float)
    with pytest.raises(TypeError, match="it is empty"):
        json.dumps({"scores": guard})
    copies = lambda: copy.deepcopy([guard]), lambda: copy.copy(guard), lambda: pickle.dumps([guard])
    for use in (lambda: guard + 1, lambda: guard > 1, guard, lambda: guard == 1, *copies):
        with pytest.raises(UsageError, match="it is empty"):
            use()


def test_a_ledger_that_does_not_answer_ends_no_watching_where_the_script_has_log_handlers(
    settings, tmp_path
):
    reader = make_study(tmp_path, study_spec())
    handle = SimpleNamespace(id="digits-1a2b", settings=settings, reader=lambda: reader)
    asked, told = [], []

    def pass_on(study):
        asked.append(study)
        if len(asked) < 3:
            raise BackendError("database is locked")

    row = watch(
        handle,
        [],
        on_trial=told.append,
        relay=SimpleNamespace(pass_on=pass_on),
        show=False,
    )
    assert row.status == "complete"
    assert len(told) == len(reader.trials("digits-1a2b"))
    assert asked.count("digits-1a2b") == len(asked) > 3
