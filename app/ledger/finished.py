"""Reads a study that is over back from the ledger's tables, as the engine had it.

When a study ends the engine forgets it. An extension (``StudyExtended``) brings it back with what
its sampler, its strategy and its trials that may still be promoted need. A study with a data token
gets those of whose epochs it may take some over. Other readers use ``reader``.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Row, select

from ...profiling.base.errors import UsageError
from ...scheduler.model.decisions import Member, Parent
from ...scheduler.model.events import Proposed
from ...scheduler.model.finished import EarlierTrial, FinishedStudy
from ...scheduler.model.study import OVER, Metrics, StudyRecord, StudySpec
from ...scheduler.model.trial import Failure, Origin, Trial, TrialState
from ...scheduler.prefixes.between import earlier_trial, group_of
from ...scheduler.prefixes.chain import has_prefixes
from . import codec
from .databases.digests import EVENTS
from .databases.tables import DURABLE, EPOCH, EVENT, STUDY, TRIAL
from .event_log import imports, of_kind
from .history import Rows
from .rows import spent_of

#: So many trials of earlier studies are enough, up to the study that comes to it: they go into the
#: event that begins the later one.
MOST_EARLIER = 1_000


def read_past(rows: Rows, study: str) -> tuple[StudyRecord, FinishedStudy]:
    """The study with this id: its record and its trials.

    Raises UsageError for an imported study, whose checkpoints are in another installation's store.
    """
    [head] = rows(STUDY, select(STUDY).where(STUDY.c.id == study))
    if imports(rows, study):
        raise UsageError(f"{head.name} was imported: it is over and stays so")
    of_study = TRIAL.c.study == study
    epochs, parents = defaultdict[str, list[Row[Any]]](list), defaultdict[str, list[Parent]](list)
    known = select(EPOCH).join(TRIAL).where(of_study).order_by(EPOCH.c.epoch)
    for row in rows(EPOCH, known):
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
    merges = has_prefixes(spec)
    trials = rows(TRIAL, select(TRIAL).where(of_study).order_by(TRIAL.c.number))
    spent = spent_of(head.spent)
    past = FinishedStudy(
        created_at=head.created_at,
        trials=tuple(
            replace(
                _trial(row, epochs[row.id], parents[row.id], merges=merges),
                notes=notes[row.number] if row.number < len(notes) else "",
            )
            for row in trials
        ),
        spent=spent,
    )
    times = head.created_at, head.finished_at
    return StudyRecord(spec, head.status, *times, head.message, spent), past


def read_earlier(rows: Rows, spec: StudySpec) -> tuple[EarlierTrial, ...]:
    """The trials with durable states of studies that are over, with which ``spec`` shares epochs.

    Those of imported studies have their states in another installation's store, and are left out.
    The studies that ended last come first; once there are ``MOST_EARLIER`` trials, no more come.
    """
    group = group_of(spec)
    if not group:
        return ()
    found = list[EarlierTrial]()
    imported = {event.record.spec.id for _, event in imports(rows)}
    token = json.dumps(spec.data_token, ensure_ascii=False)
    # The text is looked at first: to decode each study that ever ended takes long.
    named = STUDY.c.status.in_(OVER) & STUDY.c.spec.contains(token, autoescape=True)
    for head in rows(STUDY, select(STUDY).where(named).order_by(STUDY.c.finished_at.desc())):
        if len(found) >= MOST_EARLIER:
            break
        known = codec.spec_from_json(head.spec)
        if head.id in {spec.id} | imported or group_of(known) != group:
            continue
        states = select(DURABLE).join(TRIAL).where(TRIAL.c.study == head.id)
        parents = defaultdict[str, list[Parent]](list)
        for row in rows(DURABLE, states.order_by(DURABLE.c.epoch.desc())):
            parents[row.trial].append(Parent(row.epoch, row.uri, row.state_hash))
        for row in rows(TRIAL, select(TRIAL).where(TRIAL.c.id.in_(list(parents)))):
            last = parents[row.id][0].epoch
            of_trial = select(EPOCH).where(EPOCH.c.trial == row.id, EPOCH.c.epoch <= last)
            epochs = rows(EPOCH, of_trial.order_by(EPOCH.c.epoch))
            trial = _trial(row, epochs, parents[row.id], merges=True)
            trial.trained_with = trial.system
            found.append(earlier_trial(known, trial))
    return tuple(found)


def _trial(
    row: Row[Any], epochs: Sequence[Row[Any]], parents: Sequence[Parent], *, merges: bool
) -> Trial:
    """``merges``: other trials may take its epochs over, so what was reported of them is read."""
    failure = None
    if row.failure_kind is not None:
        failure = Failure(row.failure_kind, row.failure_message, row.failure_traceback or "")
    last = epochs[-1] if epochs else None
    origin = None
    if row.origin_trial is not None:
        origin = Origin(row.origin_trial, row.origin_epoch, row.replaces)
    return Trial(
        id=row.id,
        study=row.study,
        number=row.number,
        params=tuple(json.loads(row.params).items()),
        created_at=row.created_at,
        state=TrialState(row.state),
        target=row.target,
        epoch=row.epoch,
        value=row.value,
        state_hash=last.state_hash if last else "",
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
        reports={each.epoch: _metrics(each) for each in epochs if merges},
        taken={each.epoch: each.taken_from for each in epochs if each.taken_from},
    )


def _metrics(row: Row[Any]) -> Metrics:
    return tuple(json.loads(row.metrics).items())


def _value(stored: float | None) -> float:
    return math.nan if stored is None else stored
