"""Ray Tune's part of ``python -m benchmarks.peers``; ``--reuse`` last for ``reuse_actors``.

Its best case (``_ray_study``); checkpoints only where a scheduler pauses.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from _ray_study import Trial, run, started
from _session import ETA, session
from _training import Training
from ray import tune
from ray.tune.schedulers import AsyncHyperBandScheduler, FIFOScheduler, HyperBandScheduler

REUSE = sys.argv[-1] == "--reuse"


class Trained(Trial):
    """A trial of a peers' study."""

    metric = "loss"

    @staticmethod
    def made(config: dict[str, Any]) -> Training:
        return Training(*(config[name] for name in ("lr", "steps", "log", "net")))


def scheduler(tuner: str, epochs: int) -> Any:
    """Ray's own of that name."""
    if tuner == "asha":
        return AsyncHyperBandScheduler(max_t=epochs, grace_period=1, reduction_factor=ETA)
    if tuner == "hyperband":
        return HyperBandScheduler(max_t=epochs, reduction_factor=ETA, stop_last_trials=True)
    return FIFOScheduler()


def main() -> None:
    """Start Ray, run the plan."""
    with started() as folder:

        def study(job: dict[str, Any], log: Path) -> None:
            space = {"lr": tune.grid_search(job["lrs"]), "log": str(log)}
            space |= {name: job[name] for name in ("steps", "net")}
            chosen = scheduler(job["tuner"], job["epochs"])
            epochs = job["epochs"]
            run(Trained, space, epochs, folder, mode="min", scheduler=chosen, reuse=REUSE)

        session(study, lambda: [os.getpid()], Path(folder))


if __name__ == "__main__":
    main()
