"""Creates and loads studies: ``create_study`` and ``load_study``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...profiling.base.errors import LASTING, BackendError, UsageError
from ...scheduler.model.study import StrategySpec
from ..host.settings import Settings
from ..host.settings import load as load_settings
from ..host.tracebacks import to_the_user
from ..ledger.codec import spec_from_json
from ..spec.build import check_name, make_plan, new_id
from ..spec.options import Exactness, Limits, Resources, Share, SystemTuning
from ..spec.plan import StudyPlan
from .handle import StudyHandle, in_trainer, refuse_in_trainer
from .renamed_arguments import in_groups
from .study import Study

if TYPE_CHECKING:
    from ..ledger.rows import StudyRow


@to_the_user
@in_groups
def create_study(
    *,
    study_name: str | None = None,
    sampler: Any = "tpe",
    direction: str | None = None,
    directions: Sequence[str] | None = None,
    load_if_exists: bool = False,
    metric: str | None = None,
    metrics: Sequence[str] | None = None,
    constraints: Mapping[str, float] | None = None,
    strategy: StrategySpec | None = None,
    warm_start: Any = None,
    seed: int = 0,
    exactness: str | Exactness | None = None,
    resources: Resources | None = None,
    limits: Limits | None = None,
    system: str | SystemTuning = "reuse",
    share: Share | None = None,
) -> Study:
    """A study to be submitted with ``optimize`` or ``submit``.

    Args:
        study_name: its name, unique in the installation; made up after the script when None.
        sampler: ``grid``, ``random``, ``qmc``, ``tpe``, ``bohb``, ``gp``, ``cmaes`` or ``nsga2``;
            an Optuna sampler object of these kinds; or ``penstock.Sampler("tpe", ...)`` with the
            options in the guide's list.
        direction: ``minimize`` (also where None) or ``maximize`` the metric.
        directions: of several objectives, one each, in place of ``direction``. An objective returns
            as many values. They are ranked by no strategy: ``FullBudget`` or None.
        load_if_exists: take up the study of this name if there is one.
        metric: which of the reported metrics; only an objective needs none.
        metrics: their names, in place of ``metric``; only an objective needs none.
        constraints: metrics and the highest value that each may have, as ``{"latency_ms": 20.0}``.
            A trial that is above one is never best. An objective says ``trial.set_constraint``.
        strategy: one of ``penstock.FullBudget`` and its like; None trains until the objective
            returns.
        warm_start: studies whose results the sampler learns from: a name, a study of Penstock's or
            of Optuna's, or a list of them, of the same direction. They are copied when this one is
            submitted, and are no trials of it. What is outside its space is left out.
        seed: of all random numbers of the study, 0 or more.
        exactness: of a ``TorchTrainable``: ``bitwise`` or ``statistical``, or
            ``penstock.Exactness(...)``. None: ``bitwise``; of an epoch function ``statistical``.
        resources: what a trial may take: ``penstock.Resources(max_width=, shards=, memory=)``.
        limits: ``penstock.Limits(epoch_timeout=, retries=, keep_checkpoints=)``.
        system: how system parameters of a ``TorchTrainable``'s trials are tuned while they run:
            ``reuse``, ``tune`` or ``off``, or ``penstock.SystemTuning(...)``.
        share: of the devices beside other studies: ``penstock.Share(weight=, priority=)``.

    Raises:
        UsageError: an argument is out of its range, or the name is taken.
    """
    plan = make_plan(
        direction=direction,
        metric=metric,
        directions=directions,
        metrics=metrics,
        constraints=constraints,
        sampler=sampler,
        strategy=strategy,
        seed=seed,
        exactness=exactness,
        resources=resources,
        limits=limits,
        system=system,
        share=share,
    )
    name = check_name(study_name)
    if not isinstance(load_if_exists, bool):
        raise UsageError.refuse("load_if_exists", load_if_exists, "True or False")
    settings = load_settings()
    # A generated name is already an id.
    study_id = new_id(name) if study_name is not None else name
    study = Study(StudyHandle(plan, name, study_id, settings))
    # A trainer may arrive here by importing the user's script: it needs only the code.
    if study_name is not None and not in_trainer():
        known = _find(settings, name)
        if known is not None and not load_if_exists:
            raise UsageError(
                f"study {name!r} exists already: give this one another study_name,"
                " or continue that one with load_if_exists=True",
                field="study_name",
            )
        if known is not None:
            spec = spec_from_json(known.spec_json)
            study = Study(StudyHandle(plan, name, known.id, settings, spec))
    if warm_start is not None and not in_trainer():
        for other in warm_start if isinstance(warm_start, list | tuple) else [warm_start]:
            study._learn_from(_known(other))
    return study


@to_the_user
def load_study(study_name: str) -> Study:
    """The study of this name or id.

    Raises UsageError with close names if there is none, and BackendError if nothing has run here
    yet or the ledger does not answer.
    """
    refuse_in_trainer("load_study()")
    from ..services.ledger_location import ledger_reader

    settings = load_settings()
    row = ledger_reader(settings).study(study_name)
    spec = spec_from_json(row.spec_json)
    return Study(StudyHandle(StudyPlan.of(spec), row.name, row.id, settings, spec))


def _known(study: Any) -> Any:
    """``study``, from whose results the sampler learns; a name is looked up."""
    if isinstance(study, str):
        return load_study(study)
    if not (hasattr(study, "get_trials") and hasattr(study, "direction")):
        allowed = "a study of Penstock's or Optuna's, a name, or a list of them"
        raise UsageError.refuse("warm_start", study, allowed)
    return study


def _find(settings: Settings, name: str) -> StudyRow | None:
    """The study of this name; None also if there is no ledger yet, or one to be migrated.

    Raises LedgerRefused or LedgerDamaged for such a ledger. The scheduler checks the name again
    when the study is submitted.
    """
    from ..services.ledger_location import ledger_reader

    try:
        rows = ledger_reader(settings).studies()
    except LASTING:
        raise
    except BackendError:
        return None
    return next((row for row in reversed(rows) if row.name == name), None)
