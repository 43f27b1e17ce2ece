"""Turn clients' commands into events, after a check of each command against the engine's state.

A command with a valid seal can still be wrong, for example because its client has another version
than the scheduler. Every field is checked here, before an event is made. The reason is that each
start of the scheduler replays the recorded events: one event that the engine cannot handle would
prevent every later start.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cache
from inspect import signature
from typing import Annotated, Any

from pydantic import ConfigDict, Field, validate_call

from ....base.errors import PenstockError, UsageError
from ....base.values import Whole
from ....scheduler.engine.engine import Engine
from ....scheduler.model.events import (
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
from ....scheduler.model.study import (
    CONTRACTS,
    EXACTNESS,
    FUSE,
    ON_SIGNATURE_CHANGE,
    SEEDING,
    StrategySpec,
    StudySpec,
    forks,
)
from ....scheduler.model.trial import TrialState
from ....scheduler.outlook.drain_choice import MAX_WITHIN, choose_devices, drainable
from ....scheduler.state.state import EngineState, StudyState
from ....scheduler.strategies.full import FullBudget
from ....scheduler.strategies.registry import make_strategy
from ....tasks.contracts.by_value import is_by_value
from ....wire.messages import Forged
from ...broker.protocol import REPLY, reply_name
from ...common.schema import why
from ...common.validation import finite, one_of, whole
from ...extensions import check_extended, of_ends
from ...ledger.codec import decode, spec_from_json
from ...spec.amounts import (
    HIGHEST,
    LOWEST,
    MAX_PRIORITY,
    check_metered,
    check_priority,
    check_weight,
)
from ...spec.build import check_name
from ...spec.contracts import check_replicated
from ...spec.objectives import DIRECTIONS, check_strategy
from ...spec.sampler_options import LOCAL, OWN, SAMPLERS, check_space
from ...spec.space import check_params, grid_size, parameter
from ..optuna_bridge.plain_attributes import only_listed
from . import user_commands
from .imports import check_imported
from .user_commands import Context, FindPast

#: Argument types of the command functions below, each with the range that pydantic checks.
Within = Annotated[float, Field(ge=0, le=MAX_WITHIN)]
Weight = Annotated[float, Field(ge=LOWEST, le=HIGHEST)]
Priority = Annotated[int, Field(ge=-MAX_PRIORITY, le=MAX_PRIORITY)]
#: The largest number of device names that an error message lists.
NAMED = 10


def id_of(body: Mapping[str, Any]) -> str:
    """Return the id of a command. The reply is sent to a key that the id names.

    Raises Forged if the command has no id, or an id that is not allowed in such a key.
    """
    name = body.get("id")
    if not isinstance(name, str) or not REPLY.fullmatch(reply_name(name)):
        raise Forged("form", "a command without an id that can be answered")
    return name


def refusal(kind: str, why: str) -> str:
    """Return the reply to a refused command, as JSON text.

    ``kind`` is the name of the error class that the client raises, and ``why`` is the error's
    message.
    """
    return json.dumps({"ok": False, "error": why, "type": kind})


def to_event(body: Mapping[str, Any], engine: Engine, at: float, past: FindPast) -> Event:
    """Return the event that a command asks for.

    ``at`` is the time of the event, and ``past`` reads a study that is over from the ledger. Raises
    UsageError if the command is wrong.
    """
    kind = body.get("kind")
    if not isinstance(kind, str) or kind not in all_commands():
        raise UsageError.refuse("kind", kind, ", ".join(all_commands()))
    read, names = _checked(kind)
    fields = {name: body[name] for name in names if name in body}
    try:
        return read(Context(engine, at, past), **fields)
    except PenstockError:
        raise
    except Exception as error:  # a check may raise anything for an unexpected value
        raise UsageError(f"a command of kind {kind!r} is refused: {why(error)}") from error


@cache
def _checked(kind: str) -> tuple[Callable[..., Event], list[str]]:
    """Return a command's function, wrapped by pydantic's argument checks, and its field names."""
    function = all_commands()[kind]
    config = ConfigDict(strict=True, arbitrary_types_allowed=True)
    return validate_call(config=config)(function), list(signature(function).parameters)[1:]


def answer(event: Event, state: EngineState) -> dict[str, Any]:
    """Return the fields of the reply to a command, except for the field ``ok``.

    ``event`` is the event that the command became, and ``state`` is the engine's state after the
    event.
    """
    if isinstance(event, DevicesTakenOut | DevicesGivenBack):
        return {"devices": event.devices}
    if isinstance(event, StudyExtended):
        return {"n_trials": event.study.n_trials}
    return user_commands.answer(event, state)


def _drained(context: Context, devices: list[str], within: Within | None = None) -> DevicesTakenOut:
    names = _devices(devices, context.state.devices, "device")
    deadline = None if within is None else context.at + within
    return DevicesTakenOut(at=context.at, devices=names, deadline=deadline)


def _undrained(context: Context, devices: list[str]) -> DevicesGivenBack:
    names = _devices(devices, context.state.held, "drained device")
    return DevicesGivenBack(at=context.at, devices=names)


def _freed(context: Context, n: int, within: Within) -> DevicesTakenOut:
    limit, at = len(drainable(context.state)), context.at
    if not limit:
        raise UsageError("there is no device to free")
    if not 1 <= n <= limit:
        raise UsageError.refuse("N", n, f"1 to {limit}, the devices that are not drained yet")
    devices = choose_devices(context.engine, n, at=at, within=within)
    return DevicesTakenOut(at=at, devices=devices, deadline=at + within)


def _devices(names: list[str], known: Collection[str], what: str) -> tuple[str, ...]:
    """Return the full names of the devices that ``names`` identify, without duplicates.

    Each of ``names`` is a prefix of the name of exactly one of the ``known`` devices. Raises
    UsageError if ``names`` is empty or if a prefix fits no device or several devices.
    """
    if not names:
        raise UsageError.refuse("devices", names, f"one or more names of a {what}")
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


def _submitted(
    context: Context,
    study: dict[str, Any],
    enqueued: list[dict[str, Any]] = [],  # noqa: B006 - nobody changes it
) -> StudySubmitted:
    spec, state, at = spec_from_json(json.dumps(study)), context.state, context.at
    _check_name(spec, state)
    _check_known(spec)
    if spec.contract == "ask" and not spec.local:
        raise UsageError.refuse("sampler", spec.sampler, f"{LOCAL} where users train")
    limit = [each.device for each in state.devices.values()]
    check_metered(spec.energy_weight, limit)
    for check in of_ends("spec", "check_submitted"):
        check(spec, state, at)
    first = tuple(check_params(spec.space, each, spec.conditions) for each in enqueued)
    return StudySubmitted(at=at, study=spec, enqueued=first)


def _extended(
    context: Context,
    study: str,
    by: Whole | None = None,
    to: Whole | None = None,
    spec: dict[str, Any] | None = None,
) -> StudyExtended:
    """Return the event that extends a study by ``by`` trials, or to ``to`` trials in total.

    ``spec`` is the specification of the script that extends the study, or None if no script sends
    one. Raises UsageError if the study cannot be extended or the new total is not larger.
    """
    state, past = context.state, None
    if context.is_over(study):
        record, past = context.past(study)
        goes_on = record.spec
        if record.status == "failed" and not goes_on.local:
            raise UsageError(
                f"{goes_on.name} failed and cannot be extended: correct what `penstock status` says"
                " of it, and submit it under another name"
            )
        waiting = [t for t in past.trials if goes_on.local and t.state is TrialState.PROPOSED]
        limit = sum(not trial.branched for trial in past.trials) - len(waiting)
    else:
        at_work = context.at_work(study)
        goes_on = at_work.spec
        limit = goes_on.n_trials
        if goes_on.strategy.name != "full" and isinstance(at_work.strategy, FullBudget):
            raise UsageError(
                f"{goes_on.name} is over but for single trials: extend it when they have ended"
            )
    if spec is not None:
        goes_on = _respecified(goes_on, spec, state)
    if goes_on.contract == "ask":
        raise UsageError(f"{goes_on.name} gets its trials from ask(): call ask() for more")
    if forks(goes_on):
        raise UsageError(f"{goes_on.name} is a population, which keeps its size: start a new study")
    n_trials = limit + (by or 0) if to is None else to
    if goes_on.sampler == "grid" and goes_on.space is not None:
        size = grid_size(goes_on.space, goes_on.conditions) * goes_on.replicates
        if limit >= size:
            raise UsageError(
                f"all {size // goes_on.replicates} points of the grid of {goes_on.name} are taken"
            )
        n_trials = min(n_trials, size)
    if n_trials <= limit:
        raise UsageError.refuse("to", n_trials, f"more than the {limit} trials of {goes_on.name}")
    extended = replace(goes_on, n_trials=n_trials)
    check_replicated(extended)
    return StudyExtended(at=context.at, study=extended, past=past)


def _respecified(known: StudySpec, given: dict[str, Any], state: EngineState) -> StudySpec:
    """Return the specification with which an extended study continues.

    A local study (one whose sampler and pruner run in the trainer) takes the whole specification
    ``given`` by the script. If the code differs from the known code, all trials that run the old
    objective must have ended. Any other study that is over takes only the code, command line and
    folder from ``given``. Any other study that is not over keeps its specification.

    Raises UsageError if the directions differ or if trials of another objective still run.
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
        raise UsageError(f"{known.name} runs trials of another objective: wait until they end")
    _check_known(spec)
    return replace(spec, id=known.id, name=known.name)


def _imported(context: Context, imported: str) -> StudyImported:
    event, state = decode(StudyImported.__name__, imported), context.state
    assert isinstance(event, StudyImported)
    record = event.record
    check_name(record.spec.name)
    if record.spec.id in state.studies or record.spec.id in state.finished:
        raise UsageError(f"study {record.spec.id} exists already")
    _check_name(record.spec, state)
    _check_known(record.spec)
    check_imported(event)
    listed, _ = only_listed(event)
    return replace(listed, at=context.at)


def _cancelled(context: Context, study: str) -> StudyCancelled:
    return StudyCancelled(at=context.at, study=context.at_work(study).spec.id)


def _closed(context: Context, study: str) -> StudyClosed:
    spec = context.at_work(study).spec
    if spec.contract != "ask":
        raise UsageError(f"{spec.name} was not made by ask(): cancel it")
    return StudyClosed(at=context.at, study=study)


def _heard(context: Context, study: str, trials: list[str], over: bool) -> CallbacksCalled:
    context.at_work(study)
    return CallbacksCalled(at=context.at, study=study, trials=tuple(trials), over=over)


def _paused(context: Context, study: str) -> StudyPaused:
    _check_runnable(context.at_work(study), by=False)
    return StudyPaused(at=context.at, study=study)


def _resumed(context: Context, study: str) -> StudyResumed:
    _check_runnable(context.at_work(study), by=True)
    return StudyResumed(at=context.at, study=study)


def _check_runnable(study: StudyState, *, by: bool) -> None:
    """Check that a study can be resumed (``by`` is True) or paused (``by`` is False).

    Raises UsageError if users train the study's trials themselves, if the study lacks an extension,
    or if the study already has the wanted state.
    """
    spec = study.spec
    if spec.contract == "ask":
        raise UsageError(f"nothing of {spec.name} runs here: it cannot be paused")
    if study.lacks:
        raise UsageError(f"{spec.name} is paused: {'; '.join(study.lacks.values())}")
    if study.runnable == by:
        raise UsageError(f"{spec.name} is {study.status} already")


def _weighed(context: Context, study: str, weight: Weight, priority: Priority) -> StudyWeighed:
    context.at_work(study)
    return StudyWeighed(at=context.at, study=study, weight=weight, priority=priority)


def _enqueued(
    context: Context, study: str, params: dict[str, Any]
) -> TrialEnqueued | StudyExtended:
    """Return the event that has the study try the configuration ``params`` next.

    If the study is over, the event also extends the study. Raises UsageError for a local study,
    whose objective draws the parameters.
    """
    over = context.is_over(study)
    spec = context.past(study)[0].spec if over else context.at_work(study).spec
    if spec.local:
        raise UsageError(f"the objective of {spec.name} draws its parameters: call enqueue_trial()")
    configuration = check_params(spec.space, params, spec.conditions)
    if over:
        return replace(_extended(context, study, by=spec.replicates), enqueued=(configuration,))
    return TrialEnqueued(at=context.at, study=study, params=configuration)


#: The core's commands: the function that reads each kind of command. The arguments of a function,
#: except for the context, are the command's fields. A message may have other fields. These fields
#: belong to the runner (``id``, ``blobs``, ``heard``) or to clients of other versions, and are
#: ignored here.
COMMANDS: dict[str, Callable[..., Event]] = {
    "submit": _submitted,
    "cancel": _cancelled,
    "pause": _paused,
    "resume": _resumed,
    "weigh": _weighed,
    "extend": _extended,
    "enqueue": _enqueued,
    "close": _closed,
    "hear": _heard,
    "import": _imported,
    "drain": _drained,
    "undrain": _undrained,
    "free": _freed,
    **user_commands.COMMANDS,
}


@cache
def all_commands() -> Mapping[str, Callable[..., Event]]:
    """Return the functions of all commands, those of the core and those of extensions, by kind."""
    return {**COMMANDS, **of_extensions()}


@cache
def of_extensions() -> Mapping[str, Callable[..., Event]]:
    """Return the functions of the extensions' commands, by kind.

    The runner reports an error to the client if the engine refuses the event of such a command.
    """
    return {kind: read for each in of_ends("server", "COMMANDS") for kind, read in each.items()}


def _check_name(spec: StudySpec, state: EngineState) -> None:
    ids = {study.spec.name: study.spec.id for study in state.studies.values()}
    ids |= {name: study for study, name in state.finished.items()}
    if ids.get(spec.name, spec.id) != spec.id:
        raise UsageError.refuse("study_name", spec.name, "a name not taken by another study")


def _check_plan(plan: StrategySpec) -> None:
    """Check that the strategy's rungs (epochs at which trials are compared) rise and end.

    The engine counts rungs, so rungs without an end would keep it busy forever. Raises UsageError.
    """
    whole("strategy.min_epochs", plan.min_epochs, low=1)
    whole("strategy.eta", plan.eta, low=2)
    if plan.max_epochs is not None:
        whole("strategy.max_epochs", plan.max_epochs, low=1)
    for name in ("quantile", "resample", "risk"):
        finite(f"strategy.{name}", getattr(plan, name), "0 to 1", 0, 1)


def _check_known(spec: StudySpec) -> None:
    """Check that the engine and the sampler know every name in ``spec`` and accept its numbers.

    Raises UsageError for the first value that is not known or out of range.
    """
    for field, value, allowed in (
        ("contract", spec.contract, CONTRACTS),
        ("exactness", spec.exactness, EXACTNESS),
        ("on_signature_change", spec.on_signature_change, ON_SIGNATURE_CHANGE),
        ("seeding", spec.seeding, SEEDING),
        ("fuse", spec.fuse, FUSE),
        *(("direction", each.direction, DIRECTIONS) for each in spec.objectives),
        ("sampler", spec.sampler, (*SAMPLERS, LOCAL, OWN)),
    ):
        one_of(field, value, allowed)
    if spec.hosted and (spec.tools is None or not is_by_value(spec.tools.target)):
        raise UsageError.refuse("tools", spec.tools, "a sampler whose code is sent by value")
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
