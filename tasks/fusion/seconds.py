"""What work takes, to compare it together and alone."""

from __future__ import annotations

import time

import torch


def spent(device: torch.device) -> float:
    """Processor seconds of this thread; on a GPU, which is waited for, seconds of the clock.

    Other processes interrupt a long step more often than a short one. A GPU computes behind its
    process, and one process at a time.
    """
    if device.type != "cuda":
        return time.thread_time()
    torch.cuda.synchronize(device)
    return time.perf_counter()
