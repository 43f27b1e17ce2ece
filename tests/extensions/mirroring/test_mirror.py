"""A study in a storage of the user's: what comes from there, what goes there, and its ids."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import optuna
import penstock
import pytest
from optuna.storages import InMemoryStorage
from optuna.study import StudyDirection
from optuna.trial import TrialState
from penstock.app.client.study.study import space_second
from penstock.extensions.mirroring.mirror import Mirror
from penstock.extensions.mirroring.storage import MirroredStorage

X = {"x": optuna.distributions.FloatDistribution(0, 1)}


def objective(trial):
    trial.report(0.5, 3)
    trial.set_user_attr("seen", [1])
    return trial.suggest_float("x", 0, 1)


@dataclass
class Copied:
    """Plain Optuna's study in a file, its mirror, and ours, in memory, as its user sees it.

    ``inside`` is ours for those who run it: nothing is brought into step when that is used.
    """

    theirs: optuna.Study
    mirror: Mirror
    inside: optuna.Study
    ours: optuna.Study


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
    inside = optuna.load_study(study_name="s", storage=memory)
    ours = optuna.load_study(study_name="s", storage=MirroredStorage(mirror))
    return Copied(theirs, mirror, inside, ours)


def values(study):
    return [trial.value for trial in study.trials]


def test_a_trial_that_waited_there_ends_there_as_it_ended_here(copied):
    copied.inside.optimize(objective, n_trials=1)
    copied.mirror.sync()
    [_, waited] = copied.theirs.trials
    [_, ran] = copied.ours.trials
    assert (waited.state, waited.value, waited.params) == (TrialState.COMPLETE, 0.25, {"x": 0.25})
    for name in ("distributions", "user_attrs", "system_attrs", "intermediate_values"):
        assert getattr(waited, name) == getattr(ran, name)


@pytest.mark.parametrize("waits", [True, False])
def test_choices_that_the_storage_cannot_hold_are_refused_by_name_before_the_trial_is_taken(
    copied, waits
):
    before = copied.theirs.trials
    if not waits:
        copied.inside.ask()  # the one that waits
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna's, of choices like these
        copied.inside.optimize(
            lambda trial: trial.suggest_categorical("act", [len, sum])(()), n_trials=1
        )
    with pytest.raises(penstock.UsageError, match=r"the choices of 'act'.*choose by name"):
        copied.mirror.sync()
    assert copied.theirs.trials == before


def test_either_storage_finds_a_trial_by_its_id(copied):
    copied.theirs._storage.create_new_study([StudyDirection.MAXIMIZE], "other")
    optuna.load_study(study_name="other", storage=copied.theirs._storage).ask()  # takes an id
    copied.inside.optimize(objective, n_trials=2)
    ids = [trial._trial_id for trial in copied.ours.trials]
    assert ids == [1, 2, 4]
    for storage in (copied.theirs._storage, copied.ours._storage):
        assert [storage.get_trial(each).value for each in ids] == values(copied.ours)
        assert [storage.get_trial_number_from_id(each) for each in ids] == [0, 1, 2]
        assert storage.get_trial_id_from_study_id_trial_number(copied.ours._study_id, 2) == 4
        assert (
            storage.get_best_trial(copied.ours._study_id)._trial_id
            == max(copied.ours.trials, key=lambda trial: trial.value)._trial_id
        )
        assert storage.get_trial(3).state is TrialState.RUNNING, "it is of the other study"


def test_the_id_of_a_trial_that_is_not_there_yet_stays_good(copied):
    copied.ours.ask()
    running, ended = copied.ours.ask(), copied.ours.ask()
    ended.set_user_attr("a", 1)
    copied.ours.tell(ended, 0.75)
    [_, _, _, shown] = copied.ours.trials
    assert (shown._trial_id, shown.value) == (ended._trial_id, 0.75), "an earlier one runs"
    assert len(copied.theirs.trials) == 2
    copied.ours.tell(running, 0.5)
    [_, _, _, shown] = copied.ours.trials
    assert copied.theirs._storage.get_trial(shown._trial_id).user_attrs == {"a": 1}
    assert copied.ours._storage.get_trial(ended._trial_id).number == 3
    with pytest.raises(KeyError):
        copied.ours._storage.get_trial(-100)


def test_files_of_a_trial_are_found_in_either_storage(copied, tmp_path):
    store = optuna.artifacts.FileSystemArtifactStore(tmp_path)
    for number in (1, 2):
        file = tmp_path / f"{number}.txt"
        file.touch()
        trial = copied.ours.ask()
        optuna.artifacts.upload_artifact(
            artifact_store=store, file_path=str(file), study_or_trial=trial
        )
        copied.ours.tell(trial, 1.0)
    for storage in (copied.theirs._storage, copied.ours._storage):
        found = [
            [meta.filename for meta in optuna.artifacts.get_all_artifact_meta(t, storage=storage)]
            for t in copied.ours.trials
        ]
        assert found == [[], ["1.txt"], ["2.txt"]]


def test_a_sampler_that_keeps_ids_in_the_study_finds_its_trials(copied):
    sampler = optuna.samplers.NSGAIISampler(population_size=2, seed=0)
    study = optuna.load_study(study_name="s", storage=copied.ours._storage, sampler=sampler)
    study.optimize(objective, n_trials=6)
    attrs = study._storage.get_study_system_attrs(study._study_id)
    parents = [ids for key, ids in attrs.items() if ":parent:" in key]
    assert parents
    assert {each for ids in parents for each in ids} <= {t._trial_id for t in study.trials}
    for storage in (copied.inside._storage, copied.theirs._storage):
        others = storage.get_study_system_attrs(storage.get_study_id_from_name("s"))
        assert not [key for key in others if ":parent:" in key], "trials have other ids there"


def test_what_others_write_there_comes_here(copied):
    copied.inside.optimize(objective, n_trials=1)
    copied.mirror.sync()
    copied.theirs.optimize(objective, n_trials=1)
    copied.theirs.enqueue_trial({"x": 0.5})
    copied.theirs.set_user_attr("a", 1)
    assert values(copied.ours) == values(copied.theirs)
    assert copied.ours.user_attrs == {"a": 1}
    assert [copied.mirror.is_foreign(k) for k in range(4)] == [True, False, True, False]
    copied.ours.optimize(objective, n_trials=1)
    assert values(copied.theirs) == [0.1, 0.25, copied.theirs.trials[2].value, 0.5]
    assert values(copied.ours) == values(copied.theirs)


def test_what_one_side_sets_is_not_set_back_by_the_other(copied):
    copied.ours.set_user_attr("a", 1)
    assert copied.theirs.user_attrs == {"a": 1}
    copied.theirs.set_user_attr("a", 2)
    assert copied.ours.user_attrs == copied.theirs.user_attrs == {"a": 2}
    copied.inside.set_user_attr("a", 3)
    assert copied.ours.user_attrs == copied.theirs.user_attrs == {"a": 3}


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_the_names_of_values_are_there_as_well(copied):
    copied.ours.set_metric_names(["score"])
    assert copied.ours.metric_names == copied.theirs.metric_names == ["score"]


def test_a_trial_that_plain_optuna_has_taken_is_not_run_here(copied):
    taken = copied.theirs.ask()
    assert copied.ours.ask().number == 2
    taken.suggest_float("x", 0, 1)
    copied.theirs.tell(taken, 0.75)
    assert values(copied.ours)[:2] == [0.1, 0.75]
    assert copied.ours.trials[1].params == {"x": 0.25}


def test_a_trial_that_both_sides_have_run_stays_as_each_has_it(copied):
    taken = copied.theirs.ask()
    copied.inside.optimize(objective, n_trials=1)
    copied.mirror.sync()
    copied.theirs.tell(taken, 0.75)
    assert values(copied.theirs) == [0.1, 0.75]
    assert values(copied.ours) == [0.1, 0.25]


def test_a_trial_that_runs_there_is_seen_to_end(copied):
    copied.theirs.ask()
    running = copied.theirs.ask()
    assert [t.state.name for t in copied.ours.trials] == ["COMPLETE", "RUNNING", "RUNNING"]
    copied.theirs.tell(running, 0.5)
    assert values(copied.ours) == [0.1, None, 0.5]


def test_of_a_study_that_is_scheduled_only_what_waited_are_trials(copied):
    memory = InMemoryStorage()
    number = memory.create_new_study([StudyDirection.MAXIMIZE], "scheduled")
    copied.mirror.follow(memory, number, scheduled=True)
    assert copied.ours.trials == []
    inside = optuna.load_study(study_name="scheduled", storage=memory)
    inside.enqueue_trial({"x": 0.25})
    inside.optimize(objective, n_trials=2)
    assert [trial._trial_id for trial in copied.ours.trials] == [2, 3]
    assert values(copied.theirs) == [0.1, *values(inside)]
    copied.theirs.optimize(objective, n_trials=1)
    assert len(copied.ours.trials) == 2, "its scheduler takes no trials of others"


def test_what_is_enqueued_waits_there_and_what_runs_comes_later(copied):
    copied.ours.enqueue_trial({"x": 0.5})
    states = [trial.state.name for trial in copied.theirs.trials]
    assert states == ["COMPLETE", "WAITING", "WAITING"]
    asked = copied.ours.ask()
    assert [trial.state.name for trial in copied.theirs.trials] == states
    copied.ours.tell(asked, state=TrialState.FAIL)
    copied.ours.optimize(objective, n_trials=2)
    copied.mirror.sync()
    ended = [trial.state.name for trial in copied.theirs.trials]
    assert ended == ["COMPLETE", "FAIL", "COMPLETE", "COMPLETE"]
    assert values(copied.theirs) == values(copied.ours)


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
