"""Optuna's public API on a study of ours, compared with a study of plain Optuna.

Each test names the API that it covers and the result; the tables of ``docs/optuna-api.md`` are
made of that (``docs/optuna_api.py``). A test in ``tests/test_docs.py`` checks that they cover
all of Optuna.
"""

from __future__ import annotations

import contextlib
import io
import pickle
import re
import time
from types import SimpleNamespace

import optuna
import penstock
import pytest
from integration.optuna_beside import (
    MARKS,
    TRIALS,
    X,
    both_fronts,
    both_studies,
    every,
    facts,
    one_slot,
)
from optuna.trial import TrialState
from user_code import local_objectives

pytestmark = MARKS
optuna_api = pytest.mark.optuna
FAIL = TrialState.FAIL


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    with one_slot(tmp_path_factory.mktemp("home")) as site:
        yield site


@pytest.fixture(scope="module")
def both(home):
    return both_studies()


@pytest.fixture(scope="module")
def fronts(home):
    return both_fronts()


@pytest.fixture(scope="module")
def again(home):
    """Return the effects of ``optimize`` with all of its arguments."""
    study = penstock.create_study(study_name="arguments")
    heard, shown = [], io.StringIO()
    arguments = {"n_trials": 2, "n_jobs": 4, "gc_after_trial": True, "catch": ZeroDivisionError}
    calls = [lambda study, trial: heard.append((study.study_name, trial.number, trial.state.name))]
    with contextlib.redirect_stderr(shown):
        for _ in range(2):
            study.optimize(
                lambda trial: 1 / (trial.number % 2),
                callbacks=calls,
                show_progress_bar=True,
                **arguments,
            )
    began = time.monotonic()
    study.optimize(local_objectives.naps, timeout=0.5, show_progress=False)
    return SimpleNamespace(
        study=study, heard=heard, shown=shown.getvalue(), seconds=time.monotonic() - began
    )


class TestStudies:
    """Studies"""

    @optuna_api(
        *("optuna.create_study", "optuna.Study"),
        shows="better",
        said="all arguments with Optuna's meaning. Runs on all devices. Differs where"
        " [no sampler](optuna-conditions.md#seeds-and-names) is given, and in the"
        " [name](optuna-conditions.md#seeds-and-names)",
    )
    def test_it_is_made(self, both):
        assert isinstance(both.ours, optuna.Study)
        assert isinstance(both.ours, penstock.Study)
        assert len(both.said) == 1
        assert both.ours.status == "complete"
        assert every(both.ours) == every(both.plain), "draws and values are those of plain Optuna"
        assert {trial.state for trial in both.ours.trials} == {
            TrialState.COMPLETE,
            TrialState.PRUNED,
        }

    @optuna_api(
        "optuna.load_study",
        shows="better",
        said="`storage` may be left out: the ledger's study of this name. `sampler` and `pruner` as"
        " in Optuna",
    )
    def test_it_is_loaded(self, both):
        by_name = penstock.load_study("api", sampler=both.plain.sampler)
        by_storage = optuna.load_study(study_name="api", storage=penstock.storage())
        assert every(by_name) == every(by_storage) == every(both.ours)
        assert by_name.sampler is both.plain.sampler

    @optuna_api(
        "optuna.delete_study",
        shows="same",
        said="on your own storage, or with `storage=penstock.storage()`. The name is free again. A"
        " study that was copied from your storage stays in the ledger",
    )
    def test_it_is_deleted(self, home):
        optuna.create_study(study_name="gone", storage=penstock.storage())
        optuna.delete_study(study_name="gone", storage=penstock.storage())
        assert "gone" not in optuna.get_all_study_names(penstock.storage())
        penstock.create_study(study_name="gone").ask()

    @optuna_api(
        "optuna.copy_study",
        shows="same",
        said="by `python`; by `penstock run` it is [not there](optuna.md#what-is-missing)",
    )
    def test_it_is_copied(self, both):
        other = optuna.storages.InMemoryStorage()
        optuna.copy_study(from_study_name="api", from_storage=penstock.storage(), to_storage=other)
        assert every(optuna.load_study(study_name="api", storage=other)) == every(both.plain)

    @optuna_api(
        *("optuna.get_all_study_names", "optuna.get_all_study_summaries"),
        "optuna.study.StudySummary",
        shows="same",
        said="also with `penstock.storage()`",
    )
    def test_all_are_listed(self, both):
        storage = penstock.storage()
        assert "api" in optuna.get_all_study_names(storage)
        summaries = {each.study_name: each for each in optuna.get_all_study_summaries(storage)}
        found = summaries["api"]
        assert isinstance(found, optuna.study.StudySummary)
        assert (found.n_trials, found.best_trial.value) == (TRIALS, both.plain.best_value)

    @optuna_api(
        *("Study.optimize", "Study.optimize(func)"),
        shows="better",
        said="any callable; it runs in other processes",
    )
    def test_it_optimizes(self, again):
        ended = [trial.state.name for trial in again.study.trials][:4]
        assert ended == ["FAIL", "COMPLETE", "FAIL", "COMPLETE"]

    @optuna_api(
        "Study.optimize(n_trials)",
        shows="same",
        said="that number more each time. `None`: until `timeout` or `stop()`",
    )
    def test_n_trials_are_so_many_more(self, again):
        assert len(again.heard) == 2 + 2
        assert len(again.study.trials) > 4

    @optuna_api(
        "Study.optimize(timeout)",
        shows="differs",
        said="no trial begins after it; those at work go on to their end. It counts from the first"
        " trial's start, so start-up is not counted",
    )
    def test_after_the_timeout_no_trial_begins(self, again):
        naps = again.study.trials[4:]
        assert {trial.state for trial in naps} == {TrialState.COMPLETE}
        first, last = naps[0].datetime_start, naps[-1].datetime_start
        assert 0.0 <= (last - first).total_seconds() < again.seconds

    @optuna_api(
        "Study.optimize(n_jobs)",
        shows="not used",
        said="how many run at a time follows from the devices. Where the study runs in the script's"
        " process it is Optuna's",
    )
    def test_n_jobs_do_not_count(self, again):
        first, second = again.study.trials[:2]
        assert first.datetime_complete <= second.datetime_start, "there is one slot"

    @optuna_api(
        "Study.optimize(catch)",
        shows="differs",
        said="with any, failures never end the study and `optimize` does not raise. The classes are"
        " not told apart",
    )
    def test_a_failure_is_caught(self, again):
        assert again.study.trials[0].state is TrialState.FAIL
        assert again.study.trials[1].state is TrialState.COMPLETE

    @optuna_api(
        *("Study.optimize(callbacks)", "optuna.study.MaxTrialsCallback"),
        shows="differs",
        said="called in the script's process when it sees that a trial has ended. Others may have"
        " begun meanwhile",
    )
    def test_callbacks_hear_of_each_trial(self, again):
        assert again.heard == [("arguments", n, ("FAIL", "COMPLETE")[n % 2]) for n in range(4)]
        stop = optuna.study.MaxTrialsCallback(2, states=(TrialState.COMPLETE,))
        again.study.optimize(lambda trial: 1.0, n_trials=999, callbacks=[stop], show_progress=False)
        assert again.study.trials[-1].number < 998

    @optuna_api("Study.optimize(gc_after_trial)", shows="not used")
    def test_gc_after_trial_is_taken(self, again):
        assert again.heard

    @optuna_api(
        "Study.optimize(show_progress_bar)", shows="better", said="a live table, shown by default"
    )
    def test_a_live_table_is_shown(self, again):
        assert "arguments" in again.shown

    def test_only_trials_that_end_meanwhile_are_shown_and_told_to_callbacks(self, again, home):
        written = re.findall(r"^trial (\d+) ", again.shown, re.MULTILINE)
        assert written == ["0", "1", "2", "3"], "each of them by the call that ran it"
        study, heard, shown = penstock.create_study(study_name="copied"), [], io.StringIO()
        study.add_trials([optuna.create_trial(value=1.0), optuna.create_trial(state=FAIL)])
        for _ in range(2):
            with contextlib.redirect_stderr(shown):
                study.optimize(
                    lambda trial: 1.0, n_trials=1, callbacks=[lambda _, t: heard.append(t.number)]
                )
        assert heard == [2, 3]
        assert re.findall(r"^trial (\d+) ", shown.getvalue(), re.MULTILINE) == ["2", "3"]

    @optuna_api(
        "Study.stop",
        shows="same",
        said="begins no more trials; those at work go on to their end. From an objective, a"
        " callback or anywhere else. With a strategy that compares trials it cancels the study",
    )
    def test_it_is_stopped(self, home):
        study = penstock.create_study(study_name="stopped")
        study.optimize(local_objectives.stops, n_trials=50, show_progress=False)
        assert 3 <= len(study.trials) < 50
        assert study.status == "complete"

    @optuna_api(
        *("Study.ask", "Study.tell"),
        shows="same",
        said="the trial is an `optuna.Trial`, which samples in your process. `fixed_distributions`"
        " may also be what a [space](guide/search.md#the-space) holds",
    )
    def test_trials_are_asked_for_and_told(self, fronts):
        assert every(fronts.ours) == every(fronts.plain)
        for study in (fronts.ours, fronts.plain):
            with pytest.raises(ValueError, match="Cannot tell"):
                study.tell(0, [1.0, 1.0])
            assert study.tell(0, [1.0, 1.0], skip_if_finished=True).values == study.trials[0].values

    @optuna_api(
        *("Study.enqueue_trial", "Study.add_trial", "Study.add_trials", "optuna.create_trial"),
        shows="same",
        said="before, while and after the study runs. With a strategy or a space:"
        " [see the guide](guide/studies.md#starting-warm)",
    )
    def test_trials_are_added(self, home):
        found = []
        for module in (penstock, optuna):
            study = module.create_study(study_name="added")
            made = [
                optuna.create_trial(
                    value=k, params={"x": k / 4}, distributions={"x": X}, constraints={"c": k},
                    user_attrs={"k": k}, intermediate_values={k: 0.5},
                )
                for k in range(3)
            ]  # fmt: skip
            study.add_trial(made[0])
            study.enqueue_trial({"x": 0.75}, user_attrs={"why": "a guess"})
            study.ask({"x": X})
            study.add_trials(made[1:])
            study.enqueue_trial({"x": 0.75}, skip_if_exists=True)
            found.append(every(study))
        assert found[0] == found[1]

    @optuna_api(
        *("Study.trials", "Study.get_trials", "Study.trials_dataframe"),
        shows="same",
        said="also while it runs, and from other processes",
    )
    def test_trials_are_read(self, both):
        complete = [
            each.get_trials(states=[TrialState.COMPLETE]) for each in (both.ours, both.plain)
        ]
        assert [facts(trial) for trial in complete[0]] == [facts(trial) for trial in complete[1]]
        frames = [each.trials_dataframe() for each in (both.ours, both.plain)]
        assert list(frames[0]) == list(frames[1])
        columns = [name for name in frames[0] if not name.startswith(("datetime", "duration"))]
        assert frames[0][columns].equals(frames[1][columns])

    @optuna_api(
        *("Study.best_trial", "Study.best_value", "Study.best_params"),
        shows="differs",
        said="with a strategy where no trial is complete, the best of the pruned trials that were"
        " trained longest (a small ASHA study promotes none to its end)",
    )
    def test_the_best(self, both):
        assert facts(both.ours.best_trial) == facts(both.plain.best_trial)
        assert both.ours.best_value == both.plain.best_value
        assert both.ours.best_params == both.plain.best_params

    @optuna_api("Study.best_trials", shows="same")
    def test_the_front(self, fronts):
        found, expected = fronts.ours.best_trials, fronts.plain.best_trials
        assert [facts(trial) for trial in found] == [facts(trial) for trial in expected]

    @optuna_api(
        *("Study.direction", "Study.directions", "optuna.study.StudyDirection"),
        shows="same",
    )
    def test_directions(self, both, fronts):
        assert both.ours.direction is optuna.study.StudyDirection.MINIMIZE
        assert fronts.ours.directions == fronts.plain.directions

    @optuna_api(
        *(
            "Study.set_user_attr",
            "Study.user_attrs",
            "Study.set_metric_names",
            "Study.metric_names",
        ),
        shows="same",
        said="[objects](optuna.md#objects-as-attributes), too. Before, while and after the study"
        " runs",
    )
    def test_attributes_and_names(self, both, fronts, home):
        for study in (both.ours, both.plain):
            study.set_user_attr("dataset", ["digits", 2])
        for study in (fronts.ours, fronts.plain):
            study.set_metric_names(["loss", "speed"])
        assert penstock.load_study("api").user_attrs == both.plain.user_attrs
        assert penstock.load_study("front").metric_names == fronts.plain.metric_names
        assert list(fronts.ours.trials_dataframe()) == list(fronts.plain.trials_dataframe())
        for command in (["ls"], ["status", "front"], ["best", "front"], ["story", "front/0"]):
            shown = home.penstock(*command)
            assert "values_0" not in shown
            assert "loss" in shown or command[0] == "story"

    def test_attributes_that_were_set_before_optimize_are_there_with_a_space_and_a_strategy(
        self, home
    ):
        study = penstock.create_study(study_name="noted", strategy=penstock.FullBudget(1))
        study.set_user_attr("dataset", ["digits", 2])
        study.set_metric_names(["loss"])
        study.optimize(
            lambda trial: trial.suggest_float("x", 0, 1),
            {"x": penstock.Float(0, 1)},
            n_trials=1,
            show_progress=False,
        )
        study.set_user_attr("after", True)
        found = penstock.load_study("noted")
        assert found.user_attrs["dataset"] == ["digits", 2]
        assert found.user_attrs["after"]
        assert found.metric_names == ["loss"]

    @optuna_api(
        *("Study.study_name", "Study.sampler", "Study.pruner"),
        shows="better",
        said="`penstock ls` lists the name",
    )
    def test_the_name_and_the_tools(self, home, both):
        assert (both.ours.study_name, both.ours.status) == ("api", "complete")
        assert "api" in home.penstock("ls")
        for name in ("sampler", "pruner"):
            assert type(getattr(both.ours, name)) is type(getattr(both.plain, name))

    @optuna_api(
        "pickle.dumps(study)",
        shows="differs",
        said="it is a reference, which is loaded again from this installation's ledger. A study"
        " that has not run yet, or that is in a storage of your own, cannot be pickled",
    )
    def test_it_is_found_again_where_it_is_unpickled(self, home, both):
        again = pickle.loads(pickle.dumps(both.ours))
        assert (again.id, again.trials) == (both.ours.id, both.ours.trials)
        with pytest.raises(penstock.UsageError, match="not submitted yet"):
            pickle.dumps(penstock.create_study())

    @optuna_api(
        *("optuna.logging.get_logger", "optuna.logging.get_verbosity"),
        *("optuna.logging.set_verbosity", "optuna.logging.enable_propagation"),
        *("optuna.logging.disable_propagation", "optuna.logging.enable_default_handler"),
        *("optuna.logging.disable_default_handler", "optuna.logging.create_default_formatter"),
        *("optuna.logging.CRITICAL", "optuna.logging.DEBUG"),
        *("optuna.logging.ERROR", "optuna.logging.FATAL"),
        *("optuna.logging.INFO", "optuna.logging.WARN"),
        "optuna.logging.WARNING",
        shows="differs",
        said="the lines `Trial 0 finished with value ...` are not written: the live table and"
        " `penstock status` show it. What Optuna logs in a trainer is in the trainer's log",
    )
    def test_nothing_is_logged_of_trials_that_others_run(self, again):
        assert "finished with value" not in again.shown


class TestTrials:
    """Trials"""

    @optuna_api(
        *("optuna.Trial", "Trial.suggest_float", "Trial.suggest_int", "Trial.suggest_uniform"),
        *("Trial.suggest_loguniform", "Trial.suggest_discrete_uniform"),
        shows="same",
    )
    def test_numbers_are_drawn(self, both):
        for ours, plain in zip(both.ours.trials, both.plain.trials, strict=True):
            assert ours.params == plain.params
            assert ours.distributions == plain.distributions
            assert len(ours.params) == 6

    @optuna_api(
        "Trial.suggest_categorical",
        shows="better",
        said="choices may be any objects, and the very object comes back in the objective."
        " Elsewhere what is no JSON is shown by its name. With a strategy or a space: None, bool,"
        " int, float or str",
    )
    def test_a_choice_may_be_any_object(self, home):
        study = penstock.create_study(study_name="objects")
        study.optimize(local_objectives.chooses_objects, n_trials=2, show_progress=False)
        read = penstock.load_study("objects").trials
        assert {trial.state for trial in read} == {TrialState.COMPLETE}
        assert "JSONDecoder" in str(read[0].params["reader"])

    @optuna_api(
        *("Trial.report", "Trial.should_prune"),
        shows="same",
        said="Optuna's pruner decides, by default the `MedianPruner`. With a strategy"
        " `should_prune()` is always false: a trial that is not to go on is paused inside `report`",
    )
    def test_what_is_reported_is_pruned(self, both):
        states = [[trial.state for trial in study.trials] for study in (both.ours, both.plain)]
        assert states[0] == states[1]
        assert TrialState.PRUNED in states[0]

    @optuna_api(
        "Trial.report(nan)",
        shows="same",
        said="with a strategy it fails the trial: NaN cannot be ranked",
    )
    def test_a_nan_is_kept(self, home):
        study = penstock.create_study(study_name="nan")
        study.optimize(local_objectives.reports_nan, n_trials=1, show_progress=False)
        assert str(study.trials[0].intermediate_values) == "{0: nan, 3: -inf}"

    @optuna_api(
        *("Trial.set_user_attr", "Trial.user_attrs"),
        shows="same",
        said="[objects](optuna.md#objects-as-attributes), too; NumPy's and torch's numbers become"
        " Python's",
    )
    def test_attributes_of_a_trial(self, both):
        for ours, plain in zip(both.ours.trials, both.plain.trials, strict=True):
            assert ours.user_attrs == plain.user_attrs
            assert ours.user_attrs["seen"]["user_attrs"] == {"kind": ours.params["kind"]}

    @optuna_api(
        *("Trial.set_constraint", "Trial.constraints"),
        shows="same",
    )
    def test_constraints_of_a_trial(self, both):
        for ours, plain in zip(both.ours.trials, both.plain.trials, strict=True):
            assert ours.constraints == plain.constraints == {"n": ours.params["n"] - 90}
            assert ours.user_attrs["seen"]["constraints"] == ours.constraints

    @optuna_api(
        *("Trial.params", "Trial.distributions", "Trial.relative_params", "Trial.number"),
        "Trial.datetime_start",
        shows="same",
    )
    def test_what_a_trial_knows_of_itself(self, both):
        for ours, plain in zip(both.ours.trials, both.plain.trials, strict=True):
            seen = ours.user_attrs["seen"]
            assert seen == plain.user_attrs["seen"]
            assert (seen["number"], seen["params"], seen["began"]) == (
                ours.number,
                ours.params,
                True,
            )
            assert seen["distributions"] == sorted(ours.distributions)

    @optuna_api(
        *("Trial.study", "Trial.storage"),
        shows="same",
        said="reads the study as it is; `trial.study.stop()`, `set_user_attr` and `enqueue_trial`"
        " count once, also where the objective is repeated after a crash. `optimize` is refused, as"
        " in Optuna",
    )
    def test_a_trials_study(self, home):
        study = penstock.create_study(study_name="inside")
        study.optimize(local_objectives.enqueues, n_trials=9, show_progress=False)
        waiting = [trial for trial in study.trials if trial.state is TrialState.WAITING]
        assert [trial.user_attrs for trial in waiting] == [{"why": "a guess"}] * len(waiting)
        assert 1 <= len(waiting) < 9

    @optuna_api("optuna.TrialPruned", shows="same")
    def test_a_trial_says_that_it_is_pruned(self, both):
        pruned = [trial for trial in both.ours.trials if trial.state is TrialState.PRUNED]
        assert all(trial.value == trial.intermediate_values[trial.last_step] for trial in pruned)

    @optuna_api(
        *("optuna.trial.FrozenTrial", "FrozenTrial.number", "FrozenTrial.state"),
        *("FrozenTrial.value", "FrozenTrial.values", "FrozenTrial.params"),
        *("FrozenTrial.distributions", "FrozenTrial.user_attrs", "FrozenTrial.system_attrs"),
        *("FrozenTrial.constraints", "FrozenTrial.intermediate_values", "FrozenTrial.last_step"),
        "optuna.trial.TrialState",
        shows="same",
        said="intermediate values have the steps that were reported",
    )
    def test_a_trial_that_has_ended(self, both):
        assert every(both.ours) == every(both.plain)
        assert {step for trial in both.ours.trials for step in trial.intermediate_values} == {
            0,
            2,
            4,
        }
        assert [t.value for t in both.ours.trials] == [t.value for t in both.plain.trials]

    @optuna_api(
        *("FrozenTrial.datetime_start", "FrozenTrial.datetime_complete", "FrozenTrial.duration"),
        shows="same",
    )
    def test_the_times_of_a_trial(self, both):
        for trial in both.ours.trials:
            assert trial.datetime_start <= trial.datetime_complete
            assert trial.duration == trial.datetime_complete - trial.datetime_start

    @optuna_api(
        *("FrozenTrial.report", "FrozenTrial.should_prune", "FrozenTrial.set_user_attr"),
        *("FrozenTrial.set_constraint", "FrozenTrial.suggest_float", "FrozenTrial.suggest_int"),
        *("FrozenTrial.suggest_categorical", "FrozenTrial.suggest_uniform"),
        *("FrozenTrial.suggest_loguniform", "FrozenTrial.suggest_discrete_uniform"),
        *("optuna.trial.FixedTrial", "optuna.trial.BaseTrial"),
        shows="same",
        said="the objective is called again with what it had",
    )
    def test_an_objective_is_called_with_a_trial_that_has_ended(self, both):
        best = both.ours.best_trial
        for trial in (best, optuna.trial.FixedTrial(best.params, number=best.number)):
            assert isinstance(trial, optuna.trial.BaseTrial)
            assert local_objectives.typical(trial) == best.value
