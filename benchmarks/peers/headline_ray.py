"""Ray Tune's part of ``python -m benchmarks.headline``: ASHA with warm actors.

Its best case, as in ``ray_tune.py``: storage in memory, no loggers, no dashboard, no snapshots, a
trial takes one CPU, processes at the priority of any other, actors used again. Its ASHA stops, and
Ray saves a trial that it ends.
"""

from __future__ import annotations

import logging
import os
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
import torch
from _headline_work import CORES, ETA, Point, Training, session
from ray import tune
from ray.tune.schedulers import AsyncHyperBandScheduler


class Trial(tune.Trainable):
    """One trial by the class API, which is what ``reuse_actors`` is for."""

    def setup(self, config: dict[str, Any]) -> None:
        self.training = Training(config["case"], config["point"], config["seed"], config["log"])

    def step(self) -> dict[str, float]:
        return {"accuracy": self.training.run_epoch()}

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.setup(new_config)
        return True

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        training = self.training
        state = (training.epoch, training.model.state_dict(), training.optimizer.state_dict())
        torch.save(state, Path(checkpoint_dir, "state.pt"))

    def load_checkpoint(self, checkpoint: str) -> None:
        training = self.training
        state = torch.load(Path(checkpoint, "state.pt"), weights_only=True)
        training.epoch = state[0]
        training.model.load_state_dict(state[1])
        training.optimizer.load_state_dict(state[2])


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

        def study(case: str, seed: int, chosen: list[Point], epochs: int, log: str) -> None:
            rest = {"case": case, "seed": seed, "log": log}
            found = tune.Tuner(
                tune.with_resources(Trial, {"cpu": 1}),
                param_space={"point": tune.grid_search(chosen), **rest},
                tune_config=tune.TuneConfig(
                    metric="accuracy",
                    mode="max",
                    scheduler=AsyncHyperBandScheduler(
                        max_t=epochs, grace_period=1, reduction_factor=ETA
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


if __name__ == "__main__":
    main()
