"""Read a finished study from the ledger's tables, in the form that the engine needs.

The engine forgets a study that has ended. The event ``StudyExtended``, with which a study gets more
trials, brings the study back. The event needs the data for the study's sampler, for its strategy
and for trials that may still be promoted. All other readers use the module ``reader``.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Row, select

from ...base.errors import UsageError
from ...scheduler.model.decisions import Member, Parent
from ...scheduler.model.events import Proposed
from ...scheduler.model.finished import FinishedStudy, PastTrial
from ...scheduler.model.study import Metrics, StudyRecord, StudySpec
from ...scheduler.model.trial import Failure, Origin, TrialState
from ..extensions import of_ends
from . import codec
from .databases.digests import EVENTS
from .databases.tables import DURABLE, EPOCH, EVENT, STUDY, TRIAL
from .event_log import imports, of_kind
from .history import Rows
from .rows import spent_of


def read_past(rows: Rows, study: str) -> tuple[StudyRecord, FinishedStudy]:
    """Return the record and the trials of the finished study with the id ``study``.

    Raises UsageError for an imported study, whose checkpoints are in the store of another
    installation.
    """
    [head] = rows(STUDY, select(STUDY).where(STUDY.c.id == study))
    if imports(rows, study):
        raise UsageError(f"{head.name} was imported: it is over and stays so")
    of_study = TRIAL.c.study == study
    epochs, parents = defaultdict[str, list[Row[Any]]](list), defaultdict[str, list[Parent]](list)
    epochs_query = select(EPOCH).join(TRIAL).where(of_study).order_by(EPOCH.c.epoch)
    for row in rows(EPOCH, epochs_query):
        epochs[row.trial].append(row)
    durable = select(DURABLE).join(TRIAL).where(of_study).order_by(DURABLE.c.epoch.desc())
    for row in rows(DURABLE, durable):
        parents[row.trial].append(Parent(row.epoch, row.uri, row.state_hash))
    notes: list[str] = []
    for row in rows(EVENT, EVENTS.where(of_kind(Proposed)).order_by(EVENT.c.seq)):
        if row.study != study:
            continue
        event = codec.decode(row.kind, row.body)
        assert isinstance(event, Proposed)
        notes += event.notes or [""] * len(event.trials)
    spec = codec.spec_from_json(head.spec)
    reported = wants_reports(spec)
    trials = rows(TRIAL, select(TRIAL).where(of_study).order_by(TRIAL.c.number))
    spent = spent_of(head.spent)
    past = FinishedStudy(
        created_at=head.created_at,
        trials=tuple(
            replace(
                past_trial(row, epochs[row.id], parents[row.id], reported=reported),
                notes=notes[row.number] if row.number < len(notes) else "",
            )
            for row in trials
        ),
        spent=spent,
    )
    times = head.created_at, head.finished_at
    return StudyRecord(spec, head.status, *times, head.message, spent), past


def wants_reports(spec: StudySpec) -> bool:
    """Return True if an extension needs all epochs' reports when the study's trials are resumed."""
    return any(wants(spec) for wants in of_ends("ledger", "wants_reports"))


def past_trial(
    row: Row[Any], epochs: Sequence[Row[Any]], parents: Sequence[Parent], *, reported: bool
) -> PastTrial:
    """Return a trial of a finished study, given the trial's ``row``.

    ``epochs`` contains the rows of the trial's epochs, and ``parents`` contains the trial's durable
    states. With ``reported`` the trial includes all metrics of its epochs.
    """
    failure = None
    if row.failure_kind is not None:
        failure = Failure(row.failure_kind, row.failure_message, row.failure_traceback or "")
    last = epochs[-1] if epochs else None
    origin = None
    if row.origin_trial is not None:
        origin = Origin(row.origin_trial, row.origin_epoch, row.replaces, row.origin_keys)
    return PastTrial(
        id=row.id,
        study=row.study,
        number=row.number,
        params=tuple(json.loads(row.params).items()),
        created_at=row.created_at,
        state=TrialState(row.state),
        target=row.target,
        epoch=row.epoch,
        value=row.value,
        signature=last.signature if last else "",
        members=tuple(Member(device, slot) for device, slot in json.loads(row.members)),
        failure=failure,
        finished_at=row.finished_at,
        further=tuple(json.loads(row.further)),
        constraints=tuple(json.loads(row.constraints).items()),
        system=tuple((name, value) for name, value in json.loads(row.system)),
        parents=tuple(parents),
        origin=origin,
        values={each.epoch: _value(each.value) for each in epochs},
        hashes={each.epoch: each.state_hash for each in epochs},
        reports={each.epoch: _metrics(each) for each in epochs if reported},
        taken={each.epoch: each.taken_from for each in epochs if each.taken_from},
    )


def _metrics(row: Row[Any]) -> Metrics:
    return tuple(json.loads(row.metrics).items())


def _value(stored: float | None) -> float:
    return math.nan if stored is None else stored
