"""``penstock best --model FOLDER``: the trained model of a trial, in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...app.ledger.reader import Reader
    from ...app.ledger.rows import StudyRow


def write_trained(
    reader: Reader,
    study: StudyRow,
    folder: Path,
    *,
    trial: int | None,
    code: str | None,
    store: str | None,
) -> None:
    """Write the model of a study's best trial, or of trial number ``trial``, to a folder.

    Raises UsageError and BackendError as ``trained_model`` and ``write_model`` do.
    """
    from .model_folder import write_model
    from .trained import trained_model

    model = trained_model(reader, study, trial, code_is_named=code is not None, store=store)
    write_model(model if code is None else model.of_code(code), folder)
