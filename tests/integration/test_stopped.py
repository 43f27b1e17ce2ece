"""A trial stops what serves others: that goes on, and so do they."""

from __future__ import annotations

import pytest
from penstock import create_study
from penstock.app.host import locks
from penstock.app.host.stopped import stop_of
from user_code import users_objectives

pytestmark = pytest.mark.integration


def test_a_trial_that_stops_its_parent_holds_up_no_later_study(site):
    """Its parent is the launcher process, which starts the trainers of all studies of the node.

    No client is there that would have it continued.
    """
    first = create_study(study_name="stops its parent", sampler="random")
    first.submit(users_objectives.stops_its_parent, n_trials=1)
    site.wait(first.id)
    launcher = locks.pid_of(site.settings.run, "launcher")
    said = f"launcher (process {launcher}) was stopped by a signal: it is continued"
    site.until(lambda: said in site.log("agent") + site.log("scheduler"), "it is continued")
    site.until(lambda: not stop_of(launcher))
    second = create_study(study_name="needs a trainer", sampler="random")
    second.optimize(users_objectives.harmless, n_trials=2, show_progress=False)
    assert [trial.state.name for trial in second.trials] == ["COMPLETE"] * 2
    assert locks.pid_of(site.settings.run, "launcher") == launcher
