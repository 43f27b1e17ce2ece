"""The worker's end of lanes: variables of trainers with several seats, and their turn pages."""

from __future__ import annotations

from pathlib import Path

from ...app.node.launching.variables import ALLOCATOR
from .turn_page import TurnPage

#: Settings added if several trials take turns in a trainer, each in a thread of its own. The
#: threads share one heap, so memory freed by one trial is reused by the next. Caches of small
#: blocks are off: glibc before 2.38 puts the rest of an aligned block there, so the memory of a
#: freed tensor is never merged again, each new tensor takes new memory, and the heap fragments.
ONE_HEAP = ":glibc.malloc.arena_max=1:glibc.malloc.tcache_count=0"
#: Variables of a trainer with several seats: a thread that waits for its turn must not keep its
#: team spinning. OpenMP's libraries read this when they are loaded.
NO_SPINNING = {"OMP_WAIT_POLICY": "PASSIVE"}


def variables() -> dict[str, str]:
    """Return the additional environment variables of trainers with several seats."""
    return {"GLIBC_TUNABLES": ALLOCATOR + ONE_HEAP, **NO_SPINNING}


def share(path: Path, seats: int) -> TurnPage:
    """Return the page in which the worker sees the turns of one trainer. Raises OSError.

    ``path`` is the page's file, which is removed when the page is.
    """
    return TurnPage(path, seats, new=True)
