"""Waiting in tests for events that must come: a limit for hangs only, and the loop that waits."""

from __future__ import annotations

import os
import time

#: Seconds. It is no statement about speed: a machine with much other work, at a part of its clock,
#: needs many times what a free one needs, and what has hung is still found.
PATIENCE = 600.0


def until(holds, what="it", explain=lambda: ""):
    """The first true answer of ``holds``; the failure names ``what``, and adds ``explain()``."""
    deadline = time.monotonic() + PATIENCE
    while not (found := holds()):
        if time.monotonic() > deadline:
            load = os.getloadavg()
            raise AssertionError(f"{what}: not in {PATIENCE:g} s (load {load})\n{explain()}")
        time.sleep(0.01)
    return found
