"""Libraries that only some of Penstock's users need: asked for by the name of their extra."""

from __future__ import annotations

from importlib.util import find_spec

from .errors import UsageError
from .hiding import hidden

#: The extra of ``pyproject.toml`` that brings a library, by what it is imported as.
EXTRAS = {
    "accelerate": "huggingface",
    "keras": "keras",
    "mlflow": "mlflow",
    "optuna_dashboard": "dashboard",
    "psycopg": "postgres",
    "pyarrow": "parquet",
    "pytorch_lightning": "lightning",
    "s3fs": "s3",
    "tensorboard": "tensorboard",
    "transformers": "huggingface",
    "xgboost": "xgboost",
}


def need(library: str, what: str) -> None:
    """Raise UsageError naming the extra where ``library``, which ``what`` needs, is not installed.

    The library is only looked for, not imported.
    """
    if find_spec(library) is None:
        raise UsageError(lacking(library, what))


def lacking(library: str, what: str) -> str:
    """That ``library``, which ``what`` needs, is not installed, and how to install it."""
    how = f"pip install 'penstock[{EXTRAS[library]}]'"
    return f"{what} needs {library}, which is not installed: {how}"


def advice(error: BaseException) -> str:
    """What to do about what could not be imported, to follow its message; empty where that is all.

    An extra is to be installed, or a file to be renamed that has the name of a library.
    """
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    extra = EXTRAS.get((name or "").partition(".")[0])
    what = f"pip install 'penstock[{extra}]'" if extra else hidden(error)
    return f": {what}" if what else ""
