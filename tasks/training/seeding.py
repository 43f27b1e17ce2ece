"""Seed everything that draws random numbers in a trainer."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

from ..contracts.rng import key


def seed_cpu(seed: int) -> None:
    """Seed torch on the CPU, ``random`` and ``numpy.random``."""
    # Not torch.manual_seed: it visits every possible backend, 0.1 ms a call.
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # the generator that user code draws from


def seed_torch(device: torch.device, seed: int) -> None:
    """Seed torch alone, on the CPU and on ``device``."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def seed_everything(device: torch.device, seed: int) -> None:
    """Seed torch on the CPU and on ``device``, ``random`` and ``numpy.random``."""
    seed_cpu(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def seed_phase(device: torch.device, *names: int | str) -> None:
    """Seed everything for the part of a trial's life that ``names`` identify."""
    seed_everything(device, key(*names))


def generators() -> tuple[Any, ...]:
    """Return the states of the process's generators on the CPU: Python's, NumPy's, torch's."""
    state = np.random.get_state(legacy=False)
    words = state["state"]["key"].tobytes(), state["state"]["pos"], state["has_gauss"]
    return random.getstate(), words, torch.default_generator.get_state().numpy().tobytes()
