"""Logs studies for TensorBoard, with a folder for each trial and an event for each epoch.

An event has all metrics of an epoch. So an epoch is logged completely or, if the writer was killed,
not at all: both TensorBoard and this module ignore a truncated last event. Each watcher writes
files of its own, because TensorBoard never returns to a file after it has found a newer one.
"""

from __future__ import annotations

import itertools
import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...app.client.study.epoch_callbacks import EpochCallback, Log, Point
from ...app.ledger.codec import spec_from_json
from ...base.errors import BackendError, UsageError
from ...base.extras import need

if TYPE_CHECKING:
    from ...app.ledger.rows import StudyRow, TrialRow
    from ...scheduler.model.study import Scalar

#: The content of the first event in a file, which states the format of the other events.
_VERSION = "brain.Event:2"
#: The tag by which TensorBoard's HParams plugin finds a trial's parameters.
_PARAMS_TAG = "_hparams_/session_start_info"


class TensorBoardCallback(EpochCallback):
    """A callback of ``optimize`` that logs each accepted epoch for TensorBoard once.

    The events of a trial are in ``<directory>/<study's id>/<trial's number>``. The events have the
    trial's metrics by epoch, and its parameters for the HParams tab. TensorBoard may read the files
    while the callback writes.
    """

    kind = "tensorboard"

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(directory).absolute()

    @property
    def destination(self) -> str:
        return str(self._directory)

    def check(self) -> None:
        """Raise UsageError if TensorBoard is not installed or the folder cannot be created."""
        need("tensorboard", "TensorBoardCallback")
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            allowed = f"a folder that can be written ({error.strerror})"
            raise UsageError.refuse("directory", str(self._directory), allowed) from error

    def open(self, study: StudyRow) -> Log:
        """Return the folder for the events of ``study``."""
        has_space = spec_from_json(study.spec_json).space is not None
        return _Folder(self._directory / study.id, has_space)


class _Folder:
    def __init__(self, path: Path, params_known: bool) -> None:
        self._path = path
        self._params_known = params_known
        self._file = f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}.{os.getpid()}"
        self._there: dict[str, tuple[int, bool]] = {}

    def write(self, trial: TrialRow, points: Sequence[Point], *, over: bool) -> None:
        """Write the epochs of a trial that are missing in its folder, and its parameters.

        If an objective chooses the parameters as it runs, the parameters are written only at the
        end.
        """
        folder = self._path / f"{trial.number:04d}"
        if trial.id not in self._there:
            self._there[trial.id] = _read(folder)
        epoch, has_params = self._there[trial.id]
        events = [_event(point) for point in points if point.epoch > epoch]
        params = not has_params and (self._params_known or over)
        if params and trial.params and (events or epoch >= 0):
            events.insert(0, _params_event(trial))
            has_params = True
        if events:
            try:
                _append(folder / self._file, events)
            except OSError as error:
                raise BackendError(f"{folder} cannot be written: {error.strerror}") from error
            self._there[trial.id] = (max(epoch, *(p.epoch for p in points), -1), has_params)


def _read(folder: Path) -> tuple[int, bool]:
    """Return the last epoch that ``folder`` has, and True if the folder has the parameters.

    The epoch is -1 if no epoch has been logged.
    """
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    epoch, has_params = -1, False
    for file in sorted(folder.glob("events.out.tfevents.*")):
        for event in LegacyEventFileLoader(str(file)).Load():
            tags = [value.tag for value in event.summary.value]
            if tags == [_PARAMS_TAG]:
                has_params = True
            elif tags:
                epoch = max(epoch, event.step)
    return epoch, has_params


def _append(file: Path, events: Sequence[Any]) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter

    first = [] if file.exists() else [Event(wall_time=time.time(), file_version=_VERSION)]
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as output:
        writer = RecordWriter(output)
        for event in itertools.chain(first, events):
            writer.write(event.SerializeToString())


def _event(point: Point) -> Any:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    values = [Summary.Value(tag=name, simple_value=v) for name, v in point.metrics.items()]
    return Event(wall_time=point.at, step=point.epoch, summary=Summary(value=values))


def _params_event(trial: TrialRow) -> Any:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb

    params = {name: _value(value) for name, value in trial.params.items()}
    summary = hparams_pb(params, trial_id=trial.id, start_time_secs=trial.created_at)
    return Event(wall_time=trial.created_at, summary=summary)


def _value(value: Scalar) -> Any:
    """Return ``value``, or the text ``None`` in place of None, which TensorBoard cannot store."""
    return "None" if value is None else value
