"""Writes a study to one JSON file for another installation or tool, and reads such a file.

Theory of operation. The file has a format number, and trial by trial everything that readers of the
ledger see of a study. An import becomes one event (``StudyImported``). So only the scheduler writes
the ledger, and the imported study survives a restart like any other study.

Rules of change. A field with a default may be added within a format; an older Penstock refuses such
a file and names the field. Any other change needs a new format number. Times are seconds since
1970. NaN and infinities are the strings ``NaN``, ``Infinity`` and ``-Infinity``.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from ...app.common.versioned_file import Body, Kind, read_own
from ...app.ledger.codec import spec_from_json
from ...app.server.optuna_bridge.updates import LedgerUpdates, merged, study_attributes
from ...base.errors import UsageError
from ...profiling.knobs.knobs import Value
from ...scheduler.model.decisions import Member, Parent
from ...scheduler.model.events import StudyImported
from ...scheduler.model.finished import FinishedTrial
from ...scheduler.model.study import (
    NOTHING_SPENT,
    Scalar,
    Spent,
    StudyRecord,
    number_of,
    trial_id,
)
from ...scheduler.model.trial import AcceptedEpoch, Failure, Origin, TrialState

if TYPE_CHECKING:
    from ...app.ledger.reader import Reader
    from ...app.ledger.rows import TrialRow

KIND = Kind("export", "penstock_export", 1, "penstock export STUDY")
#: The most epochs in one import, since an import of 100,000 epochs keeps the scheduler busy for 6
#: s.
MAX_EPOCHS = 250_000
#: Fields of a study's specification that have the addresses of its notices and calls. Exports leave
#: these fields out.
_TOLD = ("notify", "on_end", "on_error")


#: Two checked types: a whole number that a column of the ledger can hold, and a valid point in time
#: (seconds since 1970).
Whole = Annotated[int, Field(ge=0, lt=2**63)]
Moment = Annotated[float, Field(ge=0, lt=2e11, allow_inf_nan=False)]


class Epoch(Body):
    """An accepted epoch, with the fields of ``ledger.rows.EpochRow``."""

    epoch: Whole
    value: float
    metrics: dict[str, float]
    state_hash: str
    signature: str
    seconds: float
    device: str
    slot: Whole
    members: list[tuple[str, Whole]]
    fence: Whole
    at: Moment
    joules: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    system: list[tuple[str, Value]] = Field(default=[])
    #: The id of the trial that trained the epoch, if the epoch was taken over from another trial;
    #: otherwise empty.
    taken_from: str = ""


class Checkpoint(Body):
    """A checkpoint in the store of the installation that trained the trial."""

    epoch: Whole
    state_hash: str
    uri: str
    at: Moment


class TrialOrigin(Body):
    """The origin of a forked trial: the trial and the epoch from which it continues.

    Trials are given by number. ``replaces`` is the trial in whose place the forked trial is
    trained; for a branch, there is no such trial. ``keys`` is as in ``Origin``.
    """

    trial: Whole
    epoch: Whole
    replaces: Whole | None = None
    keys: Whole | None = None

    @model_serializer(mode="wrap")
    def _known(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out fields that are None: releases without branches refuse unknown names."""
        return {name: value for name, value in dump(self).items() if value is not None}


class TrialFailure(Body):
    kind: str
    message: str
    traceback: str


class TrialBody(Body):
    """A trial, with the fields of ``ledger.rows.TrialRow``, its epochs and its checkpoints."""

    number: Whole
    state: TrialState
    params: dict[str, Scalar]
    #: The distributions that an objective asked for, in Optuna's JSON, by the parameter's name.
    drawn: dict[str, str]
    epoch: Whole
    target: Whole
    value: float | None
    members: list[tuple[str, Whole]]
    created_at: Moment
    finished_at: Moment | None
    failure: TrialFailure | None
    epochs: list[Epoch]
    checkpoints: list[Checkpoint]
    further: list[float] = Field(default=[])
    constraints: dict[str, float] = Field(default={})
    origin: TrialOrigin | None = None
    dispatched_at: Moment | None = None
    #: The attributes that the trial's objective and users wrote, as JSON (see
    #: ``FinishedTrial.written``).
    written: str = ""


#: An amount of device use: a number that is 0 or more.
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class SpentBody(Body):
    """The device use of a study, with the fields of ``scheduler.model.study.Spent``."""

    device_seconds: Amount
    joules: Amount
    money: Amount
    reached: list[str]


class Archive(Body):
    """The content of an exported file: a study with all its trials."""

    #: The format number.
    penstock_export: int = KIND.format
    #: The version of Penstock that wrote the file, and the time at which the file was written.
    penstock_version: str
    exported_at: Moment
    #: The study's status and message when it was exported.
    status: str
    message: str
    created_at: Moment
    #: The time at which the study ended, or None if the study was not over.
    finished_at: Moment | None
    #: The study's specification in the form of the ledger (``ledger.codec``).
    spec: dict[str, Any]
    trials: list[TrialBody]
    #: The study's attributes by key, as JSON texts: attributes of users, and attributes that
    #: Optuna's own code has written.
    user_attrs: dict[str, str] = Field(default={})
    system_attrs: dict[str, str] = Field(default={})
    #: The study's device use, or None if the file does not state the use.
    spent: SpentBody | None = None


def archive_of(reader: Reader, study_id: str) -> Archive:
    """Return the study with this id as an archive, in its current state if it is still running."""
    study = reader.study(study_id)
    epochs, durables = defaultdict[str, list[Epoch]](list), defaultdict[str, list[Checkpoint]](list)
    # Epochs are read before trials, so that the trial of every epoch is known.
    for row in reader.epochs(study.id):
        fields = {name: getattr(row, name) for name in Epoch.model_fields}
        epochs[row.trial].append(
            Epoch(**fields | {n: list(fields[n]) for n in ("members", "system")})
        )
    for state in reader.durables(study.id):
        fields = {name: getattr(state, name) for name in Checkpoint.model_fields}
        durables[state.trial].append(Checkpoint(**fields))
    rows = reader.trials(study.id)
    updates = LedgerUpdates(reader, study.id).read_written()
    attributes, (user_attrs, system_attrs) = merged(updates), study_attributes(updates)
    by_objective = spec_from_json(study.spec_json).space is None
    return Archive(
        penstock_version=version("penstock"),
        exported_at=time.time(),
        status=study.status,
        message=study.message,
        created_at=study.created_at,
        finished_at=study.finished_at,
        spec=_without_addresses(json.loads(study.spec_json)),
        trials=[
            _trial(
                row, attributes.get(row.number, {}), epochs[row.id], durables[row.id], by_objective
            )
            for row in rows
        ],
        user_attrs=user_attrs,
        system_attrs=system_attrs,
        spent=SpentBody(**asdict(study.spent) | {"reached": list(study.spent.reached)}),
    )


def _without_addresses(spec: dict[str, Any]) -> dict[str, Any]:
    """Return ``spec`` without the addresses of notices and calls, which may hold users' secrets."""
    return {name: value for name, value in spec.items() if name not in _TOLD}


def read_archive(file: Path) -> Archive:
    """Return the study in an exported file.

    Raises UsageError if the file is not an export or has a format that this version cannot read.
    """
    return read_own(file, KIND, Archive)


def to_event(archive: Archive) -> StudyImported:
    """Return the event that imports the study of an archive.

    Raises UsageError if the study is malformed or has more than ``MAX_EPOCHS`` epochs.
    """
    epochs = sum(len(trial.epochs) for trial in archive.trials)
    if epochs > MAX_EPOCHS:
        raise UsageError.refuse(
            "epochs",
            epochs,
            f"up to {MAX_EPOCHS} in all, so that the scheduler is not busy for too long",
        )
    spec = spec_from_json(json.dumps(_without_addresses(archive.spec)))
    archived, spent = archive.spent, NOTHING_SPENT
    if archived is not None:
        spent = Spent(
            archived.device_seconds, archived.joules, archived.money, tuple(archived.reached)
        )
    times = archive.created_at, archive.finished_at
    record = StudyRecord(spec, archive.status, *times, archive.message, spent)
    trials = tuple(_past(spec.id, trial) for trial in archive.trials)
    return StudyImported(
        at=archive.exported_at,
        record=record,
        trials=trials,
        user_attrs=tuple(archive.user_attrs.items()),
        system_attrs=tuple(archive.system_attrs.items()),
    )


def _trial(
    row: TrialRow,
    written: dict[str, list[Any]],
    epochs: list[Epoch],
    durables: list[Checkpoint],
    by_objective: bool,
) -> TrialBody:
    failure = None
    if row.failure_kind is not None:
        failure = TrialFailure(
            kind=row.failure_kind,
            message=row.failure_message or "",
            traceback=row.failure_traceback or "",
        )
    copied_fields = ("number", "params", "epoch", "target", "value")
    times = ("created_at", "dispatched_at", "finished_at")
    return TrialBody(
        **{name: getattr(row, name) for name in (*copied_fields, *times)},
        further=list(row.further),
        constraints=dict(row.constraints),
        state=TrialState(row.state),
        drawn={n: text for n, text, _ in written.get("suggestions", ())} if by_objective else {},
        written=json.dumps(written) if written else "",
        members=[(row.device, row.slot)] if row.device else [],
        failure=failure,
        epochs=epochs,
        checkpoints=durables,
        origin=_origin(row),
    )


def _origin(row: TrialRow) -> TrialOrigin | None:
    if row.origin_trial is None or row.origin_epoch is None or row.replaces is None:
        return None
    return TrialOrigin(
        trial=number_of(row.origin_trial),
        epoch=row.origin_epoch,
        replaces=number_of(row.replaces) if row.replaces else None,
        keys=row.origin_keys,
    )


def _past(study: str, trial: TrialBody) -> FinishedTrial:
    return FinishedTrial(
        number=trial.number,
        state=trial.state,
        params=tuple(trial.params.items()),
        epoch=trial.epoch,
        target=trial.target,
        value=trial.value,
        members=_members(trial.members),
        created_at=trial.created_at,
        finished_at=trial.finished_at,
        dispatched_at=trial.dispatched_at,
        failure=None if trial.failure is None else Failure(**dict(trial.failure)),
        drawn=tuple(trial.drawn.items()),
        written=trial.written,
        further=tuple(trial.further),
        constraints=tuple(trial.constraints.items()),
        epochs=tuple(
            AcceptedEpoch(
                trial=trial_id(study, trial.number),
                **dict(epoch)
                | {
                    "metrics": tuple(epoch.metrics.items()),
                    "members": _members(epoch.members),
                    "system": tuple(epoch.system),
                },
            )
            for epoch in trial.epochs
        ),
        durables=tuple(
            (Parent(state.epoch, state.uri, state.state_hash), state.at)
            for state in trial.checkpoints
        ),
        origin=_origin_of(study, trial.origin),
    )


def _origin_of(study: str, origin: TrialOrigin | None) -> Origin | None:
    if origin is None:
        return None
    replaced = "" if origin.replaces is None else trial_id(study, origin.replaces)
    return Origin(trial_id(study, origin.trial), origin.epoch, replaced, origin.keys)


def _members(members: list[tuple[str, int]]) -> tuple[Member, ...]:
    return tuple(Member(device, slot) for device, slot in members)
