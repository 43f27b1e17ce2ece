"""Studies in MLflow: an experiment a study, a run a trial, a step an epoch.

A run is found again by its tags, and how far it is by the history of the study's metric. A metric
carries the time at which its epoch was accepted, so that writing one again (after a crash in the
middle of a request) gives the very same row, which MLflow's databases keep once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ...profiling.base.errors import BackendError
from ...profiling.base.extras import need
from ...profiling.base.urls import hide_password
from ...scheduler.model.trial import TrialState
from .epoch_callbacks import EpochCallback, Log, Point

if TYPE_CHECKING:
    from ..ledger.rows import StudyRow, TrialRow

#: So many metrics MLflow takes in one request; and so many runs it lists.
_AT_ONCE = 1000
#: Who watches waits for a server no longer than this (MLflow: 120 s, eight times; only variables of
#: the environment can say so). What it missed it gets later.
_PATIENCE = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "5", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
#: How MLflow calls a trial that is over.
_STATUS = {
    TrialState.COMPLETED: "FINISHED",
    TrialState.STOPPED: "FINISHED",
    TrialState.FAILED: "FAILED",
    TrialState.CANCELLED: "KILLED",
}


class MLflowCallback(EpochCallback):
    """Logs each accepted epoch to MLflow, once: ``optimize(callbacks=[...])``.

    The experiment has the study's name. Each trial is a run: its parameters, its metrics with the
    epoch as step, how it ended. ``tracking_uri`` is MLflow's, None for what it is set to.
    """

    kind = "mlflow"

    def __init__(self, tracking_uri: str | None = None) -> None:
        self._uri = tracking_uri

    @property
    def place(self) -> str:
        if self._uri is not None:
            return self._uri
        from mlflow import get_tracking_uri

        return str(get_tracking_uri())

    def check(self) -> None:
        """UsageError where the library is not installed."""
        need("mlflow", "MLflowCallback")

    def open(self, study: StudyRow) -> Log:
        """The experiment of ``study``, made where it is not there."""
        return _Experiment(self.place, study)


class _Experiment:
    def __init__(self, uri: str, study: StudyRow) -> None:
        from mlflow import MlflowClient

        self._uri = uri
        self._study = study
        with self._answering():
            self._client = MlflowClient(tracking_uri=uri)
            found = self._client.get_experiment_by_name(study.name)
            self._id = found.experiment_id if found else self._client.create_experiment(study.name)
            self._runs = self._known_runs()

    def write(self, trial: TrialRow, points: Sequence[Point], *, over: bool) -> None:
        """Add what is not there, in as few requests as MLflow's limit allows."""
        with self._answering():
            run = self._runs.get(trial.number)
            if run is None:
                run = self._runs[trial.number] = self._begin(trial)
            status = _STATUS[TrialState(trial.state)] if over else "RUNNING"
            if over and run.status == status:
                return  # a run ends when all of it is written
            run.write(self._client, trial, points, self._study.metric, over=over)
            if over:
                end = None if trial.finished_at is None else _ms(trial.finished_at)
                self._client.set_terminated(run.id, status, end)
            elif run.status != status:  # the trial goes on after all
                self._client.update_run(run.id, status)
            run.status = status

    def _begin(self, trial: TrialRow) -> _Run:
        tags = {
            "mlflow.runName": trial.id,
            "penstock.study": self._study.id,
            "penstock.trial": str(trial.number),
        }
        made = self._client.create_run(self._id, _ms(trial.created_at), tags)
        return _Run(made)

    def _known_runs(self) -> dict[int, _Run]:
        """The study's runs that are there already, by trial number."""
        ours, page, known = f"tags.`penstock.study` = '{self._study.id}'", None, dict[int, _Run]()
        while True:
            runs = self._client.search_runs([self._id], ours, 1, _AT_ONCE, page_token=page)
            known |= {int(run.data.tags["penstock.trial"]): _Run(run) for run in runs}
            if not (page := runs.token):
                return known

    @contextmanager
    def _answering(self) -> Iterator[None]:
        from mlflow.exceptions import MlflowException

        try:
            with _patience():
                yield
        except (MlflowException, OSError) as error:
            # from None: the library's own text shows the whole URI, which may have a password.
            shown = hide_password(self._uri)
            said = str(error).replace(self._uri, shown)
            raise BackendError(f"MLflow at {shown}: {said}") from None


@contextmanager
def _patience() -> Iterator[None]:
    """``_PATIENCE`` for as long as we ask, unless the user has said otherwise."""
    ours = {name: value for name, value in _PATIENCE.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            del os.environ[name]


class _Run:
    """A run of MLflow's; how far it is, is asked before the first write."""

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
            # The study's own comes last: where that is there, the epoch is there whole.
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
    """What MLflow takes for a name."""
    return re.sub(r"[^\w\-. :/]", "_", name)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
