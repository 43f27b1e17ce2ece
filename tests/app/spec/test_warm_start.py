"""Results from elsewhere: copied before a study begins, learnt from, and no trials of it."""

import math

import optuna
import pytest
from penstock import ASHA, Float, FullBudget, UsageError, create_study, load_study
from penstock.app.ledger.reader import Reader
from penstock.app.server.optuna_bridge.samplers import SamplerHost
from penstock.app.spec.space import parse_space
from penstock.app.spec.warm_start import fitting, of_frozen
from penstock.scheduler.model.study import Observation, StrategySpec
from servers.fake_scheduler import FakeScheduler
from worlds.drive_world import spec

SPACE = {"x": Float(0.0, 10.0), "act": ["relu", "tanh"]}


def objective(trial):
    return trial.suggest_float("x", 0, 10)


@pytest.fixture
def scheduler(settings, started):
    with FakeScheduler(settings) as scheduler:
        scheduler.reader = Reader(settings.ledger_url)
        yield scheduler


def run(study, n_trials=2):
    study.optimize(objective, SPACE, n_trials, show_progress=False)
    return study


def test_a_study_learns_from_others_by_name_by_hand_and_from_optuna(scheduler):
    first = run(create_study(study_name="first", strategy=FullBudget(2), sampler="random"), 3)
    theirs = optuna.create_study(study_name="theirs")
    theirs.add_trial(
        optuna.trial.create_trial(
            params={"x": 4.0, "act": "relu"},
            distributions={
                "x": optuna.distributions.FloatDistribution(0, 10),
                "act": optuna.distributions.CategoricalDistribution(["relu", "tanh"]),
            },
            value=1.5,
        )
    )
    study = create_study(study_name="second", strategy=FullBudget(2), warm_start=["first", theirs])
    study.add_trial(params={"x": 5.0, "act": "tanh"}, value=0.5, source="a paper")
    study.add_trials(first.trials[:1])
    for outside in ({"x": 11.0, "act": "relu"}, {"x": 1.0}, {"x": 1.0, "act": "relu", "z": 1}):
        study.add_trial(params=outside, value=0.5)
    with pytest.warns(UserWarning, match="3 of 9 copied trials do not fit this study's space"):
        run(study)
    assert [trial.user_attrs["source"] for trial in study.copied_trials] == [
        "first", "first", "first", "theirs", "a paper", "add_trials",
    ]  # fmt: skip
    assert study.copied_trials[4].params == {"x": 5.0, "act": "tanh"}
    assert study.copied_trials[0].intermediate_values == first.trials[0].intermediate_values
    assert len(study.trials) == 2, "they are not its own"
    assert scheduler.reader.study("second").observations == 6
    again = create_study(study_name="second", load_if_exists=True, strategy=FullBudget(2))
    run(again)
    assert again.copied_trials == study.copied_trials == load_study("second").copied_trials


def test_what_cannot_be_learnt_from_is_refused(scheduler):
    run(create_study(study_name="first", strategy=FullBudget(2)))
    with pytest.raises(UsageError, match="what is good there is bad here"):
        create_study(direction="maximize", warm_start="first")
    with pytest.raises(UsageError, match="no study 'furst'"):
        create_study(warm_start="furst")
    with pytest.raises(UsageError, match="warm_start = 3"):
        create_study(warm_start=3)
    study = create_study()
    for wrong in (
        {"params": {"x": 1.0}, "value": math.nan},
        {"params": {"x": 1.0}, "value": None},
        {"params": ["x"], "value": 1.0},
        {"params": {"x": object()}, "value": 1.0},
        {"params": {"x": 1.0}, "value": 1.0, "source": ""},
    ):
        with pytest.raises(UsageError):
            study.add_trial(**wrong)
    two = optuna.trial.create_trial(values=[1.0, 2.0])
    with pytest.raises(ValueError, match="different from the number of objectives"):  # as Optuna
        study.add_trials([two])
    with pytest.raises(UsageError, match="several values"):
        load_study("first").add_trials([two])


def test_of_trials_without_a_result_nothing_is_taken_and_steps_from_0_are_epochs_from_1():
    states = optuna.trial.TrialState
    trials = [
        optuna.trial.create_trial(state=states.FAIL),
        optuna.trial.create_trial(state=states.RUNNING, intermediate_values={1: 3.0}),
        optuna.trial.create_trial(
            state=states.PRUNED, value=9.0, intermediate_values={0: 3.0, 1: math.inf, 2: 4.0}
        ),
    ]
    assert of_frozen(trials, "s") == [Observation((), None, ((1, 3.0), (3, 4.0)), "s")]


def test_what_fits_needs_no_warning(recwarn):
    known = [Observation((("x", 1),), 0.5)]
    space = parse_space({"x": Float(0.0, 2.0)})
    assert fitting(known, space) == (Observation((("x", 1.0),), 0.5),)
    assert fitting(known, None) == tuple(known)
    assert not recwarn.list


def mean_distance(sampler, plan, observations):
    """Return the mean distance from 2 of a sampler's second draws (BOHB's first is random)."""
    made = spec(
        plan, sampler=sampler, space=parse_space({"x": Float(0.0, 10.0)}), direction="minimize",
        observations=observations,
    )  # fmt: skip
    drawn = [SamplerHost().ask(made, index, 2, [])[0] for index in range(20)]
    return sum(abs(dict(params)["x"] - 2.0) for _, params in drawn) / len(drawn)


@pytest.mark.parametrize("sampler", ["tpe", "bohb", "gp"])
def test_samplers_learn_from_the_first_trial_on(sampler):
    full = StrategySpec("full", max_epochs=3)
    known = tuple(Observation((("x", x / 4),), (x / 4 - 2) ** 2) for x in range(41))
    informed = mean_distance(sampler, full, known)
    assert informed < 0.75 * mean_distance(sampler, full, ())
    asha = ASHA(max_epochs=9)
    assert mean_distance(sampler, asha, known) == pytest.approx(informed), "trained to the end"


def test_values_of_equal_training_are_compared_so_what_is_of_no_rung_teaches_nothing():
    asha = ASHA(max_epochs=9)
    pruned = tuple(Observation((("x", x / 4),), None, ((2, (x / 4 - 2) ** 2),)) for x in range(41))
    at_a_rung = tuple(Observation(each.params, None, ((3, each.values[0][1]),)) for each in pruned)
    nothing = mean_distance("tpe", asha, ())
    assert mean_distance("tpe", asha, pruned) == pytest.approx(nothing)
    assert mean_distance("tpe", asha, at_a_rung) < 0.75 * nothing
