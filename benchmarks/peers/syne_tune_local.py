"""Syne Tune's part of ``python -m benchmarks.peers``: its local back end, a process a trial.

Its best case: files in memory, the tuner looks at its trials every 10 ms rather than every 5 s, no
results are stored. Hyperband is its ASHA with several brackets: synchronous ones it has no longer.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

#: Seconds between two looks at the trials.
LOOK = 0.01


def train() -> None:
    """A trial: what the back end starts."""
    from _training import Training
    from syne_tune import Reporter

    parser = argparse.ArgumentParser()
    kinds = {"lr": float, "steps": int, "epochs": int, "log": str, "net": str}
    for name, kind in kinds.items():
        parser.add_argument(f"--{name}", type=kind)
    given, _ = parser.parse_known_args()
    report = Reporter()
    training = Training(given.lr, given.steps, given.log, given.net)
    for epoch in range(1, given.epochs + 1):
        report(epoch=epoch, loss=training.run_epoch())


def main() -> None:
    """Run the plan."""
    from _session import CORES, ETA, session

    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        dir=memory if memory.is_dir() else None, ignore_cleanup_errors=True
    ) as folder:
        os.environ["SYNETUNE_FOLDER"] = folder
        from syne_tune import Tuner
        from syne_tune.backend import LocalBackend
        from syne_tune.config_space import loguniform
        from syne_tune.optimizer.baselines import ASHA, RandomSearch

        logging.getLogger().setLevel(logging.ERROR)

        def study(job: dict[str, Any], log: Path) -> None:
            space = {"lr": loguniform(1e-5, 1.0), "log": str(log)}
            space |= {name: job[name] for name in ("steps", "epochs", "net")}
            points = [{"lr": lr} for lr in job["lrs"]]
            if job["tuner"] == "random":
                scheduler: Any = RandomSearch(space, ["loss"], points_to_evaluate=points)
            else:
                brackets = 1 + int(math.log(job["epochs"], ETA) + 1e-9)
                scheduler = ASHA(
                    space,
                    "loss",
                    time_attr="epoch",
                    max_t=job["epochs"],
                    reduction_factor=ETA,
                    brackets=brackets if job["tuner"] == "hyperband" else 1,
                    points_to_evaluate=points,
                )
            Tuner(
                trial_backend=LocalBackend(__file__),
                scheduler=scheduler,
                stop_criterion=lambda status: status.num_trials_started >= len(points),
                n_workers=CORES,
                sleep_time=LOOK,
                print_update_interval=1e9,
                results_update_interval=1e9,
                callbacks=[],
                save_tuner=False,
                wait_trial_completion_when_stopping=True,
            ).run()

        session(study, lambda: [os.getpid()], Path(folder))


if __name__ == "__main__":
    if any(word.startswith("--lr") for word in sys.argv):
        train()
    else:
        main()
