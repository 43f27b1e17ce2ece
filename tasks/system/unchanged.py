"""Inspect a model without side effects."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

#: Lock of code that runs models only to inspect them: tracing changes ``nn.Module`` itself, and a
#: run changes the random states, which all threads share.
ALONE = threading.RLock()


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Restore the model's buffers and modes, and all RNG state, at the end of the context."""
    modes = [(each, each.training) for each in model.modules()]
    buffers = [(each, each.detach().clone()) for each in model.buffers()]
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    with ALONE, torch.random.fork_rng(devices=devices):
        numpy, state = sys.modules.get("numpy"), random.getstate()
        numbers = numpy.random.get_state() if numpy else None
        try:
            yield
        finally:
            for each, mode in modes:
                each.training = mode
            with torch.no_grad():
                for buffer, value in buffers:
                    buffer.copy_(value)
            random.setstate(state)
            if numpy:
                numpy.random.set_state(numbers)
