"""Reads the trials of finished studies whose epochs a new study may take over."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable

from sqlalchemy import select

from ...app.ledger import codec
from ...app.ledger.databases.tables import DURABLE, EPOCH, STUDY, TRIAL
from ...app.ledger.event_log import imports
from ...app.ledger.finished import past_trial
from ...app.ledger.history import Rows
from ...scheduler.model.decisions import Parent
from ...scheduler.model.finished import EarlierTrial, PastTrial
from ...scheduler.model.study import OVER, StudySpec
from .between import earlier_trial, group_of
from .chain import has_prefixes

#: Number of earlier trials after which no further study is added, because all of them are in the
#: event that starts the new study.
MOST_EARLIER = 1_000

#: Function of a study's specification: True if, when the study is reopened, its trials are read
#: with the metrics of their earlier epochs.
wants_reports = has_prefixes


def earlier(rows: Rows, spec: StudySpec) -> tuple[EarlierTrial, ...]:
    """Return the trials of finished studies whose epochs a study of ``spec`` may take over.

    They must have durable states. Trials of imported studies are left out, since their states are
    in another installation's store. The studies that ended last come first. Once there are
    ``MOST_EARLIER`` trials, no further study is added.
    """
    group = group_of(spec)
    if not group:
        return ()
    past_trials = list[EarlierTrial]()
    imported = {event.record.spec.id for _, event in imports(rows)}
    token = json.dumps(spec.data_token, ensure_ascii=False)
    # Search the text first, since it takes long to decode each study that ever ended.
    selection = STUDY.c.status.in_(OVER) & STUDY.c.spec.contains(token, autoescape=True)
    for head in rows(STUDY, select(STUDY).where(selection).order_by(STUDY.c.finished_at.desc())):
        if len(past_trials) >= MOST_EARLIER:
            break
        past_spec = codec.spec_from_json(head.spec)
        if head.id in {spec.id} | imported or group_of(past_spec) != group:
            continue
        states = select(DURABLE).join(TRIAL).where(TRIAL.c.study == head.id)
        parents = defaultdict[str, list[Parent]](list)
        for row in rows(DURABLE, states.order_by(DURABLE.c.epoch.desc())):
            parents[row.trial].append(Parent(row.epoch, row.uri, row.state_hash))
        whole = TRIAL.c.id.in_(list(parents)) & TRIAL.c.origin_trial.is_(None)
        for row in rows(TRIAL, select(TRIAL).where(whole)):
            last = parents[row.id][0].epoch
            of_trial = select(EPOCH).where(EPOCH.c.trial == row.id, EPOCH.c.epoch <= last)
            epochs = rows(EPOCH, of_trial.order_by(EPOCH.c.epoch))
            trial = past_trial(row, epochs, parents[row.id], reported=True)
            trial.trained_with = trial.system
            past_trials.append(earlier_trial(past_spec, trial, trial))
    return tuple(past_trials)


def earlier_among(
    spec: StudySpec, over: Iterable[tuple[StudySpec, Iterable[PastTrial]]]
) -> list[EarlierTrial]:
    """Return the same trials as ``earlier``, from the given finished studies."""
    if not (group := group_of(spec)):
        return []
    return [
        earlier_trial(past_spec, trial, trial)
        for past_spec, trials in over
        if past_spec.id != spec.id and group_of(past_spec) == group
        for trial in trials
        if trial.parents and trial.origin is None
    ]
