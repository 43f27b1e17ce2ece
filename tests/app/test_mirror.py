"""A study in a storage of the user's: what is copied from there, and what is written back."""

from __future__ import annotations

from dataclasses import dataclass

import optuna
import penstock
import pytest
from optuna.storages import InMemoryStorage
from optuna.study import StudyDirection
from optuna.trial import TrialState
from penstock.app.study.mirror import Mirror
from penstock.app.study.study import space_second

X = {"x": optuna.distributions.FloatDistribution(0, 1)}


def objective(trial):
    trial.report(0.5, 3)
    trial.set_user_attr("seen", [1])
    return trial.suggest_float("x", 0, 1)


@dataclass
class Copied:
    """Plain Optuna's study in a file, its mirror, and a copy that stands for ours."""

    theirs: optuna.Study
    mirror: Mirror
    ours: optuna.Study

    def write_back(self):
        self.mirror.write_back(self.ours.get_trials(deepcopy=False), self.ours.user_attrs)


@pytest.fixture
def copied(tmp_path):
    url = f"sqlite:///{tmp_path / 'theirs.db'}"
    theirs = optuna.create_study(study_name="s", direction="maximize", storage=url)
    theirs.add_trial(optuna.create_trial(params={"x": 0.1}, distributions=X, value=0.1))
    theirs.enqueue_trial({"x": 0.25})
    mirror = Mirror.open(url, "s", (), may_exist=True, must_exist=True)
    memory = InMemoryStorage()
    number = memory.create_new_study([StudyDirection.MAXIMIZE], "s")
    mirror.copy_to(memory, number)
    return Copied(theirs, mirror, optuna.load_study(study_name="s", storage=memory))


def test_a_trial_that_waited_there_ends_there_as_it_ended_here(copied):
    copied.ours.optimize(objective, n_trials=1)
    copied.write_back()
    [_, waited] = copied.theirs.trials
    [_, ran] = copied.ours.trials
    assert (waited.state, waited.value, waited.params) == (TrialState.COMPLETE, 0.25, {"x": 0.25})
    for name in ("distributions", "user_attrs", "system_attrs", "intermediate_values"):
        assert getattr(waited, name) == getattr(ran, name)


def test_trials_have_the_ids_by_which_the_user_s_storage_finds_them(copied):
    copied.ours.optimize(objective, n_trials=2)
    copied.write_back()
    running = copied.ours.ask()
    *ended, asked = copied.ours.get_trials(deepcopy=False)
    *found, last = copied.mirror.with_ids([*ended, asked])
    theirs = copied.theirs._storage
    assert [theirs.get_trial(each._trial_id).value for each in found] == [0.1, 0.25, ended[2].value]
    assert last._trial_id == running._trial_id, "it is not there yet"
    ours = copied.ours.trials
    assert [each._trial_id for each in ended] == [each._trial_id for each in ours[:3]]


def test_a_trial_that_plain_optuna_took_meanwhile_is_its_own(copied):
    taken = copied.theirs.ask()
    copied.ours.optimize(objective, n_trials=1)
    copied.write_back()
    copied.theirs.tell(taken, 0.75)
    assert [trial.value for trial in copied.theirs.trials] == [0.1, 0.75]


def test_what_is_enqueued_waits_there_and_what_runs_comes_later(copied):
    copied.ours.enqueue_trial({"x": 0.5})
    copied.write_back()
    states = [trial.state.name for trial in copied.theirs.trials]
    assert states == ["COMPLETE", "WAITING", "WAITING"]
    asked = copied.ours.ask()
    copied.write_back()
    assert [trial.state.name for trial in copied.theirs.trials] == states
    copied.ours.tell(asked, state=TrialState.FAIL)
    copied.ours.optimize(objective, n_trials=2)
    copied.write_back()
    copied.write_back()
    ended = [trial.state.name for trial in copied.theirs.trials]
    assert ended == ["COMPLETE", "FAIL", "COMPLETE", "COMPLETE"]
    assert [t.value for t in copied.theirs.trials] == [t.value for t in copied.ours.trials]


def test_a_study_that_is_taken_up_keeps_its_direction_and_has_what_is_prepared(settings, copied):
    storage = copied.theirs._storage
    study = penstock.create_study(study_name="s", storage=storage, load_if_exists=True)
    assert study.direction is StudyDirection.MAXIMIZE
    study.enqueue_trial({"x": 0.5})
    study.add_trial(optuna.create_trial(params={"x": 1.0}, distributions=X, value=1.0))
    states = [trial.state.name for trial in copied.theirs.trials]
    assert states == ["COMPLETE", "WAITING", "WAITING", "COMPLETE"]


def test_only_a_mapping_in_second_place_is_a_space():
    @space_second
    def call(self, func, n_trials=None, timeout=None, *, space=None):
        return n_trials, timeout, space

    assert call(None, objective, None, 600) == (None, 600, None)
    assert call(None, objective, X, 20) == (20, None, X)
