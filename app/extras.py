"""Libraries that only some of Penstock's users need: asked for by the name of their extra."""

from __future__ import annotations

from importlib.util import find_spec

from ..profiling.errors import UsageError


def need(library: str, extra: str, what: str) -> None:
    """Raise UsageError naming the extra where ``library``, which ``what`` needs, is not installed.

    The library is only looked for, not imported.
    """
    if find_spec(library) is None:
        raise UsageError(
            f"{what} needs {library}, which is not installed: pip install 'penstock[{extra}]'"
        )
