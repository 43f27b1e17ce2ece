"""Objective of ``sampler_faults``, which trainers run: it leaves traces of all kinds."""

from __future__ import annotations

import os
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from optuna.artifacts import FileSystemArtifactStore, upload_artifact
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler

STEPS = 3
#: The text of a trial's artifact.
TEXT = "trial {number} has x = {x}"


def traced(folder: str, trial: Any) -> float:
    """Draws, uploads one artifact to ``folder``, reports, and sets attributes of both kinds."""
    x = trial.suggest_float("x", -4, 4, step=0.5)
    n = trial.suggest_int("n", 1, 8)
    kind = trial.suggest_categorical("kind", ["a", "b", "c"])
    trial.set_user_attr("pid", os.getpid())
    trial.set_user_attr("x", x)
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "notes.txt"
        file.write_text(TEXT.format(number=trial.number, x=x))
        store = FileSystemArtifactStore(folder)
        upload_artifact(artifact_store=store, file_path=str(file), study_or_trial=trial)
    for step in range(STEPS):
        time.sleep(0.1)
        trial.report(x + step, step)
    trial.study.set_user_attr(f"trial {trial.number}", x)
    return float(x * x + n + (kind == "b"))


class Wanderer(BaseSampler):
    """A sampler of a user's own, with random numbers and a count of its own."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._drawn = 0

    def reseed_rng(self) -> None:
        """As Optuna's samplers."""
        self._rng.seed()

    def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, BaseDistribution]:
        """Nothing."""
        return {}

    def sample_relative(self, study: Any, trial: Any, search_space: Any) -> dict[str, Any]:
        """Nothing."""
        return {}

    def sample_independent(self, study: Any, trial: Any, name: str, dist: Any) -> Any:
        """Anything; the trial's note says how much was drawn here."""
        self._drawn += 1
        study._storage.set_trial_system_attr(trial._trial_id, "wanderer:drawn", self._drawn)
        return dist.to_external_repr(float(self._rng.randrange(3)) + getattr(dist, "low", 0))
