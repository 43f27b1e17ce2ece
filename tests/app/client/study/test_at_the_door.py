"""Wrong types and late wishes, refused in a sentence before anything is sent."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import optuna
import pytest
from ledgers.study_ledger import make_study, study_spec
from optuna.study import MaxTrialsCallback
from penstock import ASHA, FullBudget, Resources, SystemTuning, UsageError, create_study
from penstock.app.server.runner import commands
from penstock.app.show.views.best import best_facts
from penstock.app.spec.space import parse_space
from penstock.scheduler.model.study import StrategySpec
from servers.fake_scheduler import FakeScheduler
from worlds.desk import command
from worlds.drive_world import World, spec
from worlds.plain_devices import PlainDevices

SPACE = {"x": [3.0, 1.0, 2.0]}


def objective(trial):
    return trial.suggest_float("x", 0, 100)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"direction": ""}, "direction = '' is refused: allowed is minimize or maximize"),
        (
            {"resources": lambda: Resources(exactness=1)},
            "resources.exactness = 1 is refused: allowed is bitwise, statistical or None",
        ),
    ],
)
def test_a_study_of_wrong_types_is_refused(settings, arguments, words):
    with pytest.raises(UsageError) as refused:
        create_study(
            **{name: made() if callable(made) else made for name, made in arguments.items()}
        )
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((SPACE, 0), "n_trials = 0 is refused"),
        ((None, 0), "timeout = 0 is refused"),
        ((20.5,), "n_trials = 20.5 is refused"),
        ({"callbacks": [3]}, "callbacks = 3 is refused: allowed is None, or a list of functions"),
        ({"callbacks": print}, "is refused: allowed is None, or a list of functions"),
        ({"callbacks": [MaxTrialsCallback]}, "is refused: allowed is None, or a list"),
        ({"timeout": "soon"}, "timeout = 'soon' is refused: allowed is seconds above 0, or None"),
        ({"timeout": True}, "timeout = True is refused"),
        ({"devices": 2}, "devices = 2 is refused"),
    ],
)
def test_what_optimize_cannot_mean_is_refused_before_anything_starts(settings, arguments, words):
    study = create_study()
    with pytest.raises(UsageError) as refused:
        if isinstance(arguments, tuple):
            study.optimize(objective, *arguments)
        else:
            study.optimize(objective, n_trials=1, **arguments)
    assert words in str(refused.value)
    assert not (settings.run / "broker.conf").exists()


def test_no_callbacks_are_none_and_numpys_numbers_are_numbers(settings, started):
    with FakeScheduler(settings) as scheduler:
        study = create_study(study_name="first", strategy=FullBudget(2))
        study.add_trial(params={"x": np.float64(3.0)}, value=np.float32(0.5))
        study.optimize(objective, SPACE, np.int64(2), callbacks=None, show_progress=False)
        assert [trial.value for trial in study.copied_trials] == [0.5]
    assert scheduler.commands[0]["study"]["n_trials"] == 2


def test_optunas_own_callback_ends_the_study(settings, started):
    """It calls ``study.stop()`` once its number of trials are complete; again, the study ends."""
    with FakeScheduler(settings) as scheduler:
        study = create_study(study_name="first", strategy=FullBudget(2))
        heard = []
        callbacks = [MaxTrialsCallback(2), lambda _, trial: heard.append(trial.number)]
        study.optimize(objective, SPACE, 3, callbacks=callbacks, show_progress=False)
    assert heard == [0, 1, 2]
    assert [each["kind"] for each in scheduler.commands].count("cancel") <= 1
    complete = (optuna.trial.TrialState.COMPLETE,)
    assert len(study.get_trials(deepcopy=False, states=complete)) == 3


@pytest.mark.parametrize(
    ("strategy", "kind", "status"),
    [(ASHA(max_epochs=2), "cancel", "cancelled"), (FullBudget(2), "stop", "complete")],
)
def test_stop_ends_a_study_once(settings, started, strategy, kind, status):
    with FakeScheduler(settings) as scheduler:
        scheduler.hold.set()
        study = create_study(study_name="first", strategy=strategy)
        study.submit(objective, SPACE, 3)
        for _ in range(2):
            study.stop()
            assert study.status == status
    assert [each["kind"] for each in scheduler.commands] == ["submit", kind]


def test_a_result_that_a_submitted_study_does_not_have_is_refused(settings, started):
    """A script that runs again gives what the study has already, and goes on."""
    with FakeScheduler(settings):
        for _ in range(2):
            study = create_study(study_name="first", strategy=FullBudget(2), load_if_exists=True)
            study.add_trial(params={"x": 3.0}, value=0.5)
            study.optimize(objective, SPACE, 2, show_progress=False)
        with pytest.raises(UsageError, match="make a new one with warm_start='first'"):
            study.add_trial(params={"x": 1.0}, value=0.75)
        with pytest.raises(UsageError, match=r"add_trials\(\) is for a study that was not"):
            study.add_trials(study.trials)


@pytest.mark.extension("system_tuning")
def test_an_objectives_loop_has_nothing_to_be_chosen_by_energy(settings):
    with pytest.raises(UsageError, match=r"0\.5 is refused.*which has its own training loop"):
        create_study(system=SystemTuning(energy_weight=0.5)).optimize(objective, n_trials=1)


FULL = spec(StrategySpec("full", max_epochs=2), n_trials=4, sampler="random")


@pytest.mark.parametrize(
    ("changes", "by", "words"),
    [
        (
            {"sampler": "grid", "space": parse_space({"x": [1, 2, 3, 4]})},
            1,
            "all 4 points of the grid of s are taken",
        ),
        (
            {"strategy": StrategySpec("pbt", max_epochs=4, min_epochs=2), "contract": "torch"},
            2,
            "s is a population, which keeps its size",
        ),
    ],
)
def test_a_study_that_cannot_grow_is_not_extended(changes, by, words):
    world = World()
    world.submit(replace(FULL, **changes))
    body = command(1, "extend", study="s-1", by=by, to=None).body
    with pytest.raises(UsageError, match=words):
        commands.to_event(body, world.engine, 1.0, past=None)


def test_where_no_trial_is_feasible_the_constraint_is_what_is_said(tmp_path):
    class Slow(PlainDevices):
        def receive(self, timeout):
            found = super().receive(timeout)
            for message in found:
                message.body["metrics"] |= {"seconds": 10.0}
            return found

    given = study_spec(n_trials=3, constraints=(("seconds", 8.0),))
    reader = make_study(tmp_path, given, devices=Slow)
    with pytest.raises(UsageError, match="keeps its constraints, 3 violate one"):
        best_facts(reader, reader.study("digits"))
