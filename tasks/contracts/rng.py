"""Random numbers of a trial: seeds by key, and generators whose states are kept for each trial.

Every random number depends on its purpose only, never on earlier draws. A seed is the SHA-256 of
the names that identify a draw. So seeds are the same in every process, on every machine and in
every version of Python (which is not true of ``hash``).

Users' functions draw from ``random``, ``numpy.random`` and torch (CPU and CUDA). A process has one
generator of each. Trials that take turns in a process each see them as if they ran alone. A
library's generator is used only once the library is imported.
"""

from __future__ import annotations

import hashlib
import random
import sys
from dataclasses import dataclass
from typing import Any


def key(*names: int | str) -> int:
    """Return the 63-bit seed of a draw with these names: ``key("order", seed, number, epoch)``."""
    digest = hashlib.sha256("\x1f".join(map(str, names)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


@dataclass(frozen=True, slots=True)
class States:
    """The states of the generators; None or empty for generators that do not exist yet."""

    python: tuple[Any, ...]
    numpy: dict[str, Any] | None
    torch: Any
    cuda: tuple[Any, ...]


def seed(seed: int) -> None:
    """Seed all generators, including CUDA's even if torch has not started CUDA yet."""
    random.seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed % 2**32)
    if torch := sys.modules.get("torch"):
        # Not torch.manual_seed: for every possible backend that has not started, it records and
        # keeps a stack trace, which takes 0.3 ms and more a call.
        torch.default_generator.manual_seed(seed)
        if torch.cuda.is_available():
            torch.cuda.manual_seed_all(seed)


def save() -> States:
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    # Asking for CUDA's state would start CUDA.
    cuda = torch.cuda.get_rng_state_all() if torch and torch.cuda.is_initialized() else ()
    return States(
        random.getstate(),
        numpy.random.get_state(legacy=False) if numpy else None,
        torch.get_rng_state() if torch else None,
        tuple(cuda),
    )


def restore(states: States, seed_before: int) -> None:
    """Return to ``states``. Generators missing in them are seeded with ``seed_before``."""
    seed(seed_before)
    random.setstate(states.python)
    if states.numpy is not None:
        sys.modules["numpy"].random.set_state(states.numpy)
    if states.torch is not None:
        sys.modules["torch"].set_rng_state(states.torch)
    if states.cuda:
        sys.modules["torch"].cuda.set_rng_state_all(states.cuda)
