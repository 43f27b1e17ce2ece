"""Turn clients' commands into events, checked against the engine's state before anything happens.

A sealed command can still be wrong, for example if its client has another version than this
scheduler. All of it is checked here, because a recorded event is handled again at every start: one
that cannot be handled would keep the scheduler down forever.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from ...profiling.base.errors import PenstockError, UsageError
from ...scheduler.engine.engine import Engine
from ...scheduler.model.events import (
    CallbacksCalled,
    DevicesGivenBack,
    DevicesTakenOut,
    Event,
    StudyCancelled,
    StudyClosed,
    StudyExtended,
    StudyImported,
    StudyPaused,
    StudyResumed,
    StudySubmitted,
    StudyWeighed,
    TrialEnqueued,
)
from ...scheduler.model.study import (
    CONTRACTS,
    DELETED,
    EXACTNESS,
    FUSE,
    ON_SIGNATURE_CHANGE,
    SEEDING,
    StrategySpec,
    StudySpec,
    forks,
)
from ...scheduler.model.trial import TrialState
from ...scheduler.outlook.drain_choice import MAX_WITHIN, choose_devices, drainable
from ...scheduler.state.state import EngineState, StudyState
from ...scheduler.strategies.registry import make_strategy
from ...tasks.contracts.by_value import is_by_value
from ...tasks.process.messages import Forged
from ..broker.protocol import REPLY, reply_name
from ..common.validation import finite, one_of, whole
from ..extensions import check_extended, of_ends
from ..ledger.codec import decode, spec_from_json
from ..optuna_bridge.plain_attributes import only_listed
from ..spec.amounts import check_metered, check_priority, check_weight
from ..spec.build import check_name
from ..spec.contracts import check_replicated
from ..spec.objectives import DIRECTIONS, check_strategy
from ..spec.sampler_options import LOCAL, OWN, SAMPLERS, check_space
from ..spec.space import check_params, grid_size, parameter
from . import user_commands
from .imports import check_imported

KINDS = (
    "submit, cancel, pause, resume, weigh, extend, enqueue, close, hear, import, drain,"
    " undrain, free, remember, add, write, annotate, stop, delete"
)
#: How many names of devices are listed when one is not found.
NAMED = 10


def id_of(body: Mapping[str, Any]) -> str:
    """The id of a command, by which its client is answered. Raises Forged if there is none."""
    name = body.get("id")
    if not isinstance(name, str) or not REPLY.fullmatch(reply_name(name)):
        raise Forged("form", "a command without an id that can be answered")
    return name


def refusal(kind: str, why: str) -> str:
    """The reply to a command that is refused, for an error of the class ``kind``."""
    return json.dumps({"ok": False, "error": why, "type": kind})


def to_event(
    body: Mapping[str, Any], engine: Engine, at: float, past: user_commands.FindPast
) -> Event:
    """The event that a command asks for. UsageError says what is wrong with the command."""
    kind, state = body.get("kind"), engine.state
    try:
        if kind == "submit":
            return _submitted(body, state, at)
        if kind == "import":
            return _imported(body, state, at)
        if kind == "extend":
            return _extended(body, state, at, past)
        if kind in ("drain", "undrain", "free"):
            return _of_devices(body, engine, at)
        if kind in user_commands.KINDS:
            return user_commands.to_event(body, state, at, past)
        return _of_study(body, state, at)
    except PenstockError:
        raise
    except Exception as error:  # a check may raise anything for an unexpected value
        shown = kind if isinstance(kind, str) else type(kind).__name__
        raise UsageError(f"a malformed command of kind {shown!r} is refused: {error!r}") from error


def answer(event: Event, state: EngineState) -> dict[str, Any]:
    """The reply to the command that became ``event``, besides that it was accepted."""
    if isinstance(event, DevicesTakenOut | DevicesGivenBack):
        return {"devices": event.devices}
    if isinstance(event, StudyExtended):
        return {"n_trials": event.study.n_trials}
    return user_commands.answer(event, state)


def _of_devices(body: Mapping[str, Any], engine: Engine, at: float) -> Event:
    state = engine.state
    if body["kind"] == "drain":
        return _drained(body, state, at)
    if body["kind"] == "free":
        return _freed(body, engine, at)
    names = _devices(body["devices"], state.held, "drained device")
    return DevicesGivenBack(at=at, devices=names)


def _drained(body: Mapping[str, Any], state: EngineState, at: float) -> Event:
    names = _devices(body["devices"], state.devices, "device")
    within = body.get("within")
    deadline = None if within is None else at + _seconds(within)
    return DevicesTakenOut(at=at, devices=names, deadline=deadline)


def _freed(body: Mapping[str, Any], engine: Engine, at: float) -> Event:
    limit, within = len(drainable(engine.state)), _seconds(body["within"])
    if not limit:
        raise UsageError("there is no device to free")
    n = whole("N", body["n"], low=1)
    if n > limit:
        raise UsageError.refuse("N", n, f"1 to {limit}, the devices that are not drained yet")
    return DevicesTakenOut(
        at=at, devices=choose_devices(engine, n, at=at, within=within), deadline=at + within
    )


def _seconds(within: Any) -> float:
    allowed = f"0 to {MAX_WITHIN:g} seconds"
    number = finite("within", within, allowed)
    if not 0 <= number <= MAX_WITHIN:
        raise UsageError.refuse("within", within, allowed)
    return number


def _devices(names: Any, known: Collection[str], what: str) -> tuple[str, ...]:
    """The full names of devices that are given by unique prefixes, each once."""
    if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
        raise UsageError.refuse("devices", names, f"the names of {what}s")
    return tuple(dict.fromkeys(_device(name, sorted(known), what) for name in names))


def _device(name: str, known: list[str], what: str) -> str:
    if name in known:
        return name
    meant = [each for each in known if name and each.startswith(name)]
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise UsageError(f"{name!r} may be any of {_listed(meant)}: write more of the name")
    limit = f"there is {_listed(known)}" if known else "there is none"
    raise UsageError(f"there is no {what} {name!r}; {limit}")


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more (penstock devices)" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"


def _submitted(body: Mapping[str, Any], state: EngineState, at: float) -> Event:
    spec = spec_from_json(json.dumps(body.get("study")))
    _check_name(spec, state)
    _check_known(spec)
    if spec.contract == "ask" and not spec.local:
        raise UsageError.refuse("sampler", spec.sampler, f"{LOCAL} where users train")
    limit = [each.device for each in state.devices.values()]
    check_metered(spec.energy_weight, limit)
    for check in of_ends("spec", "check_submitted"):
        check(spec, state, at)
    enqueued = tuple(
        check_params(spec.space, each, spec.conditions) for each in body.get("enqueued", ())
    )
    return StudySubmitted(at=at, study=spec, enqueued=enqueued)


def _extended(
    body: Mapping[str, Any], state: EngineState, at: float, find: user_commands.FindPast
) -> Event:
    """Extend a study: by ``by`` trials, or to a total of ``to``, some of which may exist."""
    name, past = str(body.get("study", "")), None
    if state.finished.get(name) == DELETED:
        raise UsageError(f"there is no study {name}")
    if name in state.finished:
        record, past = find(name)
        spec = record.spec
        if record.status == "failed" and not spec.local:
            raise UsageError(
                f"{spec.name} failed and cannot be extended: correct what `penstock status` says of"
                " it, and submit it under another name"
            )
        waiting = [t for t in past.trials if spec.local and t.state is TrialState.PROPOSED]
        limit = len(past.trials) - len(waiting)
    else:
        spec = _at_work(state, name).spec
        limit = spec.n_trials
    if body.get("spec") is not None:
        spec = _respecified(spec, body["spec"], state)
    if spec.contract == "ask":
        raise UsageError(f"{spec.name} gets its trials from ask(): call ask() for more")
    if forks(spec):
        raise UsageError(f"{spec.name} is a population, whose size stays: make a new study")
    if body.get("to") is None:
        n_trials = limit + whole("by", body.get("by"), low=1)
    else:
        n_trials = whole("to", body["to"], low=1)
    if spec.sampler == "grid" and spec.space is not None:
        size = grid_size(spec.space, spec.conditions) * spec.replicates
        if limit >= size:
            raise UsageError(
                f"all {size // spec.replicates} points of the grid of {spec.name} are taken"
            )
        n_trials = min(n_trials, size)
    if n_trials <= limit:
        raise UsageError.refuse("to", n_trials, f"more than the {limit} trials of {spec.name}")
    extended = replace(spec, n_trials=n_trials)
    check_replicated(extended)
    return StudyExtended(at=at, study=extended, past=past)


def _respecified(known: StudySpec, given: Any, state: EngineState) -> StudySpec:
    """The specification with which a study goes on.

    One that is over takes the present code, command line and folder of its script. A local one
    takes all that the script says now, once the trials of an earlier objective are over.
    """
    spec, at_work = spec_from_json(json.dumps(given)), state.studies.get(known.id)
    if not (known.local and spec.local):
        if at_work is not None:
            return known
        return replace(known, code=spec.code, argv=spec.argv, cwd=spec.cwd)
    if spec.objectives != known.objectives:
        ways = ", ".join(each.direction for each in known.objectives)
        raise UsageError.refuse("directions", [o.direction for o in spec.objectives], ways)
    if at_work is not None and at_work.at_work and spec.code != known.code:
        raise UsageError(f"{known.name} runs trials of another objective: wait for their end")
    _check_known(spec)
    return replace(spec, id=known.id, name=known.name)


def _at_work(state: EngineState, study: str) -> StudyState:
    if study in state.finished:
        raise UsageError(f"study {study} is over already")
    if study not in state.studies:
        raise UsageError(f"there is no study {study}")
    return state.studies[study]


def _imported(body: Mapping[str, Any], state: EngineState, at: float) -> Event:
    event = decode(StudyImported.__name__, body["imported"])
    assert isinstance(event, StudyImported)
    record = event.record
    check_name(record.spec.name)
    if record.spec.id in state.studies or record.spec.id in state.finished:
        raise UsageError(f"study {record.spec.id} exists already")
    _check_name(record.spec, state)
    _check_known(record.spec)
    check_imported(event)
    listed, _ = only_listed(event)
    return replace(listed, at=at)


def _of_study(body: Mapping[str, Any], state: EngineState, at: float) -> Event:
    kind, study = body.get("kind"), str(body.get("study", ""))
    known = _at_work(state, study)
    if kind == "cancel":
        return StudyCancelled(at=at, study=study)
    if kind == "close":
        if known.spec.contract != "ask":
            raise UsageError(f"{known.spec.name} was not made by ask(): cancel it")
        return StudyClosed(at=at, study=study)
    if kind == "hear":
        trials = tuple(map(str, body["trials"]))
        return CallbacksCalled(at=at, study=study, trials=trials, over=bool(body["over"]))
    if kind in ("pause", "resume"):
        if known.spec.contract == "ask":
            raise UsageError(f"nothing of {known.spec.name} runs here: it cannot be paused")
        if known.lacks:
            raise UsageError(f"{known.spec.name} is paused: {'; '.join(known.lacks.values())}")
        if known.runnable == (kind == "resume"):
            raise UsageError(f"{known.spec.name} is {known.status} already")
        return (StudyPaused if kind == "pause" else StudyResumed)(at=at, study=study)
    if kind == "weigh":
        return StudyWeighed(
            at=at,
            study=study,
            weight=check_weight(body["weight"]),
            priority=check_priority(body["priority"]),
        )
    if kind == "enqueue":
        params = check_params(known.spec.space, body["params"], known.spec.conditions)
        return TrialEnqueued(at=at, study=study, params=params)
    raise UsageError.refuse("kind", kind, KINDS)


def _check_name(spec: StudySpec, state: EngineState) -> None:
    taken = {study.spec.name: study.spec.id for study in state.studies.values()}
    taken |= {name: study for study, name in state.finished.items()}
    if taken.get(spec.name, spec.id) != spec.id:
        raise UsageError.refuse("study_name", spec.name, "a name not taken by another study")


def _check_plan(plan: StrategySpec) -> None:
    """Check that rungs rise and end, since the engine counts them."""
    whole("strategy.min_epochs", plan.min_epochs, low=1)
    whole("strategy.eta", plan.eta, low=2)
    if plan.max_epochs is not None:
        whole("strategy.max_epochs", plan.max_epochs, low=1)
    for name in ("quantile", "resample", "risk"):
        finite(f"strategy.{name}", getattr(plan, name), "0 to 1", 0, 1)


def _check_known(spec: StudySpec) -> None:
    """Check that engine and sampler know everything that ``spec`` names."""
    for field, value, known in (
        ("contract", spec.contract, CONTRACTS),
        ("exactness", spec.exactness, EXACTNESS),
        ("on_signature_change", spec.on_signature_change, ON_SIGNATURE_CHANGE),
        ("seeding", spec.seeding, SEEDING),
        ("fuse", spec.fuse, FUSE),
        *(("direction", each.direction, DIRECTIONS) for each in spec.objectives),
        ("sampler", spec.sampler, (*SAMPLERS, LOCAL, OWN)),
    ):
        one_of(field, value, known)
    if spec.hosted and (spec.tools is None or not is_by_value(spec.tools.target)):
        raise UsageError.refuse("tools", spec.tools, "a sampler by value")
    whole("n_trials", spec.n_trials, low=0 if spec.local else 1)
    check_replicated(spec)
    check_weight(spec.weight)
    check_priority(spec.priority)
    check_extended(spec)
    _check_plan(spec.strategy)
    make_strategy(spec)
    if spec.further:
        check_strategy(spec.strategy)
    for name, text in spec.space or ():
        parameter(text, f"space[{name!r}]")
    check_space(spec.sampler, spec.sampler_options, spec.space, spec.conditions)
