"""Trials that ended after their script, and come to the user's storage when it is opened next."""

from __future__ import annotations

import subprocess
import sys

import optuna
import pytest
from optuna.storages import InMemoryStorage
from optuna.study import StudyDirection
from optuna.trial import TrialState
from penstock.extensions.mirroring import late_trials
from penstock.extensions.mirroring.mirror import Mirror

HOLDS = """
import sys
from pathlib import Path
from penstock.app.host.locks import hold
with hold(Path(sys.argv[1]), "ours"):
    print("held", flush=True)
    sys.stdin.read()
"""


def objective(trial):
    trial.report(0.5, 3)
    return trial.suggest_float("x", 0, 1)


class Scene:
    """A study in a file, and ours, whose script has gone; ``over`` says whether ours is."""

    def __init__(self, folder):
        self.url, self.locks, self.over = f"sqlite:///{folder / 'theirs.db'}", folder / "run", True
        self.theirs = optuna.create_study(study_name="s", storage=self.url)
        self.theirs.optimize(objective, n_trials=2)
        self.theirs.enqueue_trial({"x": 0.25})
        self.mirror = self.opened()
        memory = InMemoryStorage()
        number = memory.create_new_study([StudyDirection.MINIMIZE], "s")
        self.mirror.copy_to(memory, number)
        self.ours = optuna.load_study(study_name="s", storage=memory)

    def opened(self):
        return Mirror.open(self.url, "s", (), may_exist=True, must_exist=True)

    def noted(self, where=""):
        self.mirror.storage.set_study_system_attr(
            self.mirror.study_id, late_trials.NOTE + "ours", where
        )

    def bring(self):
        def ask(study):
            return (self.ours.trials, self.over) if study == "ours" else None

        return late_trials.bring(self.opened(), ask, self.locks, "")

    def there(self):
        return [(t.state, t.params, t.value, t.intermediate_values) for t in self.theirs.trials]


@pytest.fixture
def scene(tmp_path):
    return Scene(tmp_path)


def test_what_ended_after_the_script_is_written_once(scene):
    scene.noted()
    scene.ours.optimize(objective, n_trials=1)
    scene.mirror.sync()
    scene.ours.optimize(objective, n_trials=3)
    assert scene.bring() == (3, [])
    assert sorted(scene.there(), key=repr) == sorted(
        [(t.state, t.params, t.value, t.intermediate_values) for t in scene.ours.trials], key=repr
    )
    assert scene.bring() == (0, [])
    assert len(scene.there()) == 6


def test_an_enqueued_trial_that_waited_ends_and_is_not_there_twice(scene):
    scene.noted()
    scene.ours.optimize(objective, n_trials=1)
    assert scene.theirs.trials[2].state is TrialState.WAITING
    scene.bring()
    assert [t.state for t in scene.theirs.trials] == [TrialState.COMPLETE] * 3
    assert scene.theirs.trials[2].value == 0.25


def test_as_many_trials_of_one_result_are_written_as_are_lacking(scene):
    scene.noted()
    for _ in range(3):
        scene.ours.add_trial(optuna.create_trial(value=1.0))
    scene.theirs.add_trial(optuna.create_trial(value=1.0))
    assert scene.bring() == (2, [])


def test_a_study_that_still_runs_is_named_and_asked_again(scene):
    scene.noted()
    scene.ours.optimize(objective, n_trials=2)
    scene.over = False
    assert scene.bring() == (1, ["ours"])  # and the one that waited
    scene.ours.optimize(objective, n_trials=1)
    scene.over = True
    assert scene.bring() == (1, [])
    scene.ours.optimize(objective, n_trials=1)
    assert scene.bring() == (0, []), "what was over is not looked at any more"


@pytest.mark.parametrize("where", ["another machine", None])
def test_a_study_of_elsewhere_is_left_alone(scene, where):
    scene.noted(where)
    scene.ours.optimize(objective, n_trials=3)
    assert scene.bring() == (0, [])


def test_what_a_living_script_keeps_in_step_is_its_own_affair(scene):
    scene.noted()
    scene.ours.optimize(objective, n_trials=3)
    argv = [sys.executable, "-c", HOLDS, str(scene.locks)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as script:
        assert script.stdout.readline() == b"held\n"
        assert scene.bring() == (0, [])
        script.kill()
    assert scene.bring()[0] == 2


def test_the_same_process_brings_its_own_study_into_step(scene, monkeypatch):
    monkeypatch.setattr(late_trials, "_kept", {})
    late_trials.keep(scene.mirror, "ours", scene.locks, "")
    scene.ours.optimize(objective, n_trials=3)
    assert scene.bring() == (2, [])
    assert len(scene.there()) == 5
    scene.mirror.sync()
    assert len(scene.there()) == 5, "it knows which ones are there"
