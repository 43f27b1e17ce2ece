"""The reading half of Optuna's storage, over a study of given trials."""

from __future__ import annotations

import optuna
import pytest
from optuna.study import StudyDirection
from optuna.trial import TrialState
from penstock.tasks.objectives.read_side import GivenStudy, ReadSide

MAXIMIZE = [StudyDirection.MAXIMIZE]


def ended(value, **attrs):
    space = {"x": optuna.distributions.FloatDistribution(0, 1)}
    return optuna.trial.create_trial(
        params={"x": value}, distributions=space, value=value, user_attrs=attrs
    )


@pytest.fixture
def storage():
    trials = [ended(0.25), ended(0.75, tags=["a"])]
    for number, trial in enumerate(trials):
        trial.number = trial._trial_id = number
    study = GivenStudy(("digits", "digits-1a2b"), MAXIMIZE, trials, {"owner": "ada"})
    return ReadSide(lambda: {0: study})


def test_optuna_reads_a_study_that_is_shown(storage):
    study = optuna.load_study(study_name="digits", storage=storage)
    assert study.best_value == 0.75
    assert study.user_attrs == {"owner": "ada"}
    assert study.direction is StudyDirection.MAXIMIZE
    assert [each.study_name for each in optuna.get_all_study_summaries(storage)] == ["digits"]
    assert storage.get_trial(1).params == {"x": 0.75}
    assert storage.get_n_trials(0, TrialState.RUNNING) == 0


def test_a_study_is_found_by_any_of_its_names_and_no_other(storage):
    assert storage.get_study_id_from_name("digits-1a2b") == 0
    for read in (
        lambda: storage.get_study_id_from_name("digit"),
        lambda: storage.get_study_name_from_id(1),
        lambda: storage.get_trial(2),
    ):
        with pytest.raises(KeyError, match="there is no"):
            read()


def test_what_was_read_may_be_modified(storage):
    storage.get_all_trials(0)[1].user_attrs["tags"].append("b")
    storage.get_trial(1).user_attrs["more"] = 1
    assert storage.get_trial(1).user_attrs == {"tags": ["a"]}


def test_what_no_subclass_writes_is_refused(storage):
    study = optuna.load_study(study_name="digits", storage=storage)
    for write in (
        lambda: optuna.create_study(storage=storage),
        lambda: optuna.delete_study(study_name="digits", storage=storage),
        lambda: study.set_user_attr("a", 1),
        lambda: study.add_trial(ended(0.5)),
        lambda: study.tell(storage.create_new_trial(0), 0.5),
        lambda: storage.set_trial_user_attr(0, "a", 1),
    ):
        with pytest.raises(NotImplementedError, match="not possible in a storage that is only"):
            write()
