"""Logs studies to MLflow: a study is an experiment, a trial is a run, an epoch is a step.

A run is found again by its tags. The last epoch of a run is found by the history of the study's
metric. A metric carries the time at which its epoch was accepted. So writing a metric again, after
a crash in the middle of a request, gives the same row, which MLflow's databases store once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ...app.client.study.epoch_callbacks import EpochCallback, Log, Point
from ...base.errors import BackendError
from ...base.extras import need
from ...base.urls import hide_password
from ...scheduler.model.trial import TrialState

if TYPE_CHECKING:
    from ...app.ledger.rows import StudyRow, TrialRow

#: The most metrics that MLflow accepts in one request, which is also the most runs that MLflow
#: lists in one answer.
_AT_ONCE = 1000
#: Environment variables that limit how long a watcher waits for the server. MLflow's own defaults
#: are 120 s, eight times, and only variables change them. Epochs that the server missed are written
#: later.
_TIMEOUTS = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "5", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
#: The status in MLflow of the run of a trial that is over, by the trial's state.
_STATUS = {
    TrialState.COMPLETED: "FINISHED",
    TrialState.STOPPED: "FINISHED",
    TrialState.FAILED: "FAILED",
    TrialState.CANCELLED: "KILLED",
}


class MLflowCallback(EpochCallback):
    """A callback of ``optimize`` that logs each accepted epoch to MLflow once.

    The experiment has the study's name. Each trial is a run with its parameters, its metrics by
    epoch, and its final status. ``tracking_uri`` is the address of MLflow; None means MLflow's own
    setting.
    """

    kind = "mlflow"

    def __init__(self, tracking_uri: str | None = None) -> None:
        self._uri = tracking_uri

    @property
    def destination(self) -> str:
        if self._uri is not None:
            return self._uri
        from mlflow import get_tracking_uri

        return str(get_tracking_uri())

    def check(self) -> None:
        """Raise UsageError if MLflow is not installed."""
        need("mlflow", "MLflowCallback")

    def open(self, study: StudyRow) -> Log:
        """Return the experiment for ``study``. The experiment is created if it is missing."""
        return _Experiment(self.destination, study)


class _Experiment:
    def __init__(self, uri: str, study: StudyRow) -> None:
        from mlflow import MlflowClient

        self._uri = uri
        self._study = study
        with self._translate_errors():
            self._client = MlflowClient(tracking_uri=uri)
            experiment = self._client.get_experiment_by_name(study.name)
            self._id = (
                experiment.experiment_id
                if experiment
                else self._client.create_experiment(study.name)
            )
            self._runs = self._known_runs()

    def write(self, trial: TrialRow, points: Sequence[Point], *, over: bool) -> None:
        """Write the epochs that are missing in the trial's run, in as few requests as possible.

        With ``over``, the run also gets its final status.
        """
        with self._translate_errors():
            run = self._runs.get(trial.number)
            if run is None:
                run = self._runs[trial.number] = self._begin(trial)
            status = _STATUS[TrialState(trial.state)] if over else "RUNNING"
            if over and run.status == status:
                return  # a run ends only once all of it is written
            run.write(self._client, trial, points, self._study.metric, over=over)
            if over:
                end = None if trial.finished_at is None else _ms(trial.finished_at)
                self._client.set_terminated(run.id, status, end)
            elif run.status != status:  # the trial was resumed
                self._client.update_run(run.id, status)
            run.status = status

    def _begin(self, trial: TrialRow) -> _MlRun:
        tags = {
            "mlflow.runName": trial.id,
            "penstock.study": self._study.id,
            "penstock.trial": str(trial.number),
        }
        run = self._client.create_run(self._id, _ms(trial.created_at), tags)
        return _MlRun(run)

    def _known_runs(self) -> dict[int, _MlRun]:
        """Return the runs of the study that MLflow has already, by the trial's number."""
        query, page, runs_by_trial = (
            f"tags.`penstock.study` = '{self._study.id}'",
            None,
            dict[int, _MlRun](),
        )
        while True:
            runs = self._client.search_runs([self._id], query, 1, _AT_ONCE, page_token=page)
            runs_by_trial |= {int(run.data.tags["penstock.trial"]): _MlRun(run) for run in runs}
            if not (page := runs.token):
                return runs_by_trial

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        from mlflow.exceptions import MlflowException

        try:
            with _timeouts():
                yield
        except (MlflowException, OSError) as error:
            # from None: the library's message shows the whole URI, which may contain a password.
            safe_uri = hide_password(self._uri)
            message = str(error).replace(self._uri, safe_uri)
            raise BackendError(f"MLflow at {safe_uri}: {message}") from None


@contextmanager
def _timeouts() -> Iterator[None]:
    """Set the variables of ``_TIMEOUTS`` within this context.

    Variables that the user set are kept.
    """
    defaults = {name: value for name, value in _TIMEOUTS.items() if name not in os.environ}
    os.environ.update(defaults)
    try:
        yield
    finally:
        for name in defaults:
            del os.environ[name]


class _MlRun:
    """A run in MLflow. The last epoch of the run is read before the first write."""

    def __init__(self, run: Any) -> None:
        self.id = run.info.run_id
        self.status = run.info.status
        self._params = set(run.data.params)
        self._epoch: int | None = None if run.data.metrics else -1

    def write(
        self, client: Any, trial: TrialRow, points: Sequence[Point], metric: str, *, over: bool
    ) -> None:
        from mlflow.entities import Metric, Param, RunTag

        if self._epoch is None:
            history = client.get_metric_history(self.id, _name(metric))
            self._epoch = max((each.step for each in history), default=-1)
        new = [point for point in points if point.epoch > self._epoch]
        metrics = [
            Metric(_name(name), value, _ms(point.at), point.epoch)
            for point in new
            # The study's metric is written last, so an epoch that has it is complete.
            for name, value in sorted(point.metrics.items(), key=lambda item: item[0] == metric)
        ]
        params = [
            Param(_name(name), str(value))
            for name, value in trial.params.items()
            if _name(name) not in self._params
        ]
        tags = [RunTag("penstock.state", str(trial.state))] if over else []
        for first in range(0, max(len(metrics), len(params + tags)), _AT_ONCE):
            client.log_batch(self.id, metrics[first : first + _AT_ONCE], params, tags)
            params, tags = [], []
        self._params |= {_name(name) for name in trial.params}
        self._epoch = max([self._epoch, *(point.epoch for point in new)])


def _name(name: str) -> str:
    """Return ``name`` with all characters that MLflow refuses replaced by underscores."""
    return re.sub(r"[^\w\-. :/]", "_", name)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
