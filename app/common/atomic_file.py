"""Write files that appear whole or not at all: a reader never finds half a file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ...profiling.base.errors import UsageError


def write_atomic(path: Path, content: str | bytes, what: str) -> None:
    """Write ``content`` to ``path``, and make its folder. Raises UsageError where it cannot."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
            # mkstemp makes files readable only by their owner; others may read this one.
            umask = os.umask(0o077)  # the narrow one, in case another thread makes a file meanwhile
            os.umask(umask)
            Path(temporary).chmod(0o644 & ~umask)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(f"the {what} cannot be written to {path}: {error.strerror}") from error
