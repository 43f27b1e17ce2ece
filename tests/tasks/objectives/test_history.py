"""A study's history, of which this process writes some trials itself."""

from __future__ import annotations

from optuna.distributions import FloatDistribution
from optuna.trial import TrialState
from penstock.tasks.objectives.distributions import to_text
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


X = ("x", to_text(FloatDistribution(0.0, 1.0)), 0.25)
Y = ("y", to_text(FloatDistribution(0.0, 1.0)), 0.5)


def shown(history):
    """The parameters of the running trials, as a sampler sees them."""
    return {trial.number: trial.params for trial in history.select((TrialState.RUNNING,))}


def test_what_a_running_trial_has_sampled_is_shown_until_the_scheduler_says_what_holds():
    history = History()
    history.apply({"n": 0, "sampled": [X]})  # it is read before what says that the trial runs
    assert shown(history) == {}
    history.apply(RUNS)
    history.apply({"n": 0, "sampled": [Y]})
    assert shown(history) == {0: {"x": 0.25, "y": 0.5}}
    assert history.trials[0].params == {}, "it is not accepted"
    history.apply({"n": 0, "suggestions": [(*X[:2], 0.75)]})
    assert shown(history) == {0: {"x": 0.75, "y": 0.5}}
    history.apply(ENDED)
    assert shown(history) == {}
    assert history.select(None)[0].params == {"x": 0.75}


def test_an_attempt_that_starts_over_knows_nothing_of_what_was_only_announced():
    history = History()
    history.apply(RUNS)
    history.apply({"n": 0, "sampled": [X]})
    assert history.take(0).params == {}
    assert shown(history) == {0: {}}
