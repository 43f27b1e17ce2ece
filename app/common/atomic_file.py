"""Files that appear whole or not at all: what a reader finds under a name is never half of it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ...profiling.base.errors import UsageError


def write_whole(path: Path, content: str | bytes, what: str) -> None:
    """Write ``content`` to ``path``, whose folder is made. UsageError where that cannot be done."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
            # mkstemp makes files for their owner alone; this one others may read.
            umask = os.umask(0o077)  # the narrow one, for what another thread makes meanwhile
            os.umask(umask)
            Path(draft).chmod(0o644 & ~umask)
            Path(draft).replace(path)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(f"the {what} cannot be written to {path}: {error.strerror}") from error
