"""Turn the answers of samplers and users' policies into events.

Samplers and policies are not part of the engine, so a replay needs none of them: their answers are
in the ledger.
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
    """Return the event with the sampler's answer; None if the study is over.

    A sampler that raises ends its study.
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
    except Exception as error:  # anything a sampler may raise; without one no study goes on
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


#: An event that follows from an answer, and the (key, text) to send to a waiting trainer.
Outcome = tuple[Event | None, tuple[str, str] | None]


def suggestion(samplers: Samplers, asked: Question, state: EngineState, at: float) -> Outcome:
    """Draw a parameter for a running objective, or return the error to send to its trial.

    The objective's author is responsible for an impossible request: the trial fails, and the loop
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
    """Return the outcome of the answer of a user's sampler.

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
    """Return the outcome if a sampler gave no answer: the study or the waiting trial fails.

    ``why`` is the reason that the user sees.
    """
    if isinstance(asked, Question):
        return None, (asked.reply, json.dumps({"error": why}))
    return StudyFailed(at=at, cause=asked.id, study=spec.id, reason=why), None


def _whole(spec: StudySpec, params: Mapping[str, Any]) -> Params:
    """Return ``params`` as a configuration; raise UsageError if an active parameter is missing."""
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
    """Return the event with the plans of a user's policy, or the event that it failed."""
    try:
        new_plans = policies.plan(ask.policy, [each for _, each in ask.snapshots])
    except UsageError as error:
        log.warning("policy %s %s: %s", ask.policy, error, instead())
        return PolicyFailed(at=at, cause=ask.id, reason=str(error), policy=ask.policy)
    return Planned(at=at, cause=ask.id, plans=new_plans)


def trials_of(state: EngineState, study: str) -> list[Trial]:
    """Return a study's trials by number, as samplers see them."""
    return [state.trials[name] for name in state.studies[study].trials]
