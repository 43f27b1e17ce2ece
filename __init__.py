"""Penstock: hyperparameter tuning as a stream of epoch-sized tasks on Celery."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .app.client.study.create import create_study, load_study
    from .app.client.study.storage import storage
    from .app.client.study.study import Study
    from .app.spec.options import Limits, Resources, Share, SystemTuning
    from .app.spec.sampler_options import Sampler
    from .app.spec.space import Categorical, Float, Int
    from .app.spec.steps import Steps
    from .app.spec.strategies import (
        ASHA,
        PASHA,
        PBT,
        CurveStopping,
        FreezeThaw,
        FullBudget,
        Hyperband,
        MedianStopping,
        SuccessiveHalving,
    )
    from .base.errors import BackendError, PenstockError, TrialFailed, UsageError
    from .extensions import public
    from .extensions.public import *  # noqa: F403 - they are theirs
    from .extensions.public_by_name import *  # noqa: F403
    from .tasks.contracts.contract import Data, EpochTrial, TorchTrainable, epoch_function

    __all__ = [
        "ASHA",
        "PASHA",
        "PBT",
        "BackendError",
        "Categorical",
        "CurveStopping",
        "Data",
        "EpochTrial",
        "Float",
        "FreezeThaw",
        "FullBudget",
        "Hyperband",
        "Int",
        "Limits",
        "MedianStopping",
        "PenstockError",
        "Resources",
        "Sampler",
        "Share",
        "Steps",
        "Study",
        "SuccessiveHalving",
        "SystemTuning",
        "TorchTrainable",
        "TrialFailed",
        "UsageError",
        "create_study",
        "epoch_function",
        "load_study",
        "storage",
    ]
    __all__ += public.__all__

#: Public names and where each is defined. It is loaded when first used: ``import penstock`` costs
#: nothing. ``celery`` is for ``celery -A penstock``, where the extension of that name is not there,
#: which has the app as well. The names of extensions are in ``app.extensions``.
_LAZY = {
    "ASHA": "app.spec.strategies:ASHA",
    "BackendError": "base.errors:BackendError",
    "Categorical": "app.spec.space:Categorical",
    "CurveStopping": "app.spec.strategies:CurveStopping",
    "Data": "tasks.contracts.contract:Data",
    "Float": "app.spec.space:Float",
    "EpochTrial": "tasks.contracts.contract:EpochTrial",
    "FreezeThaw": "app.spec.strategies:FreezeThaw",
    "FullBudget": "app.spec.strategies:FullBudget",
    "PASHA": "app.spec.strategies:PASHA",
    "PBT": "app.spec.strategies:PBT",
    "Hyperband": "app.spec.strategies:Hyperband",
    "Int": "app.spec.space:Int",
    "Limits": "app.spec.options:Limits",
    "MedianStopping": "app.spec.strategies:MedianStopping",
    "PenstockError": "base.errors:PenstockError",
    "Resources": "app.spec.options:Resources",
    "Sampler": "app.spec.sampler_options:Sampler",
    "Share": "app.spec.options:Share",
    "Steps": "app.spec.steps:Steps",
    "Study": "app.client.study.study:Study",
    "SuccessiveHalving": "app.spec.strategies:SuccessiveHalving",
    "SystemTuning": "app.spec.options:SystemTuning",
    "TorchTrainable": "tasks.contracts.contract:TorchTrainable",
    "TrialFailed": "base.errors:TrialFailed",
    "UsageError": "base.errors:UsageError",
    "celery": "app.node.worker.celery:app",
    "create_study": "app.client.study.create:create_study",
    "epoch_function": "tasks.contracts.contract:epoch_function",
    "load_study": "app.client.study.create:load_study",
    "storage": "app.client.study.storage:storage",
}


def __getattr__(name: str) -> Any:
    """Return a public name from the module that defines it; or ``__all__``, the core's first."""
    from importlib import import_module

    if name == "__all__":  # asked for by ``import *``, which needs no extension
        return [*sorted(_LAZY.keys() - {"celery"}), *_extensions().public()]
    where = _LAZY.get(name)
    if name == "celery" and _extensions().lacking("celery_apps") is None:
        where = None
    if where is None and (name.startswith("_") or name not in _extensions().NAMES):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        if where is None:
            value = _extensions().named(name, f"{__name__}.{name}")
        else:
            module, _, attribute = where.partition(":")
            value = getattr(import_module(f".{module}", __name__), attribute)
    except (ImportError, AttributeError) as error:
        # A file next to the user's script may hide a library.
        raise import_module(".base.hiding", __name__).explained(error) from error.__cause__
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__"), *_extensions().BY_NAME})


def _extensions() -> Any:
    from importlib import import_module

    return import_module(".app.extensions", __name__)


def load_ipython_extension(ipython: object) -> None:
    """Make Optuna's studies Penstock's in a notebook: ``%load_ext penstock``."""
    _extensions().end_of("notebooks", "jupyter", "%load_ext penstock").load()


def unload_ipython_extension(ipython: object) -> None:
    """Give Optuna's names in the notebook back to Optuna: ``%unload_ext penstock``."""
    _extensions().end_of("notebooks", "jupyter", "%unload_ext penstock").unload()
