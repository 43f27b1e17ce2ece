"""Ray Tune's part of ``python -m benchmarks.peers``; ``--reuse`` last for ``reuse_actors``.

Its best case, as in ``ray_resize.py``: storage in memory, no loggers, no dashboard, no snapshots,
a trial takes one CPU, processes at the priority of any other; checkpoints only where a scheduler
pauses.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ |= {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "86400",
    "PYTHONPATH": str(Path(__file__).parent),
}

import ray
from _session import CORES, ETA, session
from _training import Training
from ray import tune
from ray.tune.schedulers import AsyncHyperBandScheduler, FIFOScheduler, HyperBandScheduler

REUSE = sys.argv[-1] == "--reuse"


class Trial(tune.Trainable):
    """One trial by the class API, which is what ``reuse_actors`` is for."""

    def setup(self, config: dict[str, Any]) -> None:
        self.training = Training(*(config[name] for name in ("lr", "steps", "log", "net")))

    def step(self) -> dict[str, float]:
        return {"loss": self.training.run_epoch()}

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.setup(new_config)
        return True

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        self.training.save(checkpoint_dir)

    def load_checkpoint(self, checkpoint: str) -> None:
        self.training.load(checkpoint)


def scheduler(tuner: str, epochs: int) -> Any:
    """Ray's own of that name."""
    if tuner == "asha":
        return AsyncHyperBandScheduler(max_t=epochs, grace_period=1, reduction_factor=ETA)
    if tuner == "hyperband":
        return HyperBandScheduler(max_t=epochs, reduction_factor=ETA, stop_last_trials=True)
    return FIFOScheduler()


def main() -> None:
    """Start Ray, run the plan."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        dir=memory if memory.is_dir() else None, ignore_cleanup_errors=True
    ) as folder:
        ray.init(
            num_cpus=CORES,
            include_dashboard=False,
            logging_level=logging.ERROR,
            log_to_driver=False,
            _temp_dir=f"{folder}/ray",
            _system_config={"worker_niceness": 0},
        )

        def study(job: dict[str, Any], log: Path) -> None:
            space = {"lr": tune.grid_search(job["lrs"]), "log": str(log)}
            space |= {name: job[name] for name in ("steps", "net")}
            found = tune.Tuner(
                tune.with_resources(Trial, {"cpu": 1}),
                param_space=space,
                tune_config=tune.TuneConfig(
                    metric="loss",
                    mode="min",
                    scheduler=scheduler(job["tuner"], job["epochs"]),
                    reuse_actors=REUSE,
                ),
                run_config=tune.RunConfig(
                    storage_path=f"{folder}/storage",
                    stop={"training_iteration": job["epochs"]},
                    verbose=0,
                ),
            ).fit()
            if found.errors:
                raise RuntimeError(f"Ray's trial failed: {found.errors[0]}")

        session(study, lambda: [os.getpid()], Path(folder))
        ray.shutdown()


if __name__ == "__main__":
    main()
