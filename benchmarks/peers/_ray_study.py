"""Ray Tune in its best case, as all of its parts here have it.

Storage is in memory, and there are no loggers, no dashboard and no snapshots. A trial takes one
CPU, and processes have the priority of any other.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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

    #: Returns the training of a configuration, which has ``run_epoch``, ``save`` and ``load``.
    made: Callable[[dict[str, Any]], Any]
    #: The name of the value that an epoch gives.
    metric = "accuracy"

    def setup(self, config: dict[str, Any]) -> None:
        self.training = type(self).made(config)

    def step(self) -> dict[str, float]:
        return {self.metric: self.training.run_epoch()}

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.setup(new_config)
        return True

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        self.training.save(Path(checkpoint_dir, "state"))

    def load_checkpoint(self, checkpoint: str) -> None:
        self.training.load(Path(checkpoint, "state"))


@contextmanager
def started() -> Iterator[str]:
    """Start Ray; yield a folder in memory for all of its files."""
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
        yield folder
        ray.shutdown()


def run(
    trial: type[Trial],
    space: dict[str, Any],
    epochs: int,
    folder: str,
    *,
    mode: str,
    scheduler: Any,
    reuse: bool = True,
) -> None:
    """Run a study to its end. Raises RuntimeError where a trial failed."""
    found = tune.Tuner(
        tune.with_resources(trial, {"cpu": 1}),
        param_space=space,
        tune_config=tune.TuneConfig(
            metric=trial.metric, mode=mode, scheduler=scheduler, reuse_actors=reuse
        ),
        run_config=tune.RunConfig(
            storage_path=f"{folder}/storage", stop={"training_iteration": epochs}, verbose=0
        ),
    ).fit()
    if found.errors:
        raise RuntimeError(f"Ray's trial failed: {found.errors[0]}")


def serve(session: Callable[[Any], None], training: Callable[..., Any], eta: int) -> None:
    """Run the plan of a ``session`` by ASHA with warm actors.

    ``training`` makes a trial's training of case, configuration, seed and log. Ray's ASHA stops,
    and Ray saves a trial that it ends.
    """

    class Trained(Trial):
        @staticmethod
        def made(config: dict[str, Any]) -> Any:
            return training(config["case"], config["point"], config["seed"], config["log"])

    with started() as folder:

        def study(case: str, seed: int, chosen: list[Point], epochs: int, log: str) -> None:
            space = {"point": tune.grid_search(chosen), "case": case, "seed": seed, "log": log}
            asha = AsyncHyperBandScheduler(max_t=epochs, grace_period=1, reduction_factor=eta)
            run(Trained, space, epochs, folder, mode="max", scheduler=asha)

        session(study)
