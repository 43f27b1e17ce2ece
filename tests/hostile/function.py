"""The user's module of an attack with a function: copied for each, since acts spoil it."""

from __future__ import annotations

import os

import penstock
from penstock.tasks.process.lifeline import MARK_VARIABLE
from penstock.tests.hostile.acts import ACTS, KEEP, perform
from penstock.tests.hostile.terms import EPOCHS, value

AT_IMPORT = ""
MOMENTS = {1: "first", 2: "middle"}
WHEN = ["import", "first", "middle", "last", "return"]
XS = [0.25, 0.5, 0.75, 1.0]


def at(params, moment, right=None):
    """Return the value to report at ``moment``: ``right``, or what the act makes of it."""
    found = perform(params["act"], __file__) if params["moment"] == moment else KEEP
    return right if found is KEEP else found


def objective(trial):
    params = {
        "act": trial.suggest_categorical("act", ["nothing", *ACTS]),
        "moment": trial.suggest_categorical("moment", WHEN),
        "x": trial.suggest_categorical("x", XS),
    }
    for epoch in range(1, EPOCHS + 1):
        trial.report(at(params, MOMENTS.get(epoch), value(params["x"], epoch)), epoch)
    at(params, "last")
    return at(params, "return", value(params["x"], EPOCHS))


@penstock.epoch_function
def epochs(trial):
    for epoch in trial.epochs():
        right = value(trial.params["x"], epoch)
        trial.report({"value": at(trial.params, MOMENTS.get(epoch), right)})
        if epoch == EPOCHS:
            at(trial.params, "last")
            break
    at(trial.params, "return")


# In trainers only: the client, too, imports the module.
if AT_IMPORT and MARK_VARIABLE in os.environ:
    perform(AT_IMPORT, __file__)
