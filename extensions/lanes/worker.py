"""The worker's end of lanes: what a trainer with several seats is told, and tells of its turns."""

from __future__ import annotations

from pathlib import Path

from ...app.node.launching.variables import ALLOCATOR
from .turn_page import TurnPage

#: Added where several trials take turns in a trainer, each in a thread of its own. They share one
#: heap: what one has freed when its turn ends the next one gets. Without caches of small blocks:
#: glibc before 2.38 puts there what it cuts off an aligned block, so a tensor that is freed never
#: becomes whole again, the next one of its size takes new memory, and the heap falls to pieces.
ONE_HEAP = ":glibc.malloc.arena_max=1:glibc.malloc.tcache_count=0"
#: Variables of a trainer with several seats: a thread that waits for its turn must not keep its
#: team spinning. OpenMP's libraries read this when they are loaded.
NO_SPINNING = {"OMP_WAIT_POLICY": "PASSIVE"}


def variables() -> dict[str, str]:
    """Return the environment variables of such trainers, beside those of all."""
    return {"GLIBC_TUNABLES": ALLOCATOR + ONE_HEAP, **NO_SPINNING}


def share(path: Path, seats: int) -> TurnPage:
    """Return what the worker knows of the turns in one trainer. Raises OSError.

    ``path`` is of a file for it, which is removed at the end.
    """
    return TurnPage(path, seats, new=True)
