"""A study of Ray Tune under ASHA with warm actors.

Its best case, as in ``ray_tune.py``: storage in memory, no loggers, no dashboard, no snapshots, a
trial takes one CPU, processes at the priority of any other, actors used again. Its ASHA stops, and
Ray saves a trial that it ends.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable
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
from ray import tune
from ray.tune.schedulers import AsyncHyperBandScheduler

CORES = 2
Point = dict[str, Any]


class Trial(tune.Trainable):
    """One trial by the class API, which is what ``reuse_actors`` is for."""

    #: Returns the trial's training, which has ``run_epoch``, ``save`` and ``load``.
    made: Callable[[dict[str, Any]], Any]

    def setup(self, config: dict[str, Any]) -> None:
        self.training = type(self).made(config)

    def step(self) -> dict[str, float]:
        return {"accuracy": self.training.run_epoch()}

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.setup(new_config)
        return True

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        self.training.save(Path(checkpoint_dir, "state"))

    def load_checkpoint(self, checkpoint: str) -> None:
        self.training.load(Path(checkpoint, "state"))


def serve(session: Callable[[Any], None], trial: type[Trial], eta: int) -> None:
    """Start Ray, and run the plan of a ``session``, each trial as a ``trial``."""
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

        def study(
            case: str, seed: int, chosen: list[dict[str, Any]], epochs: int, log: str
        ) -> None:
            rest = {"case": case, "seed": seed, "log": log}
            found = tune.Tuner(
                tune.with_resources(trial, {"cpu": 1}),
                param_space={"point": tune.grid_search(chosen), **rest},
                tune_config=tune.TuneConfig(
                    metric="accuracy",
                    mode="max",
                    scheduler=AsyncHyperBandScheduler(
                        max_t=epochs, grace_period=1, reduction_factor=eta
                    ),
                    reuse_actors=True,
                ),
                run_config=tune.RunConfig(
                    storage_path=f"{folder}/storage",
                    stop={"training_iteration": epochs},
                    verbose=0,
                ),
            ).fit()
            if found.errors:
                raise RuntimeError(f"Ray's trial failed: {found.errors[0]}")

        session(study)
        ray.shutdown()
