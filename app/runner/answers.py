"""Turn the answers of samplers, models, users' policies and the history into events.

None of these is part of the engine, so a replay needs none: their answers are in the ledger.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from ...profiling.base.errors import UsageError
from ...scheduler.model.decisions import Ask, AskConfigs, AskPlan
from ...scheduler.model.events import (
    Advised,
    ConfigsProposed,
    Event,
    Planned,
    PolicyFailed,
    Proposed,
    StudyFailed,
)
from ...scheduler.model.trial import Trial
from ...scheduler.state.state import EngineState
from ..common.ports import Answer, Policies, Samplers
from ..common.text import instead
from .advisor import Advisor

log = logging.getLogger(__name__)


def proposal(samplers: Samplers, ask: Ask, state: EngineState, at: float) -> Event | None:
    """The sampler's answer. None if the study is over. A sampler that raises ends its study."""
    study = state.studies.get(ask.study)
    if study is None:
        return None
    trials = trials_of(state, ask.study)
    try:
        if ask.fork is None:
            answer = samplers.ask(study.spec, ask.index, ask.n, trials, ask.enqueued)
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


def plans(policies: Policies, ask: AskPlan, at: float) -> Event:
    """The plans of a user's policy, or the event that it gave none."""
    try:
        found = policies.plan(ask.policy, [each for _, each in ask.snapshots])
    except UsageError as error:
        log.warning("policy %s %s: %s", ask.policy, error, instead())
        return PolicyFailed(at=at, cause=ask.id, reason=str(error), policy=ask.policy)
    return Planned(at=at, cause=ask.id, plans=found)


def advice(advisor: Advisor, at: float) -> Iterator[Event]:
    """The history's answers since the last call."""
    for each in advisor.answers():
        yield Advised(
            at=at, cause=each.consult, workload=each.workload, config=each.config, why=each.why
        )


def configs(ask: AskConfigs, at: float) -> Event:
    """Configurations to try; () if the model raises. The study then goes on without new ones."""
    from ..optuna_bridge.system_sampler import (
        propose,  # here, since it brings Optuna and few studies ask
    )

    try:
        found = propose(ask)
    except Exception:  # anything Optuna may raise: system parameters never end a study
        log.exception("no configurations were proposed for workload %s", ask.workload)
        found = ()
    return ConfigsProposed(at=at, cause=ask.id, workload=ask.workload, configs=found)


def trials_of(state: EngineState, study: str) -> list[Trial]:
    """A study's trials by number, as samplers see them."""
    return [state.trials[name] for name in state.studies[study].trials]
