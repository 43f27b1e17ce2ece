"""Sends a study to the scheduler: once to begin it, again to go on with more trials.

A study of Penstock's own contracts, or one that the scheduler samples for, is submitted whole and
cannot be changed afterwards. A local study (``StudySpec.local``) behaves like an Optuna study: it
may exist before it has an objective, and each ``optimize`` adds trials, perhaps of another
objective.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ....base.errors import UsageError
from ....scheduler.model.study import ENDLESS, Params, StudySpec
from ....tasks.contracts.code import Reference, refer_to_value
from ...common.validation import whole
from ...extensions import check_extended
from ...host.devices import devices_of, metered
from ...spec.amounts import check_metered
from ...spec.build import make_asked_spec, make_local_spec, make_spec, new_id, refer_to
from ...spec.changes import as_edited, differences
from ...spec.contracts import check_one_replicate, contract_of
from ...spec.sampler_options import LOCAL
from ...spec.space import check_params
from ...spec.warm_start import of_frozen
from ..script_objects.changed import Changed
from .handle import StudyHandle
from .preparation import enqueued, finished, is_untouched, send_all, send_attributes
from .results import ReadableStudy


class CannotTravel(UsageError):
    """An objective, its sampler or its pruner cannot be sent to trainers."""


#: The number of other names tried if another process takes one, and seconds before each.
_NAMES_TRIED, _NAME_WAIT = 10, 0.1


def is_local(handle: StudyHandle, func: Any, space: Mapping[str, Any] | None) -> bool:
    """Return True if ``func`` is an objective that samples by itself."""
    if handle.spec is not None:
        return handle.spec.local
    return (
        handle.plan.local
        and space is None
        and not handle.observed
        and contract_of(func) == "objective"
    )


def submit_local(
    handle: StudyHandle,
    func: Any,
    n_trials: Any,
    tools: Any,
    devices: str | None,
    *,
    catches: bool,
    changed: Changed | None,
    heard: bool,
) -> None:
    """Submit ``n_trials`` more trials of the objective ``func``; None: until the study is stopped.

    ``tools`` are the sampler and the pruner. ``changed`` are the script's objects that the
    objective changes, if the script waits for the trials. With ``catches`` the user expects
    exceptions, so the study goes on however many trials fail. With ``heard`` new trials wait for
    the script's callbacks. Raises UsageError as ``Study.optimize`` does.
    """
    check_one_replicate(handle.plan.replicates)
    n = ENDLESS if n_trials is None else whole("n_trials", n_trials, low=1)
    if contract_of(func) != "objective":
        raise UsageError(f"study {handle.study_name} has trials of an objective: make a new study")
    try:
        code = refer_to(func)
        further = () if changed is None else changed.for_trainers
        pickled = refer_to_value((*tools, *further), type(tools[0]).__name__, code.path)
    except UsageError as error:
        raise CannotTravel(str(error)) from error
    if changed is not None:
        changed.tell()
    if not code.content and (names := _studies_in(func)):
        sys.stderr.write(
            f"{code.target.rpartition(':')[2]} refers to {', '.join(names)}. In trainers, which"
            " import the script, that is a study without trials: use trial.study\n"
        )
    spec = make_local_spec(
        handle.plan,
        handle.id,
        handle.study_name,
        n_trials=n,
        code=code,
        tools=pickled,
        kinds={"sampler": type(tools[0]).__name__, "pruner": type(tools[1]).__name__},
    )
    if catches:
        spec = replace(spec, fail_early=0)
    blobs = _blobs(code, pickled)
    handle.ensure_up(devices)
    if handle.spec is None and is_untouched(handle.memory):
        spec = _submit_new(handle, spec, blobs=blobs, heard=heard)
    else:
        begin(handle)
        spec = replace(spec, id=handle.id, name=handle.study_name)  # begin may have renamed it
        handle.client().extend(handle.id, by=n, now=spec, blobs=blobs, heard=heard)
    handle.note_submitted(spec)


def _studies_in(func: Any) -> list[str]:
    """Return the names of studies to which a function refers."""
    names = getattr(getattr(func, "__code__", None), "co_names", ())
    variables = getattr(func, "__globals__", {})
    return [name for name in names if isinstance(variables.get(name), ReadableStudy)]


def _submit_new(
    handle: StudyHandle,
    spec: StudySpec,
    enqueued: Sequence[Params] = (),
    blobs: Mapping[str, bytes] | None = None,
    *,
    heard: bool = False,
) -> StudySpec:
    """Submit a new study; return the specification that was submitted.

    If another process has meanwhile taken the name that Penstock numbered, the study gets the next
    number.
    """
    for _ in range(_NAMES_TRIED):
        try:
            handle.client().submit(spec, enqueued, blobs, heard=heard)
        except UsageError as error:
            if handle.next_name is None or not str(error).startswith("study_name = "):
                raise
            time.sleep(_NAME_WAIT)  # until the ledger has the other one
            handle.study_name = handle.next_name()
            handle.id = new_id(handle.study_name)
            spec = replace(spec, id=handle.id, name=handle.study_name)
        else:
            return spec
    raise UsageError(f"no name like {handle.study_name} is free for long enough", "study_name")


def begin(handle: StudyHandle) -> None:
    """Write a prepared study to the ledger, without an objective."""
    if handle.spec is not None:
        return
    check_one_replicate(handle.plan.replicates)

    plan = handle.plan
    spec = make_asked_spec(handle.id, handle.study_name, plan.objectives)
    spec = replace(spec, seed=plan.seed, seeding=plan.seeding, environment=plan.environment)
    spec = replace(spec, notify=plan.notify, on_end=plan.on_end, on_error=plan.on_error)
    check_extended(replace(spec, data_token=plan.share.data_token))
    client = handle.connect()
    spec = _submit_new(handle, spec)
    send_all(handle.memory, handle.id, client)
    handle.note_submitted(spec)


def submit_scheduled(
    handle: StudyHandle,
    func: Any,
    space: Mapping[str, Any] | None,
    n_trials: Any,
    devices: str | None,
    *,
    heard: bool,
) -> None:
    """Submit a study that the scheduler samples for, or extend an existing one to ``n_trials``.

    ``heard`` is as in ``submit_local``.
    """
    existing = handle.spec
    code, sampler = refer_to(func), handle.plan.optuna_sampler
    tools = None
    if handle.plan.sampler == LOCAL:
        tools = refer_to_value((sampler, None), type(sampler).__name__, code.path)
    spec = make_spec(handle.plan, handle.id, handle.study_name, func, space, n_trials, code, tools)
    if existing is not None:
        spec = as_edited(existing, spec)
    changed = [] if existing is None else differences(existing, spec)
    if changed:
        raise UsageError(
            f"study {handle.study_name} was submitted before and cannot be changed"
            f" ({'; '.join(changed)}): give the new one another study_name"
        )
    if existing is None:
        for trial in finished(handle.memory):
            source = handle.sources.get(trial.number, "add_trial")
            handle.observed += of_frozen([trial], source)
        spec = handle.with_warm_start(spec)
    else:
        n = max(spec.n_trials, existing.n_trials)  # it may have been extended since
        spec = replace(spec, n_trials=n, observations=existing.observations, system=existing.system)
    prepared = enqueued(handle.memory) if existing is None else ()
    configurations = [check_params(spec.space, each, spec.conditions) for each in prepared]
    if len(configurations) * spec.replicates > spec.n_trials:
        each = f", {spec.replicates} trials each" if spec.replicates > 1 else ""
        allowed = f"at least the {len(configurations)} configurations that were enqueued{each}"
        raise UsageError.refuse("n_trials", n_trials, allowed)
    if spec.energy_weight and handle.settings.broker is None:
        devices_here = metered(devices_of(handle.settings, devices), handle.settings.powercap)
        check_metered(spec.energy_weight, devices_here)
    handle.ensure_up(devices)
    if existing is None:
        blobs = _blobs(code, *([tools] if tools else []))
        spec = _submit_new(handle, spec, configurations, blobs, heard=heard)
        send_attributes(handle.memory, handle.id, handle.client())
    elif spec.n_trials > existing.n_trials:
        blobs = _blobs(code)
        handle.client().extend(handle.id, to=spec.n_trials, now=spec, blobs=blobs, heard=heard)
    handle.note_submitted(spec)


def _blobs(*references: Reference) -> dict[str, bytes]:
    """Return the bytes of code that goes by value, by the code's digest."""
    return {each.digest: each.content for each in references if each.content}
