"""Penstock: hyperparameter tuning as a stream of epoch-sized tasks on Celery."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .app.opening import create_study, load_study
    from .app.space import Categorical, Float, Int
    from .app.strategies import (
        ASHA,
        PASHA,
        PBT,
        CurveStopping,
        FullBudget,
        Hyperband,
        MedianStopping,
        SuccessiveHalving,
    )
    from .app.study import Study
    from .profiling.errors import BackendError, PenstockError, TrialFailed, UsageError
    from .tasks.contract import Data, TorchTrainable, epoch_function
    from .tasks.epochs import EpochTrial

#: Public names and where each is defined. It is loaded when first used: ``import penstock`` costs
#: nothing. ``celery`` is for ``celery -A penstock``, not for users, and so not in ``__all__``.
_LAZY = {
    "ASHA": "app.strategies:ASHA",
    "BackendError": "profiling.errors:BackendError",
    "Categorical": "app.space:Categorical",
    "CurveStopping": "app.strategies:CurveStopping",
    "Data": "tasks.contract:Data",
    "Float": "app.space:Float",
    "EpochTrial": "tasks.epochs:EpochTrial",
    "FullBudget": "app.strategies:FullBudget",
    "PASHA": "app.strategies:PASHA",
    "PBT": "app.strategies:PBT",
    "Hyperband": "app.strategies:Hyperband",
    "Int": "app.space:Int",
    "MedianStopping": "app.strategies:MedianStopping",
    "PenstockError": "profiling.errors:PenstockError",
    "Study": "app.study:Study",
    "SuccessiveHalving": "app.strategies:SuccessiveHalving",
    "TorchTrainable": "tasks.contract:TorchTrainable",
    "TrialFailed": "profiling.errors:TrialFailed",
    "UsageError": "profiling.errors:UsageError",
    "celery": "app.celery:app",
    "create_study": "app.opening:create_study",
    "epoch_function": "tasks.contract:epoch_function",
    "load_study": "app.opening:load_study",
}

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
    "FullBudget",
    "Hyperband",
    "Int",
    "MedianStopping",
    "PenstockError",
    "Study",
    "SuccessiveHalving",
    "TorchTrainable",
    "TrialFailed",
    "UsageError",
    "create_study",
    "epoch_function",
    "load_study",
]


def __getattr__(name: str) -> Any:
    """A public name from the module that defines it."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _LAZY[name].split(":")
    value = getattr(import_module(f".{module}", __name__), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
