"""Optional libraries, which only some users need, and the extras that install them."""

from __future__ import annotations

from importlib.util import find_spec

from .errors import UsageError
from .hiding import hidden

#: The extra of ``pyproject.toml`` that installs a library, by the name it is imported under.
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


def need(library: str, user: str) -> None:
    """Raise ``UsageError``, naming the extra, if ``library`` is not installed.

    ``user`` says what needs it. The library is only looked for, not imported.
    """
    if find_spec(library) is None:
        raise UsageError(missing_extra(library, user))


def missing_extra(library: str, user: str) -> str:
    """Return the message that ``user`` needs ``library``, with the command that installs it."""
    how = f"pip install 'penstock[{EXTRAS[library]}]'"
    return f"{user} needs {library}, which is not installed: {how}"


def import_hint(error: BaseException) -> str:
    """Return advice on a failed import, to append to the error's message; empty if there is none.

    The advice names an extra to install, or a file to rename because it has a library's name.
    """
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    extra = EXTRAS.get((name or "").partition(".")[0])
    hint = f"pip install 'penstock[{extra}]'" if extra else hidden(error)
    return f": {hint}" if hint else ""
