"""The plain study, which must complete with the right values after every attack."""

from __future__ import annotations

import time

import penstock
from penstock.tests.hostile.terms import EPOCHS, value

#: Seconds of an epoch: most of the study's time, so that how busy the machine is matters little.
EPOCH = 0.25
XS = [0.25, 0.5, 0.75, 1.0]


def objective(trial):
    x = trial.suggest_categorical("x", XS)
    for epoch in range(1, EPOCHS + 1):
        time.sleep(EPOCH)
        trial.report(value(x, epoch), epoch)
    return value(x, EPOCHS)


@penstock.epoch_function
def epochs(trial):
    """Each value comes from the state before it: a wrong checkpoint gives a wrong value."""
    state = trial.load()
    done = state["done"] if state else 0
    for _ in trial.epochs():
        time.sleep(EPOCH)
        done += 1
        trial.report({"value": value(trial.params["x"], done)}, checkpoint={"done": done})


SCRIPT = """\
import penstock

def objective(trial):
    x = trial.suggest_categorical("x", [0.25, 0.5])
    for step in range(1, 4):
        trial.report(x * 100 + step, step)
    return x * 100 + 3

if __name__ == "__main__":
    study = penstock.create_study(direction="maximize", sampler="grid")
    study.optimize(objective, {"x": [0.25, 0.5]}, n_trials=2, show_progress=False)
    assert sorted(trial.value for trial in study.trials) == [28.0, 53.0], study.trials
    print("all is right")
"""
