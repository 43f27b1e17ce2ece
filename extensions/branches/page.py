"""The form on a trial's page that branches the trial: its fields, the cost, and its actions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup

from ...app.broker.client import Client
from ...app.ledger.codec import spec_from_json
from ...app.server.services.services import scheduler_answers
from ...app.show.drawings.page import filled
from ...app.spec.entered import Fields, value, whole
from ...app.spec.space import parameter
from ...base.errors import PenstockError, UsageError
from ...scheduler.model.decisions import Parent
from ...scheduler.model.study import trial_id
from ...scheduler.state.state import StudyState
from ...scheduler.strategies.full import FullBudget
from . import control
from .checks import MOST, last_epoch, refusal
from .costs import cost_of, cost_words, start_words
from .values import check, check_differs, values_of

if TYPE_CHECKING:
    from ...app.host.settings import Settings
    from ...app.ledger.reader import Reader
    from ...app.ledger.rows import EpochRow, StudyRow, TrialRow
    from ...scheduler.model.trial import Trial

#: The prefix of the names of fields that hold values of parameters.
_PARAM = "param."
#: Seconds to wait for the scheduler's answer.
_PATIENCE = 5.0


class _Known(NamedTuple):
    """A trial read from the ledger, in the form that the checks need."""

    study: StudyState
    trial: Trial
    epochs: list[EpochRow]
    #: The epochs after which the trial's state is in the store.
    kept: frozenset[int]


class _Asked(NamedTuple):
    """The values that a user entered in the form."""

    study: StudyRow
    number: int
    at: int
    to: int | None
    copies: int
    outside: bool
    #: The parameters whose values differ from the trial's.
    params: dict[str, Any]


def trial_form(reader: Reader, study: StudyRow, trial: TrialRow) -> Markup:
    """Return the form, or the reason why the trial cannot be branched.

    Returns nothing before the trial's first epoch.
    """
    begin = trial.origin_epoch or 0
    if trial.epoch <= begin:
        return Markup()
    facts = _known(reader, study, trial)
    obstacle = ""
    if not any(_possible(facts, epoch) for epoch in range(trial.epoch, begin, -1)):
        obstacle = refusal(facts.study, facts.trial, trial.epoch, trial.epoch + 1, 1)
    params = dict(trial.params)
    fields = [
        (name, _PARAM + name, parameter(text), params.get(name))
        for name, text in facts.study.spec.space or ()
    ]
    return filled(
        "branches/form.html",
        study=study,
        trial=trial,
        begin=begin,
        fields=fields,
        last=last_epoch(facts.study),
        most=MOST,
        refused=obstacle,
    )


def made_by(settings: Settings, reader: Reader, fields: Fields) -> str:
    """Make the branches that a form asks for; return a sentence about them.

    Raises as ``control.branch`` does.
    """
    from ...app.client.study.control import client_of

    request = _asked(reader, fields)
    numbers = control.branch(
        client_of(settings),
        request.study.id,
        request.number,
        request.at,
        request.params,
        to=request.to,
        copies=request.copies,
        outside=request.outside,
        why=fields.get("reason", ""),
    )
    return control.made(request.study, request.number, request.at, numbers)


def cost_by(settings: Settings, reader: Reader, fields: Fields) -> str:
    """Return words for the cost of a form's branches. Raises UsageError as ``made_by`` would."""
    request = _asked(reader, fields)
    rows = reader.trials_of([trial_id(request.study.id, request.number)])
    if not rows:
        raise UsageError(f"{request.study.name} has no trial {request.number}")
    facts = _known(reader, request.study, rows[0])
    to = request.to or last_epoch(facts.study)
    check(facts.study, facts.trial, request.at, to, request.copies)
    parent_params = facts.trial.params
    values = values_of(facts.study.spec, parent_params, request.params, outside=request.outside)
    check_differs(values, request.number, request.copies)
    own = [each.seconds for each in facts.epochs if not each.taken_from]
    cost = cost_of(
        request.at, to, request.copies, begin=facts.trial.begin, kept=facts.kept, seconds=own
    )
    return f"{cost_words(cost)} {_start(settings, request)}"


def _start(settings: Settings, request: _Asked) -> str:
    if request.study.status == "paused":
        return f"It begins once {request.study.name} is resumed."
    if not scheduler_answers(settings):
        return "No scheduler is running: this starts one."
    try:
        return start_words(Client(settings, timeout=_PATIENCE).plan(), request.copies)
    except PenstockError as error:
        return f"When it begins is not known: {error}"


def _asked(reader: Reader, fields: Fields) -> _Asked:
    study, number = reader.study(fields.get("study", "")), whole(fields, "n")
    rows = reader.trials_of([trial_id(study.id, number)])
    before = rows[0].params if rows else {}
    params = dict[str, Any]()
    for name, text in spec_from_json(study.spec_json).space or ():
        if typed := fields.get(_PARAM + name, ""):
            entered = value(name, typed, parameter(text))
            if name not in before or entered != before[name]:
                params[name] = entered
    return _Asked(
        study,
        number,
        at=whole(fields, "at"),
        to=whole(fields, "to") if fields.get("to") else None,
        copies=whole(fields, "copies"),
        outside="outside" in fields,
        params=params,
    )


def _known(reader: Reader, study: StudyRow, row: TrialRow) -> _Known:
    epochs = reader.epochs_of(row.id)
    hashes = {each.epoch: each.state_hash for each in epochs}
    checkpoints = reader.durables(study.id, hashes.values())
    states = [each for each in checkpoints if hashes.get(each.epoch) == each.state_hash]
    own = tuple(Parent(s.epoch, s.uri, s.state_hash) for s in states if s.trial == row.id)
    trial = replace(row.record(), parents=own, hashes=hashes)
    spec = spec_from_json(study.spec_json)
    state = StudyState(spec, FullBudget(0, 0), study.created_at)
    return _Known(state, trial, epochs, frozenset(each.epoch for each in states))


def _possible(facts: _Known, epoch: int) -> bool:
    return not refusal(facts.study, facts.trial, epoch, epoch + 1, 1)


#: Functions by the form's field ``action``: they make the branches, or return their cost in words.
ACTIONS = {"branch": made_by, "branch-cost": cost_by}
