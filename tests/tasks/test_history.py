"""A study's history, of which this process writes some trials itself."""

from __future__ import annotations

from optuna.trial import TrialState
from penstock.tasks.objectives.history import History

RUNS = {"n": 0, "state": "running", "values": [], "started": 1.0, "ended": None}
ENDED = {"n": 0, "state": "complete", "values": ["2.5"], "started": 1.0, "ended": 2.0}


def test_an_end_that_was_read_before_the_trial_was_left_counts():
    """A thread reads what is new between another one's writing of the end and its leaving."""
    history = History()
    history.apply(RUNS)
    history.take(0)
    history.apply(ENDED)
    assert history.trials[0].state is TrialState.RUNNING, "updates of an own trial are an echo"
    history.leave(0)
    assert (history.trials[0].state, history.trials[0].value) == (TrialState.COMPLETE, 2.5)


def test_an_end_that_comes_after_the_trial_was_left_counts_as_well():
    history = History()
    history.apply(RUNS)
    own = history.take(0)
    own.user_attrs = {"kept": 1}
    history.replace(own)
    history.leave(0)
    assert history.trials[0].user_attrs == {"kept": 1}, "it stays"
    history.apply(ENDED)
    assert (history.trials[0].state, history.trials[0].value) == (TrialState.COMPLETE, 2.5)
    assert history.trials[0].user_attrs == {"kept": 1}


def test_a_trial_that_was_never_taken_may_be_left():
    history = History()
    history.apply(ENDED)
    history.leave(0)
    assert history.trials[0].value == 2.5
