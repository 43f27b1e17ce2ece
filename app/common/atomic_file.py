"""Write files atomically: a reader never finds half a file."""

from __future__ import annotations

import os
from pathlib import Path
from secrets import token_hex

from ...base.errors import UsageError


def write_atomic(path: Path, content: str | bytes, what: str) -> None:
    """Write ``content`` to ``path`` and make its folder. Raises UsageError if that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{token_hex(8)}")
        try:
            how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with os.fdopen(os.open(temporary, how, 0o644), "wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(f"the {what} cannot be written to {path}: {error.strerror}") from error
