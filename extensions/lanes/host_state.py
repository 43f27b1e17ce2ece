"""The state of a process that each trial must have for itself: its random generators.

A trial must draw the same numbers whether or not other trials have turns during its epoch. In
training, torch is seeded again before each step. But ``random`` and ``numpy`` are seeded once an
epoch, and torch once an evaluation, so their states must survive the turns of other trials.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


class Generators:
    """The generators of ``random``, ``numpy`` and torch on the CPU and on ``device``."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def save(self) -> tuple[Any, ...]:
        """Return the states. Synchronizes with the device, so that turns divide its time."""
        on_device = None
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
            on_device = torch.cuda.get_rng_state(self._device)
        torch_state = torch.default_generator.get_state()
        return random.getstate(), np.random.get_state(legacy=False), torch_state, on_device

    def restore(self, saved: tuple[Any, ...]) -> None:
        python, numpy, torch_state, on_device = saved
        random.setstate(python)
        np.random.set_state(numpy)
        torch.default_generator.set_state(torch_state)
        if on_device is not None:
            torch.cuda.set_rng_state(on_device, self._device)
