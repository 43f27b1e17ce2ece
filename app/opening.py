"""How a user comes by a ``Study``: ``create_study`` and ``load_study``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..profiling.errors import BackendError, LedgerRefused, UsageError
from ..scheduler.study import StrategySpec
from .boundary import to_the_user
from .codec import spec_from_json
from .handle import in_trainer, refuse_in_trainer
from .settings import Settings
from .settings import load as load_settings
from .study import Study
from .submission import Plan, check_name, make_plan, new_id

if TYPE_CHECKING:
    from .rows import StudyRow


@to_the_user
def create_study(
    *,
    study_name: str | None = None,
    direction: str | None = None,
    metric: str | None = None,
    directions: Sequence[str] | None = None,
    metrics: Sequence[str] | None = None,
    constraints: Mapping[str, float] | None = None,
    sampler: Any = "tpe",
    sampler_options: Mapping[str, Any] | None = None,
    strategy: StrategySpec | None = None,
    seed: int = 0,
    epoch_timeout: float | None = None,
    retries: int = 0,
    shards: int | None = None,
    max_width: int | None = None,
    keep_checkpoints: int = 1,
    exactness: str | None = None,
    on_signature_change: str | None = None,
    system: str = "reuse",
    knobs: Sequence[str] | None = None,
    system_objective: str | float = "time",
    probing: str = "race",
    memory_limit: int | None = None,
    weight: float = 1.0,
    priority: int = 0,
    load_if_exists: bool = False,
    warm_start: Any = None,
) -> Study:
    """A study to be submitted with ``optimize`` or ``submit``.

    Args:
        study_name: its name, unique in the installation; made up after the script when None.
        direction: ``minimize`` (also where None) or ``maximize`` the metric.
        metric: which of the reported metrics; only an objective needs none.
        directions: of several objectives, one each, in place of ``direction``. An objective returns
            as many values. They are ranked by no strategy: ``FullBudget`` or None.
        metrics: their names, in place of ``metric``; only an objective needs none.
        constraints: metrics and the highest value that each may have, as ``{"latency_ms": 20.0}``.
            A trial that is above one is never best. An objective says ``trial.set_constraint``.
        sampler: ``grid``, ``random``, ``qmc``, ``tpe``, ``bohb``, ``gp``, ``cmaes`` or ``nsga2``;
            or an Optuna sampler object of these kinds.
        sampler_options: the sampler's options in the guide's list, with Optuna's meaning.
        strategy: one of ``penstock.FullBudget`` and its like; None trains until the objective
            returns.
        seed: of all random numbers of the study.
        epoch_timeout: seconds that an epoch may take; None for no limit. Loading code and data is
            no part of an epoch; it may take 120 s, or as long where that is more.
        retries: how often a trial whose code failed is tried again.
        shards: into how many shards a ``TorchTrainable``'s batches are cut; at most a batch size.
            Part of what is learnt: BatchNorm normalises within a shard. None: as many as
            ``max_width``, but no shard of less than 32 examples.
        max_width: on how many devices at once one trial may run; at most ``shards``. None: as many
            as there are ``shards``, and 1 where neither is given. Never part of what is learnt.
        keep_checkpoints: of so many of the best trials the last state stays in the store when the
            study is over.
        exactness: of a ``TorchTrainable``. ``bitwise``: an epoch has the same bits wherever and
            however often it is trained; code that cannot hold this ends the study as it begins.
            ``statistical``: it need not; each epoch is in the store before it counts. None:
            ``bitwise``; of an epoch function ``statistical``, which is all that it can be.
        on_signature_change: what becomes of an epoch that a machine would compute otherwise
            (another torch, thread count, device class). ``refuse``: that device is not used.
            ``record``: it counts, and is shown as a break. None: ``refuse`` where bitwise, else
            ``record``.
        system: whether the system parameters of a ``TorchTrainable``'s trials are tuned while they
            run. ``reuse``: only what cannot change a result, where the history of this installation
            knows better than the default. ``tune``: they are measured, too, and also those that
            change the order of sums; a bitwise trial keeps these for life. ``off``: never.
        knobs: which system parameters may be turned (docs/system.md); None: the usual ones.
        system_objective: what they are chosen by. ``time`` of a step; its ``energy``, where that is
            measured; or a weight w of energy from 0 to 1: the least time^(1 - w) * joules^w.
        probing: how they are tried where ``system`` is ``tune``: ``race``, ``bandit``, ``bayesian``
            or ``grid`` (docs/system.md).
        memory_limit: bytes that the process of a trial may have on its host (at least 2**29: torch
            takes 0.3 GB of it). A trial that wants more fails; where that is a system
            configuration's fault, the trial goes on without. The objectives or epoch functions of a
            slot share a process, and so the limit: up to four are paused there. None: no limit.
        weight: its part of the devices beside other studies of its priority: twice the weight,
            twice the device-seconds while both have work. From 0.001 to 1000.
        priority: a study of a higher one gets all devices that it can use, before others get any.
        load_if_exists: take up the study of this name if there is one.
        warm_start: studies whose results the sampler learns from: a name, a study of Penstock's or
            of Optuna's, or a list of them, of the same direction. They are copied when this one is
            submitted, and are no trials of it. What is outside its space is left out.

    Raises:
        UsageError: an argument is out of its range, or the name is taken.
    """
    plan = make_plan(
        direction=direction,
        metric=metric,
        sampler=sampler,
        sampler_options=sampler_options,
        strategy=strategy,
        seed=seed,
        epoch_timeout=epoch_timeout,
        retries=retries,
        shards=shards,
        max_width=max_width,
        keep_checkpoints=keep_checkpoints,
        exactness=exactness,
        on_signature_change=on_signature_change,
        system=system,
        knobs=knobs,
        system_objective=system_objective,
        probing=probing,
        memory_limit=memory_limit,
        directions=directions,
        metrics=metrics,
        constraints=constraints,
        weight=weight,
        priority=priority,
    )
    name = check_name(study_name)
    if not isinstance(load_if_exists, bool):
        raise UsageError.refuse("load_if_exists", load_if_exists, "True or False")
    settings = load_settings()
    # A made-up name is an id already.
    study = Study(plan, name, new_id(name) if study_name is not None else name, settings)
    # A trainer imports the user's script and so may come here: it only needs the code.
    if study_name is not None and not in_trainer():
        known = _find(settings, name)
        if known is not None and not load_if_exists:
            raise UsageError(
                f"there is a study {name!r} already: give this one another study_name,"
                " or take that one up with load_if_exists=True",
                field="study_name",
            )
        if known is not None:
            study = Study(plan, name, known.id, settings, spec_from_json(known.spec_json))
    if warm_start is not None and not in_trainer():
        for other in warm_start if isinstance(warm_start, list | tuple) else [warm_start]:
            study._learn_from(_known(other))
    return study


@to_the_user
def load_study(study_name: str) -> Study:
    """The study of this name or id. Raises UsageError with near names where there is none."""
    refuse_in_trainer("load_study()")
    from .elsewhere import ledger_reader

    settings = load_settings()
    row = ledger_reader(settings).study(study_name)
    spec = spec_from_json(row.spec_json)
    return Study(Plan.of(spec), row.name, row.id, settings, spec)


def _known(study: Any) -> Any:
    """A study to be learnt from."""
    if isinstance(study, str):
        return load_study(study)
    if not (hasattr(study, "get_trials") and hasattr(study, "direction")):
        allowed = "a study of Penstock's or Optuna's, a name, or a list of them"
        raise UsageError.refuse("warm_start", study, allowed)
    return study


def _find(settings: Settings, name: str) -> StudyRow | None:
    """The study of this name; None too where there is no ledger yet, or one to be migrated.

    LedgerRefused where no scheduler would serve it.

    The scheduler looks at the name again when the study is submitted.
    """
    from .elsewhere import ledger_reader

    try:
        rows = ledger_reader(settings).studies()
    except LedgerRefused:
        raise
    except BackendError:
        return None
    return next((row for row in reversed(rows) if row.name == name), None)
