"""Samplers of a user's own, good ones and bad ones."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

from optuna.samplers import BaseSampler, RandomSampler


class Halves(BaseSampler):
    """Begins at random, then takes each number half-way between the best one and the low end.

    It learns relative to the space, counts its calls, and notes that count with trial and study.
    """

    def __init__(self, seed=None):
        self._rng = random.Random(seed)
        self.told = []
        self.calls = 0

    def reseed_rng(self):
        self._rng.seed()

    def infer_relative_search_space(self, study, trial):
        done = [t for t in study.get_trials(deepcopy=False) if t.state.is_finished()]
        return dict(done[0].distributions) if done else {}

    def sample_relative(self, study, trial, search_space):
        if not search_space:
            return {}
        self.calls += 1
        study._storage.set_trial_system_attr(trial._trial_id, "halves:call", self.calls)
        study._storage.set_study_system_attr(study._study_id, "halves:calls", self.calls)
        best = study.best_trial.params
        return {
            name: (dist.low + best[name]) / 2
            for name, dist in search_space.items()
            if hasattr(dist, "low") and isinstance(best[name], float)
        }

    def sample_independent(self, study, trial, param_name, param_distribution):
        if hasattr(param_distribution, "choices"):
            return self._rng.choice(param_distribution.choices)
        draw = self._rng.randint if isinstance(param_distribution.low, int) else self._rng.uniform
        return draw(param_distribution.low, param_distribution.high)

    def after_trial(self, study, trial, state, values):
        self.told.append((trial.number, state.name, values))
        study._storage.set_trial_system_attr(trial._trial_id, "halves:told", len(self.told))


class Bad(RandomSampler):
    """Does what it should not."""

    def __init__(self, how, file=""):
        super().__init__(seed=0)
        self.how = how
        self.file = file

    def sample_independent(self, study, trial, param_name, param_distribution):
        if self.how == "raises":
            raise ZeroDivisionError("nothing to divide by")
        if self.how == "hangs":
            time.sleep(600)
        if self.how == "outside":
            return 7.0
        if self.how == "exits":
            os._exit(3)
        if self.how == "killed" and not Path(self.file).exists():
            Path(self.file).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "stops" and trial.number == 2:
            study.stop()
        print("drawing", param_name)
        return super().sample_independent(study, trial, param_name, param_distribution)
