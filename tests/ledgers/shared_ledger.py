"""Studies whose trials have epochs in common, in a real ledger file."""

from __future__ import annotations

import json

from ledgers.study_ledger import make_study, study_spec
from penstock.extensions.prefixes.chain import is_checked
from penstock.scheduler.model.study import StrategySpec
from penstock.scheduler.model.trial import Trial

ID = "digits-1a2b"
FULL = StrategySpec("full", max_epochs=6)
#: No trial of a small study with this seed is one that trains its epochs as a check.
UNCHECKED = 5


def choice(*values):
    return json.dumps({"name": "CategoricalDistribution", "attributes": {"choices": values}})


def shared_spec(n_trials=9, space=("x", "x@3"), values=(0.2, 0.5, 0.9), **fields):
    """A grid over schedules of ``x``, in which three trials each have their first epochs alike."""
    given = {"sampler": "grid", "seeding": "shared", "seed": UNCHECKED, "strategy": FULL}
    choices = tuple((name, choice(*values)) for name in space)
    return study_spec(n_trials=n_trials, space=choices, **{**given, **fields})


def shared_study(home, turns=None, **fields):
    """The reader of such a study, and its row."""
    reader = make_study(home, shared_spec(**fields), turns=turns)
    return reader, reader.study(ID)


def checked(seed, n_trials=9):
    """The numbers of the trials that train their epochs as a check, with this seed."""
    spec = shared_spec(n_trials, seed=seed)
    trials = (Trial("", "", number, (), 0.0) for number in range(n_trials))
    return [trial.number for trial in trials if is_checked(spec, trial)]
