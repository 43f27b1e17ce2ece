"""Public names beside ``__all__`` (``app.extensions.BY_NAME``), for type checkers."""

from .adapters.huggingface import HuggingFaceCallback as HuggingFaceCallback
from .adapters.keras import KerasCallback as KerasCallback
from .adapters.lightning import LightningTrainable as LightningTrainable
from .adapters.lightning_loop import LightningCallback as LightningCallback
from .adapters.sklearn import PartialFit as PartialFit
from .adapters.xgboost import XGBoostCallback as XGBoostCallback
from .celery_apps import names as celery

__all__ = [
    "HuggingFaceCallback",
    "KerasCallback",
    "LightningCallback",
    "LightningTrainable",
    "PartialFit",
    "XGBoostCallback",
    "celery",
]
