"""Turn the answers of samplers and of users' policies into events for the engine.

Samplers and users' policies are not part of the engine, which only sees their answers as events.
The ledger keeps these events, so a replay of the ledger calls neither samplers nor policies.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from ....base.errors import UsageError
from ....base.wording import worded
from ....scheduler.model.decisions import Ask, AskPlan
from ....scheduler.model.events import (
    Event,
    Planned,
    PolicyFailed,
    Proposed,
    StudyFailed,
    Suggested,
)
from ....scheduler.model.study import Params, Scalar, StudySpec, number_of
from ....scheduler.model.trial import Trial
from ....scheduler.state.configurations import as_sampled, new_configurations
from ....scheduler.state.state import EngineState
from ...common.ports import Answer, Policies, Samplers
from ...common.text import instead
from ...spec.conditions import is_active
from ...spec.space import check_params
from .reports import Question

log = logging.getLogger(__name__)


def proposal(samplers: Samplers, ask: Ask, state: EngineState, at: float) -> Event | None:
    """Return the event with the configurations that the sampler proposes for ``ask``.

    The event is ``StudyFailed`` if the sampler raises. Returns None if the study is over.

    ``at`` is the time of the event.
    """
    study = state.studies.get(ask.study)
    if study is None:
        return None
    trials = trials_of(state, ask.study)
    size = study.spec.replicates
    resampled = [number_of(name) // size for name in ask.resampled]
    try:
        if ask.fork is None:
            sampled = as_sampled(study.spec, trials)
            new = len(resampled) or new_configurations(study.spec, len(trials), ask.n)
            if resampled:
                sampled = [trial for trial in sampled if trial.number not in resampled]
            answer = samplers.ask(
                study.spec, ask.index, new, sampled, ask.enqueued, resampled=resampled
            )
        else:
            source = state.trials[ask.fork.source].params
            answer = Answer((samplers.explore(study.spec, len(trials), source),), False)
    except Exception as error:  # a sampler may raise anything, and the study cannot go on then
        log.exception("the sampler of %s raised", ask.study)
        reason = f"the sampler {study.spec.sampler} raised {error!r}"
        return StudyFailed(at=at, cause=ask.id, study=ask.study, reason=reason)
    return Proposed(
        at=at,
        cause=ask.id,
        study=ask.study,
        index=ask.index,
        trials=answer.trials,
        exhausted=answer.exhausted,
        notes=answer.notes,
    )


#: The event that follows from an answer (None if there is none), and the reply to a waiting trainer
#: (None if no trainer waits). The reply is a key on the broker and a text for the key.
Outcome = tuple[Event | None, tuple[str, str] | None]


def suggestion(samplers: Samplers, asked: Question, state: EngineState, at: float) -> Outcome:
    """Draw one parameter's value for a running objective, and return the event and the reply.

    If the sampler raises, the reply holds the error and there is no event. The trial's objective
    then fails, because it asked for a range that the sampler cannot draw from. The scheduler's loop
    goes on.
    """
    trial = state.trials[asked.trial]
    spec, trials = state.studies[trial.study].spec, trials_of(state, trial.study)
    try:
        value = samplers.suggest(spec, trial, asked.name, asked.distribution, trials)
    except Exception as error:  # anything Optuna may raise for an impossible range
        log.warning("no value for %s of %s: %r", asked.name, trial.id, error)
        return no_answer(spec, asked, str(error), at)
    return _suggested(asked, value, at)


def outcome(
    spec: StudySpec, asked: Ask | Question, answer: Mapping[str, Any], at: float
) -> Outcome:
    """Return the event and the reply that follow from the answer of a user's sampler to ``asked``.

    Raises UsageError if the answer does not fit ``asked``.
    """
    try:
        if isinstance(asked, Question):
            space = ((asked.name, asked.distribution),)
            [(_, value)] = check_params(space, {asked.name: answer["value"]})
            return _suggested(asked, value, at)
        configurations, stopped = list(answer["drawn"]), bool(answer["stopped"])
        if len(configurations) > asked.n or (len(configurations) < asked.n and not stopped):
            raise UsageError(
                f"drew {len(configurations)} configurations, where {asked.n} were asked for"
            )
        trials = tuple(_whole(spec, each["params"]) for each in configurations)
        notes = tuple(
            json.dumps(each["notes"], sort_keys=True) if each["notes"] else ""
            for each in configurations
        )
    except (LookupError, TypeError, ValueError) as error:
        raise UsageError(f"gave an invalid answer: {worded(error)}") from error
    event = Proposed(
        at=at,
        cause=asked.id,
        study=spec.id,
        index=asked.index,
        trials=trials,
        exhausted=stopped,
        notes=notes,
    )
    return event, None


def no_answer(spec: StudySpec, asked: Ask | Question, why: str, at: float) -> Outcome:
    """Return the outcome for a question that a user's sampler failed to answer.

    If ``asked`` is a request for configurations, its study fails. If ``asked`` is a question for
    one parameter, only the trial that waits for the value fails. ``why`` is the reason that the
    user sees.
    """
    if isinstance(asked, Question):
        return None, (asked.reply, json.dumps({"error": why}))
    return StudyFailed(at=at, cause=asked.id, study=spec.id, reason=why), None


def _whole(spec: StudySpec, params: Mapping[str, Any]) -> Params:
    """Return ``params`` as a configuration, after a check against the study's space and conditions.

    Raises UsageError if an active parameter is missing or a value lies outside the space.
    """
    configuration = check_params(spec.space, params, spec.conditions)
    values = dict(configuration)
    for name, _ in spec.space or ():
        if name not in values and is_active(name, spec.conditions, values):
            raise UsageError(f"drew no {name}")
    return configuration


def _suggested(asked: Question, value: Scalar, at: float) -> Outcome:
    name, text = asked.name, asked.distribution
    event = Suggested(at=at, trial=asked.trial, name=name, value=value, distribution=text)
    return event, (asked.reply, json.dumps({"value": value}))


def plans(policies: Policies, ask: AskPlan, at: float) -> Event:
    """Ask a user's policy for plans, and return the event with the plans.

    The event is ``PolicyFailed`` if the policy raises or gives an invalid plan.
    """
    try:
        new_plans = policies.plan(ask.policy, [each for _, each in ask.snapshots])
    except UsageError as error:
        log.warning("policy %s %s: %s", ask.policy, error, instead())
        return PolicyFailed(at=at, cause=ask.id, reason=str(error), policy=ask.policy)
    return Planned(at=at, cause=ask.id, plans=new_plans)


def trials_of(state: EngineState, study: str) -> list[Trial]:
    """Return the trials of a study, sorted by number."""
    return [state.trials[name] for name in state.studies[study].trials]
