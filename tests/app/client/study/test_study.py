"""The study as a user meets it, against a real broker and ledger and an invented scheduler."""

import subprocess
import sys

import optuna
import penstock
import pytest
from penstock import ASHA, FullBudget, TrialFailed, UsageError, create_study, load_study
from penstock.app.client.study import watching
from penstock.app.client.study.handle import running, script_run
from penstock.app.server.optuna_bridge.frozen_trials import best
from penstock.app.show.views import live
from penstock.scheduler.model.trial import TrialState
from penstock.scheduler.model.writing import Writing
from servers.fake_scheduler import FakeScheduler
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

SPACE = {"x": [3.0, 1.0, 2.0], "act": ["relu"]}
GRID = {"sampler": "grid", "strategy": FullBudget(2)}


def objective(trial):
    return trial.suggest_float("x", 0, 100)


def quiet(study, *args, **options):
    study.optimize(objective, *args, show_progress=False, **options)


def test_a_study_runs_and_is_read_back_as_optunas_trials(settings, started):
    with FakeScheduler(settings, fate={1: TrialState.STOPPED}):
        study = create_study(study_name="first", **GRID)
        quiet(study, SPACE, devices="cpu:1x1")
    assert started == ["cpu:1x1"]
    assert study.status == "complete"
    assert [t.state.name for t in study.trials] == ["COMPLETE", "PRUNED", "COMPLETE"]
    best = study.best_trial
    assert (best.number, best.value, best.params) == (2, 2.0, {"x": 2.0, "act": "relu"})
    assert (study.best_value, study.best_params) == (2.0, {"x": 2.0, "act": "relu"})
    assert best.intermediate_values == {1: 2.0, 2: 2.0}
    # From the beginning of its first epoch, which took 0.1 s until the trial was made.
    assert best.duration.total_seconds() == pytest.approx(1.6)
    assert best.user_attrs["trial_id"] == f"{study.id}-0002"
    assert best.user_attrs["device"] == "cpu.here.0"
    assert best.distributions["x"] == optuna.distributions.CategoricalDistribution([3.0, 1.0, 2.0])
    pruned = study.get_trials(states=(optuna.trial.TrialState.PRUNED,))
    assert [(t.number, t.value) for t in pruned] == [(1, 1.0)]


def test_waiting_without_a_screen_reads_no_trials(settings, started, monkeypatch):
    idle = []
    poll = live.Watcher.poll
    monkeypatch.setattr(live.Watcher, "poll", lambda self: idle.append(self.idle) or poll(self))
    with FakeScheduler(settings):
        quiet(create_study(**GRID), SPACE)
        assert set(idle) == {True}
        idle.clear()
        quiet(create_study(**GRID), SPACE, timeout=60)
        assert set(idle) == {False}, "its trials say when the first one begins"


def test_another_process_reads_the_same_results_by_name(settings, started):
    with FakeScheduler(settings):
        study = create_study(study_name="first", direction="maximize", **GRID)
        quiet(study, SPACE)
    again = load_study("first")
    assert (again.id, again.best_value) == (study.id, 3.0)
    assert again.direction is optuna.study.StudyDirection.MAXIMIZE
    assert again.trials == study.trials
    again.wait()
    with pytest.raises(UsageError, match="first"):
        load_study("furst")


def test_the_data_frame_has_optunas_columns(settings, started):
    with FakeScheduler(settings, fate={0: TrialState.FAILED}):
        study = create_study(**GRID)
        quiet(study, SPACE)
    frame = study.trials_dataframe()
    assert list(frame.columns[:5]) == [
        "number", "value", "datetime_start", "datetime_complete", "duration",
    ]  # fmt: skip
    assert frame.columns[-1] == "state"
    assert list(frame["state"]) == ["FAIL", "COMPLETE", "COMPLETE"]
    assert list(frame["params_x"]) == [3.0, 1.0, 2.0]
    assert frame["user_attrs_failure"][0] == "ValueError: no"


def test_a_copy_for_optuna_has_what_ended_for_its_plots_importances_and_storages(
    settings, started, tmp_path
):
    with FakeScheduler(settings, fate={1: TrialState.STOPPED}):
        study = create_study(study_name="first", **GRID)
        quiet(study, SPACE)
    copy = study.to_optuna()
    assert (copy.best_value, copy.best_params) == (study.best_value, study.best_params)
    assert [t.state for t in copy.trials] == [t.state for t in study.trials]
    assert set(optuna.importance.get_param_importances(copy)) == {"x", "act"}
    assert optuna.visualization.plot_intermediate_values(copy).data
    url = f"sqlite:///{tmp_path / 'copy.db'}"
    study.to_optuna(url)
    stored = optuna.load_study(study_name="first", storage=url)
    assert [t.params for t in stored.trials] == [t.params for t in study.trials]
    assert stored.best_trial.user_attrs == study.best_trial.user_attrs
    with pytest.raises(UsageError, match="has a study first"):
        study.to_optuna(url)


def test_callbacks_hear_of_each_trial_once_with_its_epochs(settings, started):
    heard = []
    with FakeScheduler(settings, fate={1: TrialState.FAILED}):
        study = create_study(**GRID)
        quiet(study, SPACE, callbacks=[lambda s, t: heard.append((s, t))])
    assert [(s is study, t.number, t.state.name) for s, t in heard] == [
        (True, 0, "COMPLETE"), (True, 1, "FAIL"), (True, 2, "COMPLETE"),
    ]  # fmt: skip
    assert heard[0][1].intermediate_values == {1: 3.0, 2: 3.0}
    assert heard[1][1].user_attrs["failure"] == "ValueError: no"


@pytest.mark.extension("exports")
def test_a_log_hears_of_epochs_and_once_only_when_the_study_is_watched_again(
    settings, started, tmp_path
):
    log, heard = penstock.TensorBoardCallback(tmp_path / "tb"), []
    with FakeScheduler(settings):
        study = create_study(study_name="first", **GRID)
        quiet(study, SPACE, callbacks=[log, lambda _, t: heard.append(t.number)])
    load_study("first").wait(callbacks=[log])
    assert heard == [0, 1, 2]
    folders = sorted((tmp_path / "tb" / study.id).iterdir())
    assert [folder.name for folder in folders] == ["0000", "0001", "0002"]
    scalars = [EventAccumulator(str(folder)).Reload().Scalars("value") for folder in folders]
    assert [[(e.step, e.value) for e in each] for each in scalars] == [
        [(1, 3.0), (2, 3.0)], [(1, 1.0), (2, 1.0)], [(1, 2.0), (2, 2.0)],
    ]  # fmt: skip


def test_enqueued_configurations_travel_with_the_study_and_later_ones_by_themselves(
    settings, started
):
    with FakeScheduler(settings) as scheduler:
        study = create_study(sampler="random")
        study.enqueue_trial({"x": 2.0})
        quiet(study, SPACE, 2)
        study.enqueue_trial({"x": 1.0, "act": "relu"})
    assert study.trials[0].params["x"] == 2.0
    submit, enqueue = scheduler.commands
    assert submit["enqueued"] == [{"x": 2.0}]
    assert enqueue["params"] == {"x": 1.0, "act": "relu"}
    with pytest.raises(UsageError, match="one of"):
        study.enqueue_trial({"x": 7.0})


def test_a_define_by_run_study_keeps_what_its_trials_drew_from(settings, started):
    with FakeScheduler(settings):
        study = create_study(sampler="random")
        quiet(study, n_trials=2)
    assert study.best_params == {"x": 0.0}
    drawn = optuna.distributions.FloatDistribution(0, 100)
    assert [t.distributions for t in study.trials] == [{"x": drawn}] * 2


def test_nothing_is_started_for_a_study_that_is_refused(settings, started):
    study = create_study(sampler="random")
    study.enqueue_trial({"y": 1})
    with pytest.raises(UsageError, match="one of x, act"):
        study.submit(objective, SPACE, 3)
    for wrong in ({"n_trials": 0}, {"n_trials": 3, "space": {"x": []}}):
        with pytest.raises(UsageError):
            create_study().submit(objective, **wrong)
    with pytest.raises(UsageError, match="timeout"):
        create_study().optimize(objective, n_trials=3, timeout=0)
    crowded = create_study()
    crowded.enqueue_trial({"x": 1.0})
    crowded.enqueue_trial({"x": 2.0})
    with pytest.raises(UsageError, match=r"n_trials = 1 .* 2 configurations"):
        crowded.submit(objective, SPACE, n_trials=1)
    assert started == []


def test_a_taken_name_is_refused_unless_it_is_to_be_loaded(settings, started):
    with FakeScheduler(settings) as scheduler:
        quiet(create_study(study_name="first", **GRID), SPACE)
        with pytest.raises(UsageError, match=r"study 'first' exists already.*load_if_exists"):
            create_study(study_name="first", **GRID)
        again = create_study(study_name="first", load_if_exists=True, **GRID)
        heard = []
        quiet(again, SPACE, callbacks=[lambda _, t: heard.append(t.number)])
        assert heard == [0, 1, 2], "a script started anew takes its study up where it is"
        quiet(again, SPACE, 2)
        with pytest.raises(UsageError, match=r"cannot be changed.*seed was 0 and is 1"):
            quiet(create_study(study_name="first", load_if_exists=True, seed=1, **GRID), SPACE)
    assert [command["kind"] for command in scheduler.commands] == ["submit"]


def test_more_trials_are_asked_for_in_all_or_on_top_and_fewer_change_nothing(settings, started):
    with FakeScheduler(settings) as scheduler:
        study = create_study(sampler="random", strategy=FullBudget(2))
        quiet(study, SPACE, 3)
        quiet(study, SPACE, 5)
        quiet(study, SPACE, 3)
        study.extend(by=2)
        study.extend(to=9)
        quiet(study, SPACE, 9)
    submit, *extended = scheduler.commands
    assert [(c["kind"], c["by"], c["to"]) for c in extended] == [
        ("extend", None, 5), ("extend", 2, None), ("extend", None, 9),
    ]  # fmt: skip
    assert extended[0]["spec"]["code"] == submit["study"]["code"], "as the script is now"
    for wrong in ({}, {"by": 1, "to": 9}, {"by": 0}, {"to": 1.5}):
        with pytest.raises(UsageError):
            study.extend(**wrong)


def test_a_study_is_paused_and_resumed_by_commands_to_services_that_may_have_to_be_started(
    settings, started
):
    with FakeScheduler(settings) as scheduler:
        study = create_study(**GRID)
        with pytest.raises(UsageError, match="not submitted"):
            study.pause()
        quiet(study, SPACE)
        study.pause()
        study.resume()
    assert [command["kind"] for command in scheduler.commands] == ["submit", "pause", "resume"]
    assert len(started) == 3


def test_two_who_take_one_name_at_once_are_told_apart_by_the_scheduler(settings, started):
    first, second = (create_study(study_name="first", **GRID) for _ in range(2))
    with FakeScheduler(settings):
        quiet(first, SPACE)
        with pytest.raises(UsageError, match="taken"):
            quiet(second, SPACE)


def test_a_study_that_trained_no_trial_to_its_last_epoch_has_a_best_one_all_the_same():
    """Of those trained longest: values of different training are not compared."""
    trials = [
        optuna.trial.create_trial(
            state=optuna.trial.TrialState.PRUNED,
            value=value,
            intermediate_values=dict.fromkeys(range(1, epoch + 1), value),
        )
        for value, epoch in ((9.0, 1), (2.0, 3), (3.0, 3))
    ]
    assert best(trials, ["maximize"]) is trials[2]
    assert best(trials, ["minimize"]) is trials[1]


def test_in_optunas_own_kind_of_study_a_pruned_trial_is_never_best_and_attributes_are_the_users(
    settings,
):
    study = create_study()
    pruned = optuna.trial.create_trial(
        state=optuna.trial.TrialState.PRUNED, value=1.0, user_attrs={"epoch": "last"}
    )
    study.add_trial(pruned)
    with pytest.raises(ValueError, match="no trial is complete"):
        study.best_trial  # noqa: B018 - it raises
    study.add_trial(optuna.trial.create_trial(value=2.0, user_attrs={"constraints": "none"}))
    assert (study.best_value, study.best_trial.user_attrs) == (2.0, {"constraints": "none"})


def test_what_a_scheduled_objective_wrote_stands_beside_penstocks_facts(settings, started):
    written = Writing(user_attrs=(("note", '"good"'),), system_attrs=(("theirs", "1"),))
    with FakeScheduler(settings, writes={1: written}):
        study = create_study(**GRID)
        quiet(study, SPACE)
    plain, noted, _ = study.trials
    assert (noted.user_attrs["note"], noted.system_attrs["theirs"]) == ("good", 1)
    assert noted.user_attrs["trial_id"] == f"{study.id}-0001"
    assert noted.params == {"x": 1.0, "act": "relu"}
    assert "note" not in plain.user_attrs
    assert (study.user_attrs["strategy"], study.user_attrs["status"]) == ("full", "complete")


def test_without_a_complete_trial_there_is_no_best_one(settings, started):
    study = create_study(**GRID)
    assert study.trials == []
    assert study.trials_dataframe().empty
    with pytest.raises(ValueError, match="no trial is complete"):
        study.best_trial  # noqa: B018 - it raises
    with pytest.raises(UsageError, match="not submitted"):
        study.cancel()
    failed = dict.fromkeys(range(3), TrialState.FAILED)
    with FakeScheduler(settings, fate=failed), pytest.raises(TrialFailed) as failure:
        quiet(study, SPACE)
    assert failure.value.kind == "exception"
    assert failure.value.traceback == "Traceback ..."
    assert failure.value.__notes__ == ["\ntrial 0: Traceback ..."]
    assert "succeeded; trial 0 failed (exception): ValueError: no" in str(failure.value)
    with pytest.raises(UsageError, match="first failure was: ValueError: no"):
        study.best_trial  # noqa: B018 - it raises


def test_submit_returns_at_once_and_wait_waits(settings, started):
    with FakeScheduler(settings) as scheduler:
        scheduler.hold.set()
        study = create_study(**GRID)
        study.submit(objective, SPACE)
        study.wait(timeout=0.05)
        assert study.status == "running"
        assert not any(trial.state.is_finished() for trial in study.trials)
        scheduler.resume.set()
        study.wait()
    assert len(study.trials) == 3


@pytest.mark.parametrize(
    ("strategy", "kind", "status"),
    [(FullBudget(2), "stop", "complete"), (ASHA(max_epochs=2), "cancel", "cancelled")],
)
def test_a_study_past_its_timeout_begins_no_more_trials(settings, started, strategy, kind, status):
    with FakeScheduler(settings) as scheduler:
        scheduler.hold.set()
        study = create_study(sampler="grid", strategy=strategy)
        quiet(study, SPACE, timeout=0.1)
    assert study.status == status
    assert len(study.trials) == 1
    assert [command["kind"] for command in scheduler.commands] == ["submit", kind]


def test_ctrl_c_leaves_the_study_running_and_says_how_to_go_on(
    settings, started, monkeypatch, capsys
):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(live, "follow", interrupted)
    with FakeScheduler(settings) as scheduler:
        study = create_study(**GRID)
        with pytest.raises(KeyboardInterrupt):
            quiet(study, SPACE)
    told = capsys.readouterr().err
    assert f"penstock watch {study.id}" in told
    assert f"penstock cancel {study.id}" in told
    assert [command["kind"] for command in scheduler.commands] == ["submit"]


def test_under_the_command_line_only_that_says_that_the_study_goes_on(
    settings, started, monkeypatch, capsys
):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(live, "follow", interrupted)
    with (
        running(submitted=[]),
        FakeScheduler(settings),
        pytest.raises(KeyboardInterrupt),
    ):
        quiet(create_study(**GRID), SPACE)
    assert "goes on" not in capsys.readouterr().err


@pytest.mark.parametrize("there", [True, False])
def test_under_the_command_line_the_pages_are_named_if_they_are_there(
    settings, started, capsys, monkeypatch, there
):
    monkeypatch.setattr(watching, "has_command", {"ui": there}.__getitem__)
    with running(submitted=[]), FakeScheduler(settings):
        create_study(**GRID).optimize(objective, SPACE)
    assert capsys.readouterr().err.count("penstock ui") == there


@pytest.mark.usefixtures("nothing_there")
def test_where_nothing_writes_reports_the_status_is_named():
    assert watching.asked_message("mine", "mine-1a2b").endswith(" penstock status mine")


@pytest.mark.extension("report")
def test_a_shown_study_ends_with_how_to_have_its_report(settings, started, capsys):
    with FakeScheduler(settings):
        shown, unseen = create_study(study_name="to be shown", **GRID), create_study(**GRID)
        shown.optimize(objective, SPACE)
        told = capsys.readouterr().err
        quiet(unseen, SPACE)
    assert told.splitlines()[-1] == "The report: penstock report 'to be shown'"
    assert "report" not in capsys.readouterr().err


def test_a_shown_study_ends_with_what_failed(settings, started, capsys):
    with FakeScheduler(settings, fate={1: TrialState.FAILED}):
        shown, unseen = create_study(**GRID), create_study(**GRID)
        shown.optimize(objective, SPACE)
        told = capsys.readouterr().err
        quiet(unseen, SPACE)
    x, act = shown.trials[1].params.values()
    story = f"penstock story {shown.id}/1"
    lines = told.splitlines()
    assert lines[(at := lines.index("1 of 3 trials failed")) : at + 4] == [
        "1 of 3 trials failed",
        f"  trial 1 (x {x:g}, act {act}) failed (exception): ValueError: no  {story}",
        f"the end of trial 1's traceback; to see all of it: {story}",
        "Traceback ...",
    ]
    assert "failed" not in capsys.readouterr().err


def test_a_detached_optimize_submits_and_returns(settings, started):
    with running(detach=True, submitted=[]), FakeScheduler(settings) as scheduler:
        scheduler.hold.set()
        study = create_study(**GRID)
        quiet(study, SPACE)
        assert study.status == "running"
        assert [each.id for each in script_run().submitted] == [study.id]
    assert script_run().submitted is None


def test_a_script_that_a_trainer_imports_starts_nothing(settings, started, monkeypatch):
    monkeypatch.setenv("PENSTOCK_TRAINER", "1")
    study = create_study(study_name="first", **GRID)
    for call in (lambda: study.submit(objective, SPACE), lambda: load_study("first")):
        with pytest.raises(UsageError, match='if __name__ == "__main__"'):
            call()
    assert started == []


def test_importing_penstock_loads_none_of_the_heavy_libraries():
    script = (
        "import sys, time; start = time.process_time(); import penstock;"
        "took = time.process_time() - start;"
        "penstock.TorchTrainable, penstock.Float;"
        "heavy = {'torch', 'optuna', 'sqlalchemy', 'redis', 'celery', 'pandas', 'rich', 'numpy'};"
        "heavy.add('jinja2');"
        "print(sorted(heavy & set(sys.modules)), took < 0.05);"
        "import optuna; theirs = set(sys.modules); penstock.create_study;"
        "print(sorted(heavy & (set(sys.modules) - theirs)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    # A study is Optuna's, with what Optuna imports, and nothing besides.
    assert done.stdout.splitlines() == ["[] True", "[]"]


@pytest.mark.extension("nas")
def test_what_is_public_of_architectures_is_a_module():
    import penstock

    assert penstock.nas.__name__ == "penstock.extensions.nas.names"


def test_the_public_face_is_what_it_says():
    import penstock
    from penstock.app.extensions import BY_NAME, public

    assert {*penstock.__all__} == {*penstock._LAZY, *public()} - {"celery"}
    exec("from penstock import *", found := {})
    assert {*penstock.__all__} <= found.keys()
    for name in {*penstock.__all__} - {"nas"}:
        assert getattr(penstock, name).__name__ == name
    assert {*dir(penstock)} == {*vars(penstock), *penstock.__all__, *BY_NAME}
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        penstock.nothing  # noqa: B018 - it raises
