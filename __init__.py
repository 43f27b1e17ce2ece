"""Penstock: hyperparameter tuning as a stream of epoch-sized tasks on Celery."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .app.spec.options import Limits, Resources, Share, SystemTuning
    from .app.spec.sampler_options import Sampler
    from .app.spec.space import Categorical, Float, Int
    from .app.spec.steps import Steps
    from .app.spec.strategies import (
        ASHA,
        PASHA,
        PBT,
        CurveStopping,
        FullBudget,
        Hyperband,
        MedianStopping,
        SuccessiveHalving,
    )
    from .app.study.create import create_study, load_study
    from .app.study.storage import storage
    from .app.study.study import Study
    from .extensions.adapters.huggingface import HuggingFaceCallback as HuggingFaceCallback
    from .extensions.adapters.keras import KerasCallback as KerasCallback
    from .extensions.adapters.lightning import LightningTrainable as LightningTrainable
    from .extensions.adapters.lightning_loop import LightningCallback as LightningCallback
    from .extensions.adapters.sklearn import PartialFit as PartialFit
    from .extensions.adapters.xgboost import XGBoostCallback as XGBoostCallback
    from .extensions.exports.mlflow import MLflowCallback
    from .extensions.exports.tensorboard import TensorBoardCallback
    from .extensions.nas import names as nas
    from .profiling.base.errors import BackendError, PenstockError, TrialFailed, UsageError
    from .tasks.contracts.contract import Data, EpochTrial, TorchTrainable, epoch_function

#: Public names and where each is defined. It is loaded when first used: ``import penstock`` costs
#: nothing. A name without a colon is a module. ``celery`` is for ``celery -A penstock``, not for
#: users, and so not in ``__all__``.
_LAZY = {
    "ASHA": "app.spec.strategies:ASHA",
    "BackendError": "profiling.base.errors:BackendError",
    "Categorical": "app.spec.space:Categorical",
    "CurveStopping": "app.spec.strategies:CurveStopping",
    "Data": "tasks.contracts.contract:Data",
    "Float": "app.spec.space:Float",
    "EpochTrial": "tasks.contracts.contract:EpochTrial",
    "FullBudget": "app.spec.strategies:FullBudget",
    "PASHA": "app.spec.strategies:PASHA",
    "PBT": "app.spec.strategies:PBT",
    "Hyperband": "app.spec.strategies:Hyperband",
    "Int": "app.spec.space:Int",
    "Limits": "app.spec.options:Limits",
    "MLflowCallback": "extensions.exports.mlflow:MLflowCallback",
    "MedianStopping": "app.spec.strategies:MedianStopping",
    "PenstockError": "profiling.base.errors:PenstockError",
    "Resources": "app.spec.options:Resources",
    "Sampler": "app.spec.sampler_options:Sampler",
    "Share": "app.spec.options:Share",
    "Steps": "app.spec.steps:Steps",
    "Study": "app.study.study:Study",
    "SuccessiveHalving": "app.spec.strategies:SuccessiveHalving",
    "SystemTuning": "app.spec.options:SystemTuning",
    "TensorBoardCallback": "extensions.exports.tensorboard:TensorBoardCallback",
    "TorchTrainable": "tasks.contracts.contract:TorchTrainable",
    "TrialFailed": "profiling.base.errors:TrialFailed",
    "UsageError": "profiling.base.errors:UsageError",
    "celery": "app.worker.celery:app",
    "create_study": "app.study.create:create_study",
    "epoch_function": "tasks.contracts.contract:epoch_function",
    "load_study": "app.study.create:load_study",
    "nas": "extensions.nas.names",
    "storage": "app.study.storage:storage",
}

#: For other frameworks, each of which it imports. Not in ``__all__``: ``from penstock import *``
#: needs none of them.
_ADAPTERS = {
    "HuggingFaceCallback": "extensions.adapters.huggingface:HuggingFaceCallback",
    "KerasCallback": "extensions.adapters.keras:KerasCallback",
    "LightningCallback": "extensions.adapters.lightning_loop:LightningCallback",
    "LightningTrainable": "extensions.adapters.lightning:LightningTrainable",
    "PartialFit": "extensions.adapters.sklearn:PartialFit",
    "XGBoostCallback": "extensions.adapters.xgboost:XGBoostCallback",
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
    "Limits",
    "MLflowCallback",
    "MedianStopping",
    "PenstockError",
    "Resources",
    "Sampler",
    "Share",
    "Steps",
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
    "nas",
    "storage",
]


def __getattr__(name: str) -> Any:
    """A public name from the module that defines it."""
    where = _LAZY.get(name) or _ADAPTERS.get(name)
    if where is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module, _, attribute = where.partition(":")
    folder, _, rest = module.partition(".")
    try:
        if folder == "extensions":  # refused by its name where it is not there
            extension, _, end = rest.partition(".")
            extensions = import_module(".app.extensions", __name__)
            found = extensions.end_of(extension, end, f"{__name__}.{name}")
        else:
            found = import_module(f".{module}", __name__)
        value = getattr(found, attribute) if attribute else found
    except (ImportError, AttributeError) as error:
        # A file beside the user's script may hide a library.
        raise import_module(".profiling.base.hiding", __name__).explained(
            error
        ) from error.__cause__
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ADAPTERS})


def load_ipython_extension(ipython: object) -> None:
    """Make Optuna's studies Penstock's in a notebook: ``%load_ext penstock``."""
    from importlib import import_module

    import_module(".app.scripts.jupyter", __name__).load()


def unload_ipython_extension(ipython: object) -> None:
    """Make them Optuna's again: ``%unload_ext penstock``."""
    from importlib import import_module

    import_module(".app.scripts.jupyter", __name__).unload()
