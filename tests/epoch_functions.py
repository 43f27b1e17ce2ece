"""Epoch functions for the tests: a plain one, and some that are wrong as a user's can be.

Those on top need no torch: it must not be loaded for them.
"""

from __future__ import annotations

import random
import sys

from penstock import epoch_function


@epoch_function
def adds(trial):
    """Its state is the sum of all epochs and of numbers drawn; in the store every k-th epoch."""
    every = trial.params.get("every", 1)
    state = trial.load()
    total = state["total"] if state else 0.0
    for epoch in trial.epochs():
        total += epoch + random.random()
        due = epoch % every == 0
        trial.report({"accuracy": total}, checkpoint={"total": total} if due else None)


@epoch_function
def keeps_nothing(trial):
    total = 0.0
    for epoch in trial.epochs():
        total += epoch
        torch = float("torch" in sys.modules)
        trial.report({"accuracy": total, "torch": torch, "dropped": float("nan")})


@epoch_function
def never_loads(trial):
    total = 0.0
    for epoch in trial.epochs():
        total += epoch
        trial.report({"accuracy": total}, checkpoint={"total": total})


@epoch_function
def stops_early(trial):
    for epoch in trial.epochs():
        trial.report({"accuracy": epoch})
        if epoch == trial.params["stop"]:
            break
    print(f"after the loop, epoch {epoch}", flush=True)


@epoch_function
def tidies(trial):
    try:
        for epoch in trial.epochs():
            trial.report({"accuracy": epoch})
    except Exception:
        print("swallowed", flush=True)
    finally:
        print(f"trial {trial.number} is unwound", flush=True)


@epoch_function
def swallows(trial):
    """Nothing that is raised in its loop gets out of it."""
    for epoch in trial.epochs():
        try:
            trial.report({"accuracy": epoch}, checkpoint={"epoch": epoch})
        except BaseException as error:
            print(f"swallowed {type(error).__name__}", flush=True)


@epoch_function
def raises_in_the_middle(trial):
    for epoch in trial.epochs():
        if epoch == 2:
            raise ValueError("the dog ate the batch")
        trial.report({"accuracy": epoch}, checkpoint={"epoch": epoch})


@epoch_function
def raises_after_its_report(trial):
    for _ in trial.epochs():
        trial.report({"accuracy": 0.5})
        raise ValueError("the plot failed")


@epoch_function
def reports_another_metric(trial):
    for _ in trial.epochs():
        trial.report({"f1": 0.5})


@epoch_function
def reports_nan(trial):
    for _ in trial.epochs():
        trial.report({"accuracy": float("nan")})


@epoch_function
def reports_text(trial):
    for _ in trial.epochs():
        trial.report({"accuracy": "good"})


@epoch_function
def reports_a_number(trial):
    for _ in trial.epochs():
        trial.report(0.5)


@epoch_function
def reports_nothing(trial):
    for _ in trial.epochs():
        pass


@epoch_function
def reports_twice(trial):
    for _ in trial.epochs():
        trial.report({"accuracy": 0.5})
        trial.report({"accuracy": 0.6})


@epoch_function
def reports_before_the_loop(trial):
    trial.report({"accuracy": 0.5})


@epoch_function
def reports_after_the_loop(trial):
    for _ in trial.epochs():
        trial.report({"accuracy": 0.5})
        break
    trial.report({"accuracy": 0.6})


@epoch_function
def loops_twice(trial):
    for _ in trial.epochs():
        break
    for _ in trial.epochs():
        break


@epoch_function
def loads_in_the_loop(trial):
    for _ in trial.epochs():
        trial.load()


@epoch_function
def returns_at_once(trial):
    pass


@epoch_function
def exits(trial):
    sys.exit(3)


@epoch_function
def stores_itself(trial):
    for _ in trial.epochs():
        trial.report({"accuracy": 0.5}, checkpoint={"model": {"layers": [1, adds]}})


@epoch_function
def stores_nothing_much(trial):
    for _ in trial.epochs():
        trial.report({"accuracy": 0.5}, checkpoint={})
