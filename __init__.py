"""Penstock: hyperparameter tuning as a stream of epoch-sized tasks on Celery."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .app.mlflow import MLflowCallback
    from .app.opening import create_study, load_study
    from .app.options import Exactness, Limits, Resources, Share, SystemTuning
    from .app.optuna_storage import storage
    from .app.sampler_options import Sampler
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
    from .app.tensorboard import TensorBoardCallback
    from .profiling.errors import BackendError, PenstockError, TrialFailed, UsageError
    from .tasks.adapters.huggingface import HuggingFaceCallback as HuggingFaceCallback
    from .tasks.adapters.keras import KerasCallback as KerasCallback
    from .tasks.adapters.lightning import LightningTrainable as LightningTrainable
    from .tasks.adapters.lightning_loop import LightningCallback as LightningCallback
    from .tasks.adapters.sklearn import PartialFit as PartialFit
    from .tasks.adapters.xgboost import XGBoostCallback as XGBoostCallback
    from .tasks.contract import Data, EpochTrial, TorchTrainable, epoch_function

#: Public names and where each is defined. It is loaded when first used: ``import penstock`` costs
#: nothing. ``celery`` is for ``celery -A penstock``, not for users, and so not in ``__all__``.
_LAZY = {
    "ASHA": "app.strategies:ASHA",
    "BackendError": "profiling.errors:BackendError",
    "Categorical": "app.space:Categorical",
    "CurveStopping": "app.strategies:CurveStopping",
    "Data": "tasks.contract:Data",
    "Exactness": "app.options:Exactness",
    "Float": "app.space:Float",
    "EpochTrial": "tasks.contract:EpochTrial",
    "FullBudget": "app.strategies:FullBudget",
    "PASHA": "app.strategies:PASHA",
    "PBT": "app.strategies:PBT",
    "Hyperband": "app.strategies:Hyperband",
    "Int": "app.space:Int",
    "Limits": "app.options:Limits",
    "MLflowCallback": "app.mlflow:MLflowCallback",
    "MedianStopping": "app.strategies:MedianStopping",
    "PenstockError": "profiling.errors:PenstockError",
    "Resources": "app.options:Resources",
    "Sampler": "app.sampler_options:Sampler",
    "Share": "app.options:Share",
    "Study": "app.study:Study",
    "SuccessiveHalving": "app.strategies:SuccessiveHalving",
    "SystemTuning": "app.options:SystemTuning",
    "TensorBoardCallback": "app.tensorboard:TensorBoardCallback",
    "TorchTrainable": "tasks.contract:TorchTrainable",
    "TrialFailed": "profiling.errors:TrialFailed",
    "UsageError": "profiling.errors:UsageError",
    "celery": "app.celery:app",
    "create_study": "app.opening:create_study",
    "epoch_function": "tasks.contract:epoch_function",
    "load_study": "app.opening:load_study",
    "storage": "app.optuna_storage:storage",
}

#: For other frameworks, each of which it imports. Not in ``__all__``: ``from penstock import *``
#: needs none of them.
_ADAPTERS = {
    "HuggingFaceCallback": "tasks.adapters.huggingface:HuggingFaceCallback",
    "KerasCallback": "tasks.adapters.keras:KerasCallback",
    "LightningCallback": "tasks.adapters.lightning_loop:LightningCallback",
    "LightningTrainable": "tasks.adapters.lightning:LightningTrainable",
    "PartialFit": "tasks.adapters.sklearn:PartialFit",
    "XGBoostCallback": "tasks.adapters.xgboost:XGBoostCallback",
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
    "Exactness",
    "Float",
    "FullBudget",
    "Hyperband",
    "Int",
    "Limits",
    "MLflowCallback",
    "MedianStopping",
    "PenstockError",
    "Resources",
    "Sampler",
    "Share",
    "Study",
    "SuccessiveHalving",
    "SystemTuning",
    "TensorBoardCallback",
    "TorchTrainable",
    "TrialFailed",
    "UsageError",
    "create_study",
    "epoch_function",
    "load_study",
    "storage",
]


def __getattr__(name: str) -> Any:
    """A public name from the module that defines it."""
    where = _LAZY.get(name) or _ADAPTERS.get(name)
    if where is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module, attribute = where.split(":")
    try:
        value = getattr(import_module(f".{module}", __name__), attribute)
    except (ImportError, AttributeError) as error:
        # A file beside the user's script may hide a library.
        raise import_module(".profiling.hiding", __name__).explained(error) from error.__cause__
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ADAPTERS})
