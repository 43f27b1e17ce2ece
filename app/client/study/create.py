"""Creates and loads studies: ``create_study`` and ``load_study``."""

from __future__ import annotations

import copyreg
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial, wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from ....base.errors import LASTING, BackendError, UsageError
from ....base.wording import worded
from ....scheduler.model.study import StrategySpec
from ....tasks.contracts.by_value import PICKLES_CODE
from ....tasks.objectives.study import OwnStudy
from ...common.text import closest
from ...common.validation import flag
from ...host.settings import Settings
from ...host.settings import load as load_settings
from ...host.tracebacks import to_the_user
from ...ledger.codec import spec_from_json
from ...spec.build import check_name, make_plan, new_id
from ...spec.objectives import parse_objectives
from ...spec.options import GROUPS, Limits, Resources, Share, SystemTuning, option_paths
from ...spec.plan import StudyPlan
from ...spec.sampler_options import LOCAL, NOT_OPTUNAS, OWN
from .handle import (
    StudyHandle,
    in_trainer,
    refuse_in_trainer,
    script_run,
)
from .storage import Elsewhere, is_elsewhere, open_elsewhere
from .study import Study

if TYPE_CHECKING:
    from ...ledger.rows import StudyRow

P = ParamSpec("P")
R = TypeVar("R")


def refuse_unknown(function: Callable[P, R]) -> Callable[P, R]:
    """Make ``function`` refuse unknown arguments with a UsageError that names the closest one."""
    parameters = list(signature(function).parameters)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        for name, value in kwargs.items():
            if name not in parameters:
                words = f"create_study() takes no {name}: {_meant(name, value, parameters)}"
                raise UsageError(words, name)
        return function(*args, **kwargs)

    return call


def _meant(name: str, value: Any, known: Sequence[str]) -> str:
    """Return a hint that names the known argument closest to the unknown argument ``name``.

    The fields of groups of options (such as ``Limits``) are known arguments, too.
    """
    paths = option_paths()
    close = closest(name, [*known, *paths])
    if close is None:
        return f"it takes {', '.join(known)}"
    if close not in known:
        group, field = paths[close]
        close = f"{group}=penstock.{GROUPS[group].__name__}({field}={worded(value)})"
    return f"did you mean {close}?"


@to_the_user
@refuse_unknown
def create_study(
    *,
    storage: Any = None,
    sampler: Any = None,
    pruner: Any = None,
    study_name: str | None = None,
    direction: Any = None,
    load_if_exists: bool = False,
    directions: Sequence[Any] | None = None,
    metric: str | Sequence[str] | None = None,
    constraints: Mapping[str, float] | None = None,
    strategy: StrategySpec | None = None,
    warm_start: Any = None,
    seed: int = 0,
    seeding: str = "trial",
    replicates: int = 1,
    fuse: str = "auto",
    resources: Resources | None = None,
    limits: Limits | None = None,
    system: str | SystemTuning = "reuse",
    share: Share | None = None,
    environment: str | None = None,
    notify: str | Sequence[str] | None = None,
    on_end: str | Mapping[str, Any] | None = None,
    on_error: str | Mapping[str, Any] | None = None,
) -> Study:
    """Create a study, to be submitted with ``optimize`` or ``submit``.

    Args:
        storage: None, ``penstock.storage()``, or an Optuna storage or its URL: the study of this
            name is then copied from that storage before the first trial, and new trials are copied
            back.
        sampler: any Optuna sampler object, also of your own class; or ``grid``, ``random``,
            ``qmc``, ``tpe`` (the default), ``bohb``, ``gp``, ``cmaes``, ``nsga2`` or ``evolution``;
            or ``penstock.Sampler("tpe", ...)`` with options that the guide lists.
        pruner: any Optuna pruner object, for an objective without a strategy; None: Optuna's own.
        study_name: its name, unique in the installation; made up after the script when None.
        direction: ``minimize`` (the default) or ``maximize``, or Optuna's ``StudyDirection``.
        load_if_exists: return the existing study of this name if there is one.
        directions: one direction for each of several objectives, instead of ``direction``. The
            objective function returns as many values. Strategies cannot rank such trials, so
            ``strategy`` must be ``FullBudget`` or None.
        metric: the reported metric to optimise; with ``directions``, a list of one metric for each.
            An ``objective(trial)`` function needs none.
        constraints: metrics and the highest value that each may have, as ``{"latency_ms": 20.0}``.
            A trial with a higher value is never the best. An ``objective(trial)`` function calls
            ``trial.set_constraint`` instead.
        strategy: such as ``penstock.FullBudget(...)``; None: train until the objective returns.
        warm_start: studies whose results the sampler learns from: a name, a study of Penstock's or
            of Optuna's, or a list of them, of the same direction. Their results are copied when
            this study is submitted and do not count as its trials. Results outside its space are
            left out.
        seed: the seed of all random numbers of the study, 0 or more.
        seeding: ``trial``: each trial draws random numbers of its own. ``shared``: all trials draw
            the same (common random numbers): the order of examples, initial weights, dropout. Their
            results then differ by their parameters alone, but the best may suit only this seed.
        replicates: with ``shared`` seeding, the number of trials of each configuration, 1 or more.
            The first trials of all configurations draw the same random numbers, so do the second
            ones, and so on. Each trial counts in ``n_trials``; the sampler and ``best_value`` use
            the mean of a configuration's trials.
        fuse: ``auto``: trials of a ``TorchTrainable`` in the seats of one lane are trained together
            where that is faster and gives the same bits (docs/density.md). ``off``: they never are.
        resources: the devices and memory that a trial may use, and whether its results have the
            same bits on all of them:
            ``penstock.Resources(max_width=, shards=, memory=, exactness=)``.
        limits: ``penstock.Limits(...)`` with limits of each trial (``epoch_timeout=``,
            ``retries=``, ``keep_checkpoints=``) and of the whole study (``device_hours=``,
            ``kwh=``, ``money=``, ``deadline=``). None: no limits, or those of ``penstock submit
            --limits``.
        system: how system parameters of a ``TorchTrainable``'s trials are tuned while they run:
            ``reuse``, ``tune`` or ``off``, or ``penstock.SystemTuning(...)``, which also says
            in what precision they compute.
        share: the study's share of the devices, and whether it takes over epochs from other
            studies: ``penstock.Share(weight=, priority=, data_token=)``.
        environment: the Python in which its trials run, as ``venv:/folder``, ``rootfs:/folder`` or
            ``command:PROGRAM ARGUMENTS`` (docs/environments.md). None: the workers' own, or that of
            ``penstock submit --environment``.
        notify: where to send a message when the study ends, fails, stands still or will miss its
            deadline: an Apprise address, ``$NAME`` of the scheduler's environment variable that has
            an address, or a list of these.
        on_end: a task of your Celery app that is sent when the study ends, unless it failed: a
            signature, the task's name, or a mapping (docs/for-celery-users.md). The task gets the
            argument ``study``.
        on_error: a task as in ``on_end``, sent when the study has failed.

    Raises:
        UsageError: an argument is unknown or out of its range, or the name is taken.
    """
    plan = make_plan(
        direction=direction,
        metric=metric,
        directions=directions,
        constraints=constraints,
        sampler=sampler,
        pruner=pruner,
        strategy=strategy,
        seed=seed,
        seeding=seeding,
        replicates=replicates,
        fuse=fuse,
        resources=resources,
        limits=script_run().limits if limits is None else limits,
        system=system,
        share=share,
        environment=script_run().environment if environment is None else environment,
        notify=notify,
        on_end=on_end,
        on_error=on_error,
    )
    name = check_name(study_name)
    flag("load_if_exists", load_if_exists)
    settings, tools = load_settings(), _tools(plan)
    # A trainer may arrive here by importing the user's script: it needs only the code.
    if in_trainer():
        return Study(StudyHandle(plan, name, new_id(name), settings), *tools)
    if is_elsewhere(storage):
        other = open_elsewhere(
            storage, name, plan.directions, settings, may_exist=load_if_exists, must_exist=False
        )
        return _in_step(_directed(plan, other), settings, other)
    numbered = None
    if study_name is not None and script_run().as_optuna and not load_if_exists:
        numbered = partial(_free_name, settings, name)
        name = numbered()
    # A generated name is already an id.
    study_id = new_id(name) if study_name is not None else name
    handle = StudyHandle(plan, name, study_id, settings)
    handle.next_name = numbered
    if study_name is not None:
        handle = _known_or_new(handle, load_if_exists=load_if_exists)
    study = Study(handle, *tools)
    if warm_start is not None:
        for other in warm_start if isinstance(warm_start, list | tuple) else [warm_start]:
            study._learn_from(_known(other))
    return study


def _known_or_new(new: StudyHandle, *, load_if_exists: bool) -> StudyHandle:
    """Return the existing study with the name of ``new``, or ``new`` if the name is free.

    Raises UsageError if the name is taken and ``load_if_exists`` is False.
    """
    existing = _find(new.settings, new.study_name)
    if existing is None:
        return new
    if not load_if_exists:
        raise UsageError(
            f"study {new.study_name!r} exists already: give this one another study_name,"
            " or continue that one with load_if_exists=True",
            field="study_name",
        )
    return StudyHandle(
        new.plan, new.study_name, existing.id, new.settings, spec_from_json(existing.spec_json)
    )


@to_the_user
def load_study(
    study_name: str | None = None, storage: Any = None, sampler: Any = None, pruner: Any = None
) -> Study:
    """Return the study of this name or id. Other arguments are as in ``create_study``.

    Raises UsageError with close names if there is none, and BackendError if nothing has run here
    yet or the ledger does not answer. With an Optuna ``storage`` the name may be left out if the
    storage has one study, and a missing study raises KeyError.
    """
    refuse_in_trainer("load_study()")
    settings = load_settings()
    if is_elsewhere(storage):
        other = open_elsewhere(
            storage, study_name or None, (), settings, may_exist=True, must_exist=True
        )
        plan = make_plan(directions=other.directions, sampler=sampler, pruner=pruner)
        return _in_step(plan, settings, other)
    from ...server.services.ledger_location import ledger_reader

    if study_name is None:
        raise UsageError.refuse("study_name", None, "a name or an id (penstock ls)")
    row = ledger_reader(settings).study(study_name)
    spec = spec_from_json(row.spec_json)
    plan = replace(StudyPlan.of(spec), optuna_sampler=sampler, optuna_pruner=pruner)
    return Study(StudyHandle(plan, row.name, row.id, settings, spec), *_tools(plan))


def _reference(study: Study) -> tuple[Any, ...]:
    """Return the study's reduced form for pickle: unpickling loads the study by its id."""
    if PICKLES_CODE.get():
        if study.id == script_run().sent_for:
            return OwnStudy, ()
        raise TypeError("another study cannot be sent with code: load it inside the objective")
    if study._elsewhere is not None:
        raise TypeError("load a study of a storage of your own by load_study(study_name, storage)")
    study._handle.check_submitted()
    plan = study._handle.plan
    return load_study, (study.id, None, plan.optuna_sampler, plan.optuna_pruner)


copyreg.pickle(Study, _reference)


def _in_step(plan: StudyPlan, settings: Settings, other: Elsewhere) -> Study:
    """Return a new study that is a copy of ``other`` and is kept in step with it."""
    numbered = partial(_free_name, settings, other.name)
    name = numbered()
    handle = StudyHandle(plan, name, new_id(name), settings)
    handle.next_name = numbered
    other.copy_to(handle.memory, handle.memory.get_study_id_from_name(name))
    return Study(handle, *_tools(plan), elsewhere=other)


def _directed(plan: StudyPlan, other: Elsewhere) -> StudyPlan:
    """Return ``plan`` with the directions of the study ``other``, which exists already.

    Optuna ignores the directions given for an existing study, too.
    """
    if other.directions == plan.directions:
        return plan
    metric, direction, further = parse_objectives(None, None, other.directions)
    return replace(plan, metric=metric, direction=direction, further=further)


def _free_name(settings: Settings, name: str) -> str:
    """Return ``name``, with a number if a study has it already."""
    number, free = 1, name
    while _find(settings, free) is not None:
        number += 1
        free = f"{name}-{number}"
    return free


def _tools(plan: StudyPlan) -> tuple[Any, Any]:
    """Return the study's sampler and pruner as Optuna objects; None stands for Optuna's default."""
    # Optuna's default sampler is not seeded.
    is_own = plan.sampler in (*NOT_OPTUNAS, LOCAL, OWN) or script_run().as_optuna
    if plan.optuna_sampler is not None or is_own:
        return plan.optuna_sampler, plan.optuna_pruner
    from ...server.optuna_bridge.local_samplers import make_sampler

    return make_sampler(plan.sampler, plan.sampler_options, plan.seed), plan.optuna_pruner


def _known(study: Any) -> Any:
    """Return an entry of ``warm_start`` as a study. An entry that is a name is loaded."""
    if isinstance(study, str):
        return load_study(study)
    if not (hasattr(study, "get_trials") and hasattr(study, "direction")):
        allowed = "a study of Penstock's or Optuna's, a name, or a list of them"
        raise UsageError.refuse("warm_start", study, allowed)
    return study


def _find(settings: Settings, name: str) -> StudyRow | None:
    """Return the study of this name, or None if there is none.

    None also if there is no ledger, or one that must be migrated first. Raises LedgerRefused or
    LedgerDamaged if the ledger is refused or damaged. The scheduler checks the name again when the
    study is submitted.
    """
    from ...server.services.ledger_location import ledger_reader

    try:
        rows = ledger_reader(settings).studies()
    except LASTING:
        raise
    except BackendError:
        return None
    return next((row for row in reversed(rows) if row.name == name), None)
