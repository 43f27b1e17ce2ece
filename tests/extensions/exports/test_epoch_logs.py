"""TensorBoard's files and MLflow's runs hold what the ledger accepted: each epoch once."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import optuna
import penstock
import pytest
from ledgers.study_ledger import make_study, study_spec
from patience import PATIENCE
from penstock import MLflowCallback, TensorBoardCallback
from penstock.app.client.study import epoch_callbacks
from penstock.app.client.study.epoch_callbacks import Feed
from penstock.app.show.views.live import Watcher
from penstock.base.errors import UsageError
from penstock.extensions.exports import mlflow
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

STUDY = "digits-1a2b"
SPEC = study_spec(n_trials=9)

# SQLAlchemy 2.1 deprecates what MLflow asks of it, and MLflow what itself does.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def part(tmp_path_factory):
    """The study in the middle of its run."""
    return make_study(tmp_path_factory.mktemp("part"), SPEC, fails=(3,), turns=15)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The same study later: one seed, one simulated history."""
    return make_study(tmp_path_factory.mktemp("whole"), SPEC, fails=(3,))


def watch(callback, run, *readers):
    """Log while one watcher looks at these ledgers, one after the other."""
    with closing(Feed([callback], run)) as feed:
        watcher = Watcher(readers[0], STUDY)
        for reader in readers:
            watcher.reader = reader
            feed.update(watcher.poll(), watcher.epochs)


def accepted(reader, metric="accuracy"):
    """(epoch, value, seconds) of each trial that has an epoch, in the order of acceptance."""
    found = {}
    for row in reader.epochs(STUDY):
        found.setdefault(int(row.trial[-4:]), []).append((row.epoch, row.metrics[metric], row.at))
    return found


# -- TensorBoard -----------------------------------------------------------------------------------


def logged(folder):
    found = {}
    for trial in sorted((folder / STUDY).iterdir()):
        events = EventAccumulator(str(trial)).Reload()
        assert events.Tags()["scalars"] == ["accuracy"]
        found[int(trial.name)] = [
            (e.step, e.value, e.wall_time) for e in events.Scalars("accuracy")
        ]
    return found


def params_of(folder, number):
    """A trial's parameters as the HParams plugin finds them."""
    from tensorboard.plugins.hparams.metadata import (
        SESSION_START_INFO_TAG,
        parse_session_start_info_plugin_data,
    )

    events = EventAccumulator(str(folder / STUDY / f"{number:04d}")).Reload()
    info = events.SummaryMetadata(SESSION_START_INFO_TAG).plugin_data.content
    found = parse_session_start_info_plugin_data(info).hparams
    return {k: v.string_value or v.number_value for k, v in found.items()}


def same(found, reader):
    expected = accepted(reader)
    assert found.keys() == expected.keys()
    for number, points in expected.items():
        assert [step for step, *_ in found[number]] == [epoch for epoch, *_ in points]
        for one, other in zip(found[number], points, strict=True):
            assert one == pytest.approx(other)


def test_each_epoch_is_logged_once_from_look_to_look(tmp_path, part, whole):
    watch(TensorBoardCallback(tmp_path / "tb"), tmp_path, part, part, whole, whole)
    same(logged(tmp_path / "tb"), whole)
    for trial in whole.trials(STUDY):
        if trial.epoch:
            assert params_of(tmp_path / "tb", trial.number) == pytest.approx(trial.params)


def test_a_watcher_that_comes_again_goes_on_where_the_log_ends(tmp_path, part, whole):
    for reader in (part, part, whole, whole):
        watch(TensorBoardCallback(tmp_path / "tb"), tmp_path, reader)
    same(logged(tmp_path / "tb"), whole)


def test_an_event_torn_by_a_kill_is_written_again(tmp_path, part, whole):
    watch(TensorBoardCallback(tmp_path / "tb"), tmp_path, part)
    before = logged(tmp_path / "tb")
    longest = max(before, key=lambda number: len(before[number]))
    [file] = (tmp_path / "tb" / STUDY / f"{longest:04d}").iterdir()
    os.truncate(file, file.stat().st_size - 3)
    # Another process's file; its name is the newer one.
    file.rename(file.with_name("events.out.tfevents.1000000000.elsewhere.1"))
    watch(TensorBoardCallback(tmp_path / "tb"), tmp_path, whole)
    same(logged(tmp_path / "tb"), whole)


def test_two_watchers_do_not_log_a_study_to_one_place(tmp_path, part):
    first = TensorBoardCallback(tmp_path / "tb")
    with closing(Feed([first], tmp_path)) as feed:
        watcher = Watcher(part, STUDY)
        feed.update(watcher.poll(), watcher.epochs)
        with pytest.raises(UsageError, match=r"tensorboard-digits-1a2b-\w+ is running already"):
            watch(TensorBoardCallback(tmp_path / "tb"), tmp_path, part)
        watch(TensorBoardCallback(tmp_path / "other"), tmp_path, part)


# -- MLflow ----------------------------------------------------------------------------------------


@pytest.fixture
def server(monkeypatch):
    """A database of MLflow's. In memory where that can be: making it syncs hundreds of times."""
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield f"sqlite:///{folder}/mlflow.db"


def runs_of(uri):
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("digits").experiment_id
    return client, {int(r.data.tags["penstock.trial"]): r for r in client.search_runs([experiment])}


def histories(uri):
    client, runs = runs_of(uri)
    found = {}
    for number, run in runs.items():
        points = client.get_metric_history(run.info.run_id, "accuracy")
        found[number] = [(p.step, p.value, p.timestamp / 1000) for p in points]
    return {number: points for number, points in found.items() if points}


def test_mlflow_has_a_run_a_trial_and_a_step_an_epoch_also_after_re_attachment(
    tmp_path, server, part, whole
):
    watch(MLflowCallback(server), tmp_path, part, part)
    same(histories(server), part)
    _, runs = runs_of(server)
    open_ = next(n for n, run in runs.items() if run.info.status == "RUNNING")
    watch(MLflowCallback(server), tmp_path, part, whole)
    watch(MLflowCallback(server), tmp_path, whole)
    same(histories(server), whole)
    assert runs[open_].info.run_id == runs_of(server)[1][open_].info.run_id
    _, runs = runs_of(server)
    trials = whole.trials(STUDY)
    assert sorted(runs) == [trial.number for trial in trials]
    status = {"completed": "FINISHED", "stopped": "FINISHED", "failed": "FAILED"}
    for trial in trials:
        run = runs[trial.number]
        assert run.info.run_name == trial.id
        assert run.data.params == {name: str(value) for name, value in trial.params.items()}
        assert run.info.status == status[trial.state]
        assert run.data.tags["penstock.state"] == trial.state
        assert run.info.end_time == round(trial.finished_at * 1000)


@pytest.fixture
def silent():
    """A server that takes connections, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://user:secret@127.0.0.1:{listening.getsockname()[1]}"


def test_an_mlflow_that_does_not_answer_is_said_once_and_holds_nobody_up(
    tmp_path, part, whole, silent, monkeypatch, caplog
):
    monkeypatch.setitem(mlflow._TIMEOUTS, "MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    began = time.monotonic()
    watch(MLflowCallback(silent), tmp_path, part, part, part)
    assert time.monotonic() - began < PATIENCE / 10
    assert "MLFLOW_HTTP_REQUEST_TIMEOUT" not in os.environ
    [said] = caplog.messages
    assert "the study continues" in said
    watch(MLflowCallback(silent), tmp_path, whole)
    assert "`penstock watch digits --mlflow` adds what is missing" in caplog.messages[1]
    assert "secret" not in caplog.text


def test_a_log_that_was_away_for_a_while_misses_nothing(tmp_path, part, whole, monkeypatch):
    monkeypatch.setattr(epoch_callbacks, "RETRY", 0.0)
    folder = tmp_path / "tb"
    callback = TensorBoardCallback(folder)
    with closing(Feed([callback], tmp_path)) as feed:
        watcher = Watcher(part, STUDY)
        feed.update(watcher.poll(), watcher.epochs)
        written = shutil.move(folder / STUDY, tmp_path / "aside")
        (folder / STUDY).write_text("in the way")
        watcher.reader = whole
        feed.update(watcher.poll(), watcher.epochs)
        (folder / STUDY).unlink()
        shutil.move(written, folder / STUDY)
        feed.update(watcher.poll(), watcher.epochs)
    same(logged(folder), whole)


# -- both ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make", [lambda: TensorBoardCallback("logs"), lambda: MLflowCallback("sqlite:///x.db")]
)
def test_a_library_that_is_not_installed_is_named_before_anything_starts(make, monkeypatch):
    callback = make()
    monkeypatch.setitem(sys.modules, callback.kind, None)
    monkeypatch.setattr(penstock.Study, "submit", lambda *_, **__: pytest.fail("started"))
    with pytest.raises(UsageError, match=rf"pip install 'penstock\[{callback.kind}\]'"):
        penstock.create_study().optimize(objective, n_trials=1, callbacks=[callback])


@pytest.mark.parametrize("make", [lambda: TensorBoardCallback("logs"), MLflowCallback])
def test_a_library_that_is_missing_is_named_to_those_who_watch(make, tmp_path, part, monkeypatch):
    callback = make()
    monkeypatch.setitem(sys.modules, callback.kind, None)
    with pytest.raises(UsageError, match=rf"pip install 'penstock\[{callback.kind}\]'"):
        watch(callback, tmp_path, part)


def objective(trial: optuna.Trial) -> float:
    return 0.0
